"""Problems that are run on buffers of their own: to time plans, to test them, and to see whether workgroups meet.

Vulkan does not promise that workgroups which run at once see what the others of them store, so that is tried out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import DriverError, InvalidArgumentError
from ...operators import activations as activation_table
from ...operators.arguments import tensor_descs
from ...operators.cells import Cell
from ...operators.element_types import FLOAT32
from ...operators.header.descs import DML_RECURRENT_NETWORK_DIRECTION
from ...operators.plain_problem import PlainProblem
from ...operators.problem import Problem, from_desc
from ...planning.candidates import Planner
from ...planning.options import PERSISTENT, STEPPED, Options
from ...planning.plan import Plan, plan_of
from ..commands import Commands
from ..vulkan import spirv
from ..vulkan.buffers import Bound
from ..vulkan.gpu import Buffer, Gpu
from ..vulkan.store import Lease

_log = logging.getLogger(__name__)

Record = Callable[[Commands], None]


def storage_buffers(plan: Plan) -> dict[str, int]:
    """Number of buffers that each kernel of a plan binds, by name. A tensor that is left out takes one too."""
    names = {dispatch.kernel for dispatch in plan.initialize + plan.execute + plan.fallback}
    return {name: len(spirv.load(name).interface.bindings) for name in names}


def record_execution(commands: Commands, plan: Plan, buffers: Mapping[str, Bound], attempts: Attempts) -> None:
    """Record an execution whose weights are packed. buffers: of the tensors, by field, and of the plan, by name. attempts: at
    the plan.
    """
    if plan.timed_out is None:
        commands.record(plan.execute, buffers)
        return
    name, word = plan.timed_out
    writes = frozenset(buffers[name] for dispatch in plan.execute + plan.fallback for name in dispatch.writes)
    commands.call(Fallback(commands.gpu, lambda inner: inner.record(plan.execute, buffers), (buffers[name].buffer, word),
                           lambda inner: inner.record(plan.fallback, buffers), attempts, commands.lease).execute, writes)


@dataclass
class Attempts:
    """Attempts at one kind of work.

    timeouts: how many gave up. goes_on: whether it is tried again after that. keep: tells later processes that one gave up.
    """

    goes_on: bool = True
    timeouts: int = 0
    keep: Callable[[], None] | None = None

    @property
    def is_worthwhile(self) -> bool:
        """Whether to try: each attempt that gives up has waited first."""
        return self.goes_on or not self.timeouts

    def gave_up(self) -> None:
        """Count one that did."""
        self.timeouts += 1
        if self.keep:
            self.keep()


class Fallback:
    """Runs an attempt, and the fallback where the attempt gave up, or is not worthwhile. Both do the same work.

    attempt, fallback: record their dispatches. The fallback is recorded, and its pipelines are made, when it is first needed.
    timed_out: the buffer and the index of the uint32 in it that an attempt sets when it gives up. The words from there to the
    buffer's end are where workgroups meet; they must be 0 when an attempt starts. An attempt that ends leaves them so.
    lease: of whoever keeps it.
    """

    def __init__(self, gpu: Gpu, attempt: Record, timed_out: tuple[Buffer, int], fallback: Record, attempts: Attempts,
                 lease: Lease | None = None) -> None:
        self._gpu, self._attempts, self._lease = gpu, attempts, lease
        self._buffer, self._word = timed_out
        self._attempt = Commands(gpu, lease=lease)
        attempt(self._attempt)
        self._attempt.readback(self._buffer)
        self._clear = Commands(gpu)
        self._clear.upload(self._buffer)
        self._record_fallback = fallback
        self._fallback: Commands | None = None
        self._is_clear = False

    def execute(self) -> None:
        if self._attempts.is_worthwhile:
            self._try()
        else:
            self._run_fallback()

    def _try(self) -> None:
        if not self._is_clear:
            self._clear_words()
        self._is_clear = False  # stays so if the driver fails
        self._attempt.execute()
        if self._buffer.host(np.uint32)[self._word]:
            self._attempts.gave_up()
            _log.warning("workgroups did not meet in time: the fallback runs, %s",
                         "this time" if self._attempts.goes_on else "and from now on at once")
            self._clear_words()  # at once, as other attempts may use the buffer too
            self._run_fallback()
        self._is_clear = True

    def _clear_words(self) -> None:
        self._buffer.host(np.uint32)[self._word:] = 0
        self._clear.execute()

    def _run_fallback(self) -> None:
        if self._fallback is None:
            self._fallback = Commands(self._gpu, lease=self._lease)
            self._record_fallback(self._fallback)
        self._fallback.execute()


class Trial:
    """A problem's tensors. arrays: of inputs, by field; the others are zeros, and lengths T. Tensors have no gaps."""

    def __init__(self, gpu: Gpu, problem: Problem | PlainProblem, arrays: Mapping[str, np.ndarray] = {}) -> None:
        self.gpu, self.problem = gpu, problem
        inputs, outputs = ([field for field in fields if problem.has(field)] for fields in (problem.inputs, problem.outputs))
        gpu.memory.free(sum(gpu.bytes_of(problem.tensor(field).size_in_bytes, True) for field in (*inputs, *outputs)))
        self.buffers = {field: Buffer(gpu, problem.tensor(field).size_in_bytes) for field in (*inputs, *outputs)}
        if isinstance(problem, Problem) and problem.has("SequenceLengthsTensor"):
            self.buffers["SequenceLengthsTensor"].write(np.full(problem.batch, problem.steps, np.uint32))
        uploads = Commands(gpu)
        for field in inputs:
            if field in arrays:
                self.buffers[field].write(arrays[field])
            uploads.upload(self.buffers[field])
        uploads.execute()
        self._readbacks = Commands(gpu)
        for field in outputs:
            self._readbacks.readback(self.buffers[field])

    def outputs(self) -> dict[str, np.ndarray]:
        """The bytes of each, by field."""
        self._readbacks.execute()
        return {field: self.buffers[field].read((self.buffers[field].size_in_bytes,), np.uint8)
                for field in self.problem.outputs if field in self.buffers}


