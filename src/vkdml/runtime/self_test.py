"""Whether a device computes right: each kernel that it may be given runs a small problem, and the float64 reference checks it.

Done when someone asks, and before the first use of each cell in each type where the driver is not a known one. Persistent
kernels are left to `meetings`, which compares them with stepped ones.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import DriverError, InvalidArgumentError, VerificationError
from ..planning.candidates import Planner
from ..planning.elementwise import plan as plan_elementwise
from ..planning.options import MEETINGS
from ..planning.plan import Plan, plan_of
from ..planning.profiles import profile
from ..spec import activations as activation_table
from ..spec import cells, element_types, elementwise
from ..spec.arguments import tensor_descs
from ..spec.cells import Cell
from ..spec.descs import (
    DML_ACTIVATION_PARAMETRIC_SOFTPLUS_OPERATOR_DESC,
    DML_BUFFER_TENSOR_DESC,
    DML_RECURRENT_NETWORK_DIRECTION,
)
from ..spec.element_types import ElementType
from ..spec.elementwise import ElementwiseProblem
from ..spec.problem import Problem, from_desc
from ..spec.verification import differences
from .choices import Choices
from .device import Gpu, OnceForEachGpu
from .recording import storage_buffers
from .trial import Run, Trial

_log = logging.getLogger(__name__)

ON, OFF = "on", "off"

# Of what is run: several tiles and workgroups at most, none of them full
_SIZES = {"T": 5, "B": 3, "I": 5, "H": 21, "D": 1}
_LENGTHS = (5, 0, 3)

ACTIVATION = "activation"
# A cell and its flags, by kind
_CELLS: dict[str, tuple[Cell, dict[str, bool]]] = {
    "GRU": (cells.GRU, {"LinearBeforeReset": False}), "GRU, linear before reset": (cells.GRU, {"LinearBeforeReset": True}),
    "LSTM": (cells.LSTM, {}), "RNN": (cells.RNN, {})}
KINDS = (*_CELLS, ACTIVATION)


@dataclass(frozen=True)
class Outcome:
    """Of the kernels of one plan. kind: of operators, one of KINDS. wrong: what is, or nothing. seconds: with compiling."""

    kind: str
    element: str
    kernels: tuple[str, ...]
    seconds: float
    wrong: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.element} with {', '.join(self.kernels)}: {self.wrong or 'right'}"


def outcomes(gpu: Gpu) -> Iterator[Outcome]:
    """Of all kinds of operators in all types."""
    for kind in KINDS:
        for element in element_types.ALL:
            yield from outcomes_of(gpu, kind, element)


def outcomes_of(gpu: Gpu, kind: str, element: ElementType) -> Iterator[Outcome]:
    """Of one kind in one type: as many as it takes to run each kernel that a plan of it may have."""
    problem = _activation(element) if kind == ACTIVATION else _recurrent(kind, element)
    memory = _random_memory(problem)
    for plan in _plans(gpu, problem):
        start = time.perf_counter()
        wrong = _wrong(gpu, problem, plan, memory)
        outcome = Outcome(kind, element.name, _kernels(plan), time.perf_counter() - start, wrong)
        _log.info("tested %s, in %.3f s", outcome, outcome.seconds)
        yield outcome


def _wrong(gpu: Gpu, problem: Problem | ElementwiseProblem, plan: Plan, memory: dict[str, np.ndarray]) -> str:
    try:
        with gpu.lock:
            trial = Trial(gpu, problem, memory)
            Run(trial, plan).execute()
            return "; ".join(map(str, differences(problem, {**memory, **trial.outputs()})))
    except DriverError as error:
        return str(error)


def _plans(gpu: Gpu, problem: Problem | ElementwiseProblem) -> Iterator[Plan]:
    """As few as have all kernels, of those that the device has enough bindings for."""
    if isinstance(problem, ElementwiseProblem):
        yield plan_elementwise(problem, gpu.info)
        return
    planner = Planner(problem, gpu.info, without=frozenset(MEETINGS))
    best = {(tiling.loop.kernel, tiling.loop.schedule, tiling.projection and tiling.projection.kernel): tiling
            for tiling in reversed(planner.tilings())}
    plans = [plan_of(planner, tiling) for tiling in best.values()]
    plans = [plan for plan in plans if max(storage_buffers(plan).values()) <= gpu.info.max_storage_buffers]
    left = {kernel for plan in plans for kernel in _kernels(plan)}
    while left:
        plan = max(plans, key=lambda plan: len(left.intersection(_kernels(plan))))
        left.difference_update(_kernels(plan))
        yield plan


def _kernels(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dispatch.kernel for dispatch in plan.initialize + plan.execute))


# Before the first use

def mode_of_environment() -> str | None:
    """VKDML_SELFTEST: whether to test on first use; None: where the driver is not known."""
    mode = os.environ.get("VKDML_SELFTEST") or None
    if mode not in (None, ON, OFF):
        raise InvalidArgumentError("compile_operator", "VKDML_SELFTEST", repr(mode), f"{ON} or {OFF}")
    return mode


def check_driver(gpu: Gpu, problem: Problem | ElementwiseProblem) -> None:
    """Raises VerificationError where the kernels for operators like this one compute wrongly. Tested once."""
    mode = mode_of_environment()
    if mode == ON or (mode is None and not profile(gpu.info).is_known):
        _check_kind(gpu, _kind(problem), problem.element)


@OnceForEachGpu
def _check_kind(gpu: Gpu, kind: str, element: ElementType) -> None:
    choices, key = Choices(gpu.info), {"self-test": kind, "element": element.name}
    if choices.get(key) is None:
        expect_right(gpu, outcomes_of(gpu, kind, element))
        choices.put(key, {"passed": True})


def expect_right(gpu: Gpu, found: Iterable[Outcome]) -> list[Outcome]:
    """Raises VerificationError if one is wrong."""
    listed = list(found)
    wrong = [str(outcome) for outcome in listed if outcome.wrong]
    if wrong:
        raise VerificationError(f"{gpu.info.with_driver} computes wrongly: " + "; ".join(wrong))
    return listed


# Problems

def _kind(problem: Problem | ElementwiseProblem) -> str:
    if isinstance(problem, ElementwiseProblem):
        return ACTIVATION
    return next(kind for kind, (cell, flags) in _CELLS.items()
                if problem.cell is cell and flags.items() <= problem.flags.items())


def _activation(element: ElementType) -> ElementwiseProblem:
    """One that takes an exponential and a logarithm."""
    tensor = DML_BUFFER_TENSOR_DESC(DataType=element.data_type, Sizes=(_SIZES["T"], _SIZES["H"]))
    return elementwise.from_desc(DML_ACTIVATION_PARAMETRIC_SOFTPLUS_OPERATOR_DESC(tensor, tensor, Alpha=0.5, Beta=2.0), element)


def _recurrent(kind: str, element: ElementType) -> Problem:
    """With every tensor that the cell has."""
    cell, flags = _CELLS[kind]
    tensors = tensor_descs(cell, element, _SIZES, cell.tensors)
    activations = [activation_table.BY_ONNX_NAME[name.lower()].desc() for name in cell.default_activations]
    return from_desc(cell.desc(**tensors, **flags, ActivationDescs=tuple(activations),
                               Direction=DML_RECURRENT_NETWORK_DIRECTION.FORWARD), element=element)


def _random_memory(problem: Problem | ElementwiseProblem) -> dict[str, np.ndarray]:
    """The bytes of all inputs: numbers of about unit size, and weights that keep sums so."""
    rng = np.random.default_rng(0)
    memory = {}
    for field in problem.inputs:
        sizes = problem.tensor(field).sizes
        if field == "SequenceLengthsTensor":
            memory[field] = np.array(_LENGTHS, np.uint32).view(np.uint8)
        else:
            scale = _SIZES["H"] ** -0.5 if field in problem.weights else 1.0
            memory[field] = _encoded(scale * rng.standard_normal(sizes), problem.element)
    return memory


def _encoded(numbers: np.ndarray, element: ElementType) -> np.ndarray:
    """As bytes of a type."""
    if element.name == "bfloat16":  # the upper half of a float32
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).reshape(-1).view(np.uint8)
    return numbers.astype(element.name).reshape(-1).view(np.uint8)
