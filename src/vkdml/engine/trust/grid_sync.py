"""Whether workgroups that run at once on a device see what the others of them store: tried out, as Vulkan promises nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import DriverError, InvalidArgumentError
from ...operators.header.descs import (
    DML_ACTIVATION_SIGMOID_OPERATOR_DESC,
    DML_ACTIVATION_TANH_OPERATOR_DESC,
    DML_BUFFER_TENSOR_DESC,
    DML_GRU_OPERATOR_DESC,
    DML_RECURRENT_NETWORK_DIRECTION,
    DML_TENSOR_DATA_TYPE,
)
from ...operators.problem import Problem, from_desc
from ...planning.candidates import Planner
from ...planning.options import PERSISTENT, STEPPED, Options
from ...planning.plan import Plan, plan_of
from ...planning.tiling import Tiling
from ..vulkan.gpu import Gpu
from .trial import Run, Trial

# B and H of what is run, from few workgroups that share a row to as many as the device has room for
_SIZES = ((1, 256), (1, 1024), (16, 1024))
_STEPS, _INPUTS = 24, 16
_RUNS = 7  # of each


def workgroups_meet(gpu: Gpu, waits_by: str) -> bool:
    """Whether persistent workgroups that meet in this way never give up, and compute what stepped ones do, bit for bit."""
    try:
        return all(_agree(gpu, waits_by, _gru(batch, hidden)) for batch, hidden in _SIZES)
    except DriverError:
        return False


def _agree(gpu: Gpu, waits_by: str, problem: Problem) -> bool:
    persistent = _most_workgroups(gpu, problem, waits_by)
    if persistent is None:
        return True
    trial = Trial(gpu, problem, _random_arrays(problem))
    Run(trial, _plan(gpu, problem, STEPPED)).execute()
    expected = _bytes(trial)
    run = Run(trial, persistent)
    for _ in range(_RUNS):
        run.execute()
        if run.timed_out or _bytes(trial) != expected:
            return False
    return True


def _bytes(trial: Trial) -> list[bytes]:
    return [array.tobytes() for array in trial.outputs().values()]


def _plan(gpu: Gpu, problem: Problem, schedule: str) -> Plan:
    planner = Planner(problem, gpu.info, Options(schedule=schedule))
    return plan_of(planner, planner.best())


def _most_workgroups(gpu: Gpu, problem: Problem, waits_by: str) -> Plan | None:
    """The persistent plan that fills the device most, of those that may be chosen; None: none may."""
    planner = Planner(problem, gpu.info, Options(schedule=PERSISTENT))
    try:
        tilings = planner.tilings()
    except InvalidArgumentError:
        return None
    found = [tiling for tiling in tilings if tiling.loop.meeting == waits_by and tiling.fits_side_by_side(planner.machine)]
    return plan_of(planner, max(found, key=_workgroups)) if found else None


def _workgroups(tiling: Tiling) -> int:
    return tiling.loop.workgroups


def _gru(batch: int, hidden: int) -> Problem:
    """A GRU with two meetings a step, as the reset gate is applied before the product."""
    def tensor(*sizes: int) -> DML_BUFFER_TENSOR_DESC:
        return DML_BUFFER_TENSOR_DESC(DataType=DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=sizes)

    return from_desc(DML_GRU_OPERATOR_DESC(
        InputTensor=tensor(1, _STEPS, batch, _INPUTS), WeightTensor=tensor(1, 1, 3 * hidden, _INPUTS),
        RecurrenceTensor=tensor(1, 1, 3 * hidden, hidden), OutputSequenceTensor=tensor(_STEPS, 1, batch, hidden),
        OutputSingleTensor=tensor(1, 1, batch, hidden), Direction=DML_RECURRENT_NETWORK_DIRECTION.FORWARD,
        ActivationDescs=(DML_ACTIVATION_SIGMOID_OPERATOR_DESC(), DML_ACTIVATION_TANH_OPERATOR_DESC()), LinearBeforeReset=False))


def _random_arrays(problem: Problem) -> Mapping[str, np.ndarray]:
    rng = np.random.default_rng(0)
    scales = {"InputTensor": 1.0, "WeightTensor": _INPUTS**-0.5, "RecurrenceTensor": problem.hidden**-0.5}
    return {field: (scale * rng.standard_normal(problem.tensor(field).sizes)).astype(np.float32)
            for field, scale in scales.items()}
