"""Trials: problems that run on buffers of their own, to time plans and to test them. One is the grid-sync test.

Vulkan does not promise that workgroups which wait for each other run at once, nor that each sees the others' stores. So the
persistent kernels of each cell are tested before their first use.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import InvalidArgumentError
from ...operators.activations import BY_ONNX_NAME, ParametrizedActivation
from ...operators.arguments import flat
from ...operators.cells import Cell
from ...operators.copy_problem import INDICES, GatherProblem
from ...operators.correctness import differences, encoded
from ...operators.element_types import FLOAT32, ElementType
from ...operators.plain_problem import MovedProblem, PlainProblem
from ...operators.problem import LENGTHS, Problem, problem_of
from ...planning.device_info import DeviceInfo
from ...planning.options import PERSISTENT, SEQUENCE, Options
from ...planning.plan import Measured, Plan, as_measured, best, described, plan_of, tilings
from ...planning.size_classes import Sizes
from ...planning.tiling import Target, Tiling
from ..commands import Attempts, Commands
from ..vulkan.gpu import Gpu
from ..vulkan.memory import COPIED, OWN, DeviceMemory, Kind


class Trial:
    """A problem's tensors, without gaps, in buffers. arrays: the inputs, by field; by default zeros, and lengths of T."""

    def __init__(self, gpu: Gpu, problem: Problem | PlainProblem, arrays: Mapping[str, np.ndarray] = {}) -> None:
        self.gpu, self.problem = gpu, problem
        inputs, outputs = ([field for field in fields if problem.has(field)] for fields in (problem.inputs, problem.outputs))
        gpu.memory.free(sum(gpu.bytes_of(problem.tensor(field).size_in_bytes, COPIED) for field in (*inputs, *outputs)))
        self.buffers = gpu.made(lambda: {
            field: DeviceMemory(gpu, problem.tensor(field).size_in_bytes) for field in (*inputs, *outputs)})
        if isinstance(problem, Problem) and problem.has("SequenceLengthsTensor"):
            self.buffers["SequenceLengthsTensor"]._put(np.full(problem.batch, problem.steps, np.uint32))
        uploads = Commands(gpu)
        for field in inputs:
            if field in arrays:
                self.buffers[field]._put(flat(arrays[field]))
            uploads.upload(self.buffers[field])
        uploads.execute()
        self._readbacks = Commands(gpu)
        for field in outputs:
            self._readbacks.readback(self.buffers[field])

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the bytes of the outputs, by field."""
        self._readbacks.execute()
        return {field: self.buffers[field]._take((self.buffers[field].size_in_bytes,), np.uint8)
                for field in self.problem.outputs if field in self.buffers}


class Run:
    """Runs a trial's problem with a plan, any number of times. It packs the weights once."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        gpu, sizes = trial.gpu, plan.buffers.items()
        kinds: dict[str, Kind] = {name: COPIED if name == plan.timed_out else OWN for name in plan.buffers}
        gpu.memory.free(sum(gpu.bytes_of(size, kinds[name]) for name, size in sizes))
        own = gpu.made(lambda: {name: DeviceMemory(gpu, size, kinds[name]) for name, size in sizes})
        buffers = {**trial.buffers, **own}
        packing = Commands(gpu)
        packing.record(plan.initialize, buffers)
        packing.execute()
        self._attempts = Attempts()
        self._commands = Commands(gpu)
        self._commands.execution(plan, buffers, self._attempts)

    def execute(self) -> float:
        """Run the plan once. Return the seconds that took. Raises DriverError when the driver fails."""
        begin = time.perf_counter()
        self._commands.execute()
        return time.perf_counter() - begin

    @property
    def timeouts(self) -> int:
        """The number of executions that gave up."""
        return self._attempts.timeouts


_MOST_RANDOM = 2**20 - 3  # random numbers of a tensor; more repeat them

# The grid-sync test. All its problems have one H, the first for which the device has room, so that they share kernels
_HIDDEN, _INPUTS = (256, 128, 64), 16


@dataclass(frozen=True)
class GridSync:
    """The persistent kernels that a grid-sync test is about. subgroup_size, coherent_polls: as in LoopTiling."""

    cell: Cell
    subgroup_size: int = 0
    coherent_polls: bool = False

    @staticmethod
    def of(tiling: Tiling) -> GridSync:
        return GridSync(tiling.problem.cell, tiling.loop.subgroup_size, tiling.loop.coherent_polls)

    @property
    def facts(self) -> dict[str, Any]:
        """The key under which the result of the test is kept."""
        return {"persistent": self.cell.name, "subgroup size": self.subgroup_size, "coherent polls": self.coherent_polls}