class Run:
    """A plan that runs a trial's problem, as often as it is executed. Its weights are packed once."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        flagged = plan.timed_out[0] if plan.timed_out else None
        trial.gpu.memory.free(sum(trial.gpu.bytes_of(size, name == flagged) for name, size in plan.internal.items()))
        own = {name: Buffer(trial.gpu, size, name == flagged) for name, size in plan.internal.items()}
        buffers = {**trial.buffers, **own}
        packing = Commands(trial.gpu)
        packing.record(plan.initialize, buffers)
        packing.execute()
        self._attempts = Attempts()
        self._commands = Commands(trial.gpu)
        record_execution(self._commands, plan, buffers, self._attempts)

    def execute(self) -> None:
        """Raises DriverError when the driver fails."""
        self._commands.execute()

    @property
    def timeouts(self) -> int:
        """Number of executions that gave up."""
        return self._attempts.timeouts

    @property
    def timed_out(self) -> bool:
        """Whether any execution gave up."""
        return self.timeouts > 0


# B and H of what is run again and again, from few workgroups that share a row to as many as the device has room for, with
# several tiles each; and T and H of what is run once, for as long as a dispatch may take
_SIZES = ((1, 256), (128, 256), (64, 1024))
_LONG = (5_000, 256)
_STEPS, _INPUTS = 24, 16
_RUNS = 7  # of each


def problems_of_meetings(cell: Cell) -> list[tuple[Problem, int]]:
    """What is run to see whether a cell's workgroups meet, and how often."""
    return [*((_problem(cell, _STEPS, batch, hidden), _RUNS) for batch, hidden in _SIZES),
            (_problem(cell, _LONG[0], 1, _LONG[1]), 1)]


def workgroups_meet(gpu: Gpu, waits_by: str, cell: Cell) -> bool:
    """Whether persistent workgroups of a cell that meet in this way never give up, and compute what stepped ones do, bit for
    bit.
    """
    try:
        return all(_agree(gpu, waits_by, problem, runs) for problem, runs in problems_of_meetings(cell))
    except DriverError:
        return False


def _agree(gpu: Gpu, waits_by: str, problem: Problem, runs: int) -> bool:
    persistent = _most_workgroups(gpu, problem, waits_by)
    if persistent is None:
        return True
    trial = Trial(gpu, problem, _random_arrays(problem))
    Run(trial, _plan(gpu, problem, STEPPED)).execute()
    expected = _bytes(trial)
    run = Run(trial, persistent)
    for _ in range(runs):
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
    """The persistent plan that fills the device most, with several tiles a workgroup if any has, of those that may be chosen;
    None: none may.
    """
    planner = Planner(problem, gpu.info, Options(schedule=PERSISTENT))
    try:
        tilings = planner.tilings()
    except InvalidArgumentError:
        return None
    found = [tiling for tiling in tilings if tiling.loop.meeting == waits_by and tiling.fits_side_by_side(planner.machine)]
    if not found:
        return None
    return plan_of(planner, max(found, key=lambda tiling: (
        tiling.loop.rows * tiling.loop.workgroups < problem.batch * tiling.loop.parts, tiling.loop.workgroups)))


def _problem(cell: Cell, steps: int, batch: int, hidden: int) -> Problem:
    """A GRU has two meetings a step, as its reset gate is applied before the product."""
    sizes = {"T": steps, "B": batch, "I": _INPUTS, "H": hidden, "D": 1}
    fields = ("InputTensor", "WeightTensor", "RecurrenceTensor", "OutputSequenceTensor", "OutputSingleTensor")
    activations = [activation_table.BY_ONNX_NAME[name.lower()].desc() for name in cell.default_activations]
    return from_desc(cell.desc(**tensor_descs(cell, FLOAT32, sizes, fields), ActivationDescs=tuple(activations),
                               Direction=DML_RECURRENT_NETWORK_DIRECTION.FORWARD))


def _random_arrays(problem: Problem) -> Mapping[str, np.ndarray]:
    rng = np.random.default_rng(0)
    scales = {"InputTensor": 1.0, "WeightTensor": _INPUTS**-0.5, "RecurrenceTensor": problem.hidden**-0.5}
    return {field: (scale * rng.standard_normal(problem.tensor(field).sizes)).astype(np.float32)
            for field, scale in scales.items()}