# The test's problems and how often each runs: few steps; several tiles on as many workgroups as fit; and very many steps, as
# failures may be rare. The first problem's time decides how long the dispatches of the others are
_RUNS = {Sizes(240, 1): 7, Sizes(24, 128): 7, Sizes(5000, 1): 1}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a grid-sync test: whether workgroups may wait for each other, and the reason in words."""

    passed: bool
    found: str


SAME_BITS = Verdict(True, "the bits of single workgroups")
# Vulkan lets a driver fuse multiplications with additions in one pipeline, and not in another
OTHER_BITS = Verdict(True, "other bits than those of single workgroups, the same in each run, and right numbers")
CHANGING_BITS = Verdict(False, "bits that change from run to run, of right numbers")
GAVE_UP = Verdict(False, "workgroups that waited in vain")
NONE_MAY_WAIT = Verdict(False, "no plan in which they may wait")


def grid_sync_test(gpu: Gpu, sync: GridSync) -> Verdict:
    """Test whether workgroups may wait for each other: none gives up, numbers are right, and each run gives the same bits.

    Raises DriverError when the driver fails, which says nothing about waiting.
    """
    gpu.compile(plans_of_test(gpu.info, sync))
    measured: Measured | None = None
    verdict = NONE_MAY_WAIT
    for problem, runs in zip(_problems(gpu.info, sync), _RUNS.values()):
        verdict, found = _tried(gpu, problem, sync, runs, measured, verdict)
        if not verdict.passed:
            break
        measured = measured or found
    return verdict


def plans_of_test(info: DeviceInfo, sync: GridSync) -> Iterator[Plan]:
    """Yield the plans that a grid-sync test runs, before any time is measured."""
    for problem in _problems(info, sync):
        yield from filter(None, (_persistent(info, problem, sync), _alone(info, problem)))


def _problems(info: DeviceInfo, sync: GridSync) -> list[Problem]:
    """Return the test's problems; none if no kernel of this cell may wait on this device."""
    for hidden in _HIDDEN:
        # Without the flag LinearBeforeReset, so that a GRU's workgroups wait twice a step
        letters, fields = {"I": _INPUTS, "H": hidden, "D": 1}, [*sync.cell.required, *sync.cell.outputs]
        problems = [forward_problem(sync.cell, FLOAT32, {"T": t, "B": b, **letters}, fields, {}) for t, b in _RUNS]
        if all(_persistent(info, problem, sync) for problem in problems):
            return problems
    return []


def _tried(gpu: Gpu, problem: Problem, sync: GridSync, runs: int, measured: Measured | None, before: Verdict
           ) -> tuple[Verdict, Measured | None]:
    """Return the verdict on one problem and, if it passes, the least seconds of a step.

    measured: the time of a step of the first problem. before: the verdict on the problems before. All have the same pipelines,
    so either all give the bits of single workgroups or none does.
    """
    persistent = _persistent(gpu.info, problem, sync, measured)
    assert persistent
    assert persistent.tiling
    memory = random_memory(problem)
    alone, together = (Trial(gpu, problem, memory) for _ in range(2))
    Run(alone, _alone(gpu.info, problem)).execute()
    expected = _bytes(alone)
    run, least, verdict = Run(together, persistent), float("inf"), before
    first: list[bytes] = []
    for _ in range(runs):
        least = min(least, run.execute())
        if run.timeouts:
            return GAVE_UP, None
        found = _bytes(together)
        if found not in (expected, first) and (wrong := differences(problem, {**memory, **together.outputs()})):
            return Verdict(False, f"wrong numbers: {wrong[0]}"), None
        first = first or found
        now = SAME_BITS if found == expected else OTHER_BITS
        if found != first or verdict not in (NONE_MAY_WAIT, now):
            return CHANGING_BITS, None
        verdict = now
    return verdict, Measured(described(persistent.tiling), least / problem.steps)


def _bytes(trial: Trial) -> list[bytes]:
    return [array.tobytes() for array in trial.outputs().values()]


def _alone(info: DeviceInfo, problem: Problem) -> Plan:
    target = Target(problem, info, Options(schedule=SEQUENCE, rows=1))
    return plan_of(target, best(target))


def _persistent(info: DeviceInfo, problem: Problem, sync: GridSync, measured: Measured | None = None) -> Plan | None:
    """Return the persistent plan with the most workgroups, of those that may be chosen; None if none may."""
    target = as_measured(Target(problem, info, Options(schedule=PERSISTENT, rows=1)), measured)
    try:
        found = [tiling for tiling in tilings(target)
                 if tiling.loop.subgroup_size == sync.subgroup_size and tiling.fits_side_by_side(target)]
    except InvalidArgumentError:
        return None
    if not found:
        return None
    most = max(found, key=lambda tiling: tiling.loop.workgroups)
    return plan_of(target, replace(most, loop=replace(most.loop, coherent_polls=sync.coherent_polls)))


def forward_problem(cell: Cell, element: ElementType, letters: Mapping[str, int], fields: Collection[str],
                    flags: Mapping[str, bool], reverse: tuple[bool, ...] = (False,)) -> Problem:
    """Return a problem of these sizes with the cell's default activations. fields: its tensors."""
    activations = [ParametrizedActivation(BY_ONNX_NAME[name.lower()]) for name in cell.default_activations]
    return problem_of(cell, element, letters, fields, activations, flags, reverse)


def random_memory(problem: Problem | PlainProblem) -> dict[str, np.ndarray]:
    """Return the bytes of random inputs, by field: numbers of about unit size, and weights that keep sums at that size."""
    rng = np.random.default_rng(0)
    memory = {}
    for field in filter(problem.has, problem.inputs):
        count = problem.tensor(field).size_of_elements
        if isinstance(problem, Problem) and field == LENGTHS:
            lengths = np.append((problem.steps, 0), rng.integers(0, problem.steps + 1, count))
            memory[field] = lengths[:count].astype(np.uint32).view(np.uint8)
        elif isinstance(problem, GatherProblem) and field == INDICES:
            least = -problem.axis_size if problem.index_dtype.kind == "i" else 0
            memory[field] = rng.integers(least, problem.axis_size, count).astype(problem.index_dtype).view(np.uint8)
        elif isinstance(problem, MovedProblem):
            memory[field] = rng.integers(0, 256, problem.tensor(field).size_in_bytes, np.uint8)
        else:
            scale = problem.tensor(field).sizes[-1]**-0.5 if field in problem.weights else 1.0
            numbers = np.resize(scale * rng.standard_normal(min(count, _MOST_RANDOM)), count)
            memory[field] = encoded(numbers, problem.input_element)
    return memory
