"""What a plan is made for (Target), and a way to run it (Tiling): how kernels cut a problem on a device, the sizes that follow,
and all that a family of kernels has to say of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..operators.element_types import ElementType
from ..operators.problem import Problem
from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .dispatches import Dispatch
from .gpus import GpuRates
from .options import PERSISTENT, STEPPED, Options
from .profiles import DeviceProfile, gpu_rates, profile
from .size_classes import class_facts

PACKED_INPUT, PACKED_HIDDEN, GATES, STATE = "packed input weights", "packed recurrent weights", "gates", "state"
MEETING = "meeting"

TimedDispatches = Iterator[tuple[Dispatch, float | None]]  # with seconds, or None for one that starts no submission

MOST_COUNTED_ROWS = 128  # so that finding the steps of all rows takes little
_VALID_STEPS = 0.75  # of a row, where lengths are given: a guess
_MOST_LOOPS = 40  # in the code of a time step, each as often as the step comes to it


@dataclass(frozen=True, eq=False)
class Target:
    """What a plan is made for: a problem on a device, with its profile and options. Targets are equal if their problems are of
    one size class, so that they have the same tilings, but for T and B.

    without: meetings that persistent tilings must not use unless they are forced. workspace_bytes: a bound beside that of the
    options, where memory is short; it has no part in the choice of a tiling, so it changes no result. fastest: the tiling of
    the size class that was measured as the fastest. times: steps and projections take so many times as long as the model says.
    """

    problem: Problem
    info: DeviceInfo
    options: Options = Options()
    without: frozenset[str] = frozenset()
    workspace_bytes: int | None = None
    fastest: Tiling | None = None
    times: float = 1.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return (self.info, self.options, self.profile, *class_facts(self.problem).values())

    @cached_property
    def profile(self) -> DeviceProfile:
        return profile(self.info)

    @cached_property
    def gpu(self) -> GpuRates:
        """The rates for kernels for GPUs, which CPU drivers may run too."""
        return gpu_rates(self.info)

    @property
    def workers(self) -> int:
        """Number of subgroups that run side by side."""
        return self.profile.workers or self.info.cores

    @cached_property
    def lanes(self) -> int:
        """The subgroup size where shuffles replace loads, else 1.

        Only CPU drivers gain: their workgroup is one whole subgroup, and loads are what they are slow at. A GPU reads shared
        memory faster, and may run a subgroup with fewer invocations than it reports. Kernels that shuffle are never persistent.
        """
        info, options = self.info, self.options
        possible = info.subgroup_shuffle and info.subgroup_size > 1 and not self.problem.element.pairs
        is_preferred = self.profile.prefers_shuffles and options.schedule != PERSISTENT
        wanted = is_preferred if options.lanes is None else options.lanes
        return info.subgroup_size if possible and wanted else 1

    @property
    def room(self) -> str:
        """The room in shaders/ with the kernels for it."""
        return "float64" if self.problem.element.pairs else "cpu" if self.lanes > 1 else "gpu"


# How a kernel cuts its work

@dataclass(frozen=True)
class Packing:
    """How a matrix of weights is packed: W, or R. A load is 16 bytes of one gate of one unit."""

    element: ElementType
    loads: int     # of a row of the matrix, padded to whole blocks or arrays
    together: int  # units that lie together: what a subgroup reads one after the other

    @property
    def columns(self) -> int:
        """Number of columns, with the padding."""
        return self.loads * self.element.columns_per_load


@dataclass(frozen=True, kw_only=True)
class KernelTiling:
    """One way to run a kernel. A tile is so many rows, which share every weight that is loaded."""

    problem: Problem
    kernel: str             # its path in shaders/
    lanes: int = 1          # invocations of a subgroup, in the kernels that shuffle
    rows: int               # of a tile
    units_at_once: int = 1  # that an invocation computes together
    workgroup: int          # invocations
    block_loads: int = 1    # loads of weights for a gate that belong together
    unrolled: bool = False  # in the kernels that shuffle: those loads stand one after the other, not in a loop
    units: int              # H, rounded up to whole turns of the time loop's workgroups

    @property
    def constants(self) -> dict[str, int]:
        """Specialization constants that only this kernel has."""
        return {}


@dataclass(frozen=True, kw_only=True)
class LoopTiling(KernelTiling, ABC):
    """One way to run the time loop. A tile's rows are batch rows."""

    schedule: str
    parts: int                  # workgroups that share a tile's units
    hidden: Packing              # of the recurrent weights
    shared_state: bool = False  # the state is in shared memory, not in a buffer
    chunk_steps: int = 1        # most time steps of a dispatch
    meeting: str | None = None  # how parts wait for each other, if they do
    subgroup_size: int = 0      # that is asked for; 0 leaves it to the driver

    @property
    def tiles(self) -> int:
        """Number of workgroups that share the rows."""
        return ceil_div(self.problem.batch, self.rows)

    @property
    def workgroups(self) -> int:
        return self.problem.directions * self.tiles * self.parts

    @property
    def chunks(self) -> int:
        """Number of dispatches that run all steps, where each has several."""
        return ceil_div(self.problem.steps, self.chunk_steps)

    @property
    @abstractmethod
    def part_units(self) -> int:
        """Units of a part, whole turns."""

    @property
    @abstractmethod
    def dispatches(self) -> int:
        """Number of dispatches, with what comes before and after the steps."""

    @property
    @abstractmethod
    def states_bytes(self) -> int:
        """Bytes of the states of all rows."""

    @property
    def buffers(self) -> dict[str, int]:
        """Bytes of the buffers that only the loop has, by name."""
        return {STATE: self.states_bytes}


@dataclass(frozen=True, kw_only=True)
class ProjectionTiling(KernelTiling):
    """One way to compute the input's part of all gates, before the time loop. A tile's rows are steps of batch rows."""

    group_units: int      # units of a workgroup
    input: Packing         # of the input weights
    chunk_steps: int = 1  # most time steps of a dispatch

    @property
    def skips_padding(self) -> bool:
        """Whether tiles hold only steps that rows have, which they look for in the lengths, row by row."""
        return self.problem.has("SequenceLengthsTensor") and self.problem.batch <= MOST_COUNTED_ROWS

    @property
    def step_bytes(self) -> int:
        """Bytes of the result for one time step."""
        return self.problem.directions * self.units * self.problem.batch * self.problem.element.real4_bytes

    @property
    def groups_of_units(self) -> int:
        return ceil_div(self.units, self.group_units)

    def tiles(self, steps: int) -> int:
        """Number of tiles of so many time steps."""
        return ceil_div(steps * self.problem.batch, self.rows)


def even_rows(batch: int, most: Iterable[int]) -> list[int]:
    """Rows of a tile that share the batch out evenly, for each number that a tile has at most."""
    return sorted({ceil_div(batch, ceil_div(batch, rows)) for rows in most})


# A bound on the loop iterations of an invocation in one dispatch, never too small: some drivers end all loops after a limit.
# The loops are those of shaders/, but for the ones that drivers unroll

def masked(iterations: int, inner: int = _MOST_LOOPS) -> int:
    """Iterations of code with so many, where no invocation of a subgroup is active: some drivers run it all the same, but each
    loop in it for its first check alone. inner: how many loops are in it, at most.
    """
    return min(iterations, inner)


def loops(times: int, body: int = 0, inner: int = _MOST_LOOPS) -> int:
    """Iterations of a loop whose body has so many. The check that ends the loop goes through the body once more, masked."""
    return times * (1 + body) + 1 + masked(body, inner)


def loops_of_state(loop: LoopTiling, units: int) -> int:
    """Iterations over all rows of so many units."""
    return loops(ceil_div(units, loop.workgroup), loops(loop.rows))


def loops_of_phases(loop: LoopTiling, phases: Sequence[int]) -> int:
    """Iterations of a time step with these phases, and of the loop that clears outputs past rows' lengths."""
    step = 2 + sum(phases)
    return step + 1 + loops_of_state(loop, loop.part_units) if loop.problem.has("SequenceLengthsTensor") else step


def gates_of_phases(problem: Problem) -> list[int]:
    """Number of gates that each phase multiplies: of two phases, the second has the last gate."""
    gates = len(problem.cell.gates)
    return [gates] if problem.loop.phases == 1 else [gates - 1, 1]


@dataclass(frozen=True)
class Tiling(ABC):
    """A time loop with its projection. A family of kernels is a class of these, in a module of families/.

    projection: None where the loop multiplies the input itself (fused).
    """

    loop: LoopTiling
    input: Packing
    projection: ProjectionTiling | None

    @property
    def problem(self) -> Problem:
        return self.loop.problem

    @property
    def internal(self) -> dict[str, int]:
        """Bytes of the buffers that are not the user's."""
        gates, real4 = len(self.problem.cell.gates), self.problem.element.real4_bytes
        units = self.problem.directions * self.loop.units
        has_peephole = self.problem.has("PeepholeTensor")
        sizes = {
            PACKED_INPUT: units * (self.input.loads * gates + 1) * real4,
            PACKED_HIDDEN: units * (self.loop.hidden.loads * gates + 1 + has_peephole) * real4,
            **self.loop.buffers,
        }
        if self.projection:
            sizes[GATES] = self.projection.chunk_steps * self.projection.step_bytes
        return sizes

    # Which there are

    @staticmethod
    @abstractmethod
    def whole_units(target: Target) -> int:
        """The number of invocations that each workgroup of the time loop has a multiple of."""

    @staticmethod
    @abstractmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        """All that its kernels allow, of dispatches of one time step. Some may have too many loop iterations, or not all that
        the options force.
        """

    def fallbacks(self, target: Target) -> list[Tiling]:
        """What can run where parts do not meet, with the same packed weights and projection, and in the same memory."""
        return []

    def fits_side_by_side(self, target: Target) -> bool:
        """Whether all workgroups surely run at once. Asked of those that wait for each other."""
        return False

    # What it takes, in seconds: a model that need only rank tilings

    @abstractmethod
    def step_estimate(self, target: Target) -> float:
        """Seconds of one time step, by the model alone."""

    @abstractmethod
    def projection_estimate(self, target: Target, steps: int) -> float:
        """Seconds of the projection of so many time steps, by the model alone."""

    def step_seconds(self, target: Target) -> float:
        """Seconds of one time step."""
        return target.times * self.step_estimate(target)

    def projection_seconds(self, target: Target, steps: int) -> float:
        """Seconds of the projection of so many time steps."""
        return target.times * self.projection_estimate(target, steps)

    def start_seconds(self, target: Target) -> float:
        """Seconds of a dispatch of the time loop beside its steps."""
        return 0.0

    def run_seconds(self, target: Target) -> float:
        """Seconds of an execution."""
        loop, projection, steps, rates = self.loop, self.projection, self.problem.steps, target.profile.rates
        total = steps * self.step_seconds(target) + loop.chunks * self.start_seconds(target)
        dispatches = loop.dispatches
        if projection:
            share = _VALID_STEPS if projection.skips_padding else 1
            total += share * self.projection_seconds(target, steps)
            dispatches += ceil_div(steps, projection.chunk_steps)
        if loop.parts > 1 or projection:
            total += rates.second_worker
        if loop.schedule == STEPPED:
            total += (dispatches - 2) * rates.late_worker
        return total + rates.submission + dispatches * rates.dispatch

    def compile_seconds(self, target: Target) -> float:
        """The share of compiling that an execution is charged."""
        return self.loop.rows * self.loop.units_at_once * target.profile.compiling.row_of_unit

    def seconds(self, target: Target) -> float:
        """Seconds of an execution with its share of compiling, by which tilings are ranked."""
        return self.run_seconds(target) + self.compile_seconds(target)

    def most_steps(self, target: Target) -> int:
        """Most time steps of a dispatch that takes no longer than it may."""
        return int(target.profile.submission_seconds / self.step_seconds(target))

    # What it takes, in loop iterations

    def loops_once(self) -> int:
        """Iterations of a dispatch of the time loop that do not grow with its steps, beside those of all families."""
        return 0

    @abstractmethod
    def loops_of_step(self) -> int:
        """Iterations of a time step, with those that clear outputs past rows' lengths."""

    @abstractmethod
    def loops_of_projection(self) -> int:
        """Iterations of a dispatch of the projection: each of its workgroups has one tile."""

    def iterations(self, steps: int) -> int:
        """Loop iterations of a dispatch of the time loop that runs so many steps."""
        return self._iterations_once + steps * self.loops_of_step()

    def steps_within(self, iterations: int) -> int:
        """Time steps that a dispatch of so many loop iterations may run; below 1 where not even one is within them."""
        return (iterations - self._iterations_once) // self.loops_of_step()

    def has_iterations(self, most: int) -> bool:
        """Whether a time step, and a tile of the projection, is within so many."""
        return self.steps_within(most) >= 1 and (self.projection is None or self.loops_of_projection() <= most)

    @property
    def _iterations_once(self) -> int:
        """Iterations that do not grow with the steps: those of the loop's last check too, which is a masked step."""
        loop = self.loop
        padding = loop.hidden.columns - loop.problem.hidden
        once = loops(loop.rows, loops(loop.rows)) + loops(loop.rows)  # the rows' order, and finished ones dropped
        once += loops_of_state(loop, loop.part_units + padding) + loops_of_state(loop, loop.part_units)  # begin and end
        return once + self.loops_once() + masked(self.loops_of_step())

    # What runs

    def dispatched_tiles(self, steps: int) -> int:
        """Tiles of a dispatch of the projection for so many time steps. There may be more than have rows; those do nothing."""
        assert self.projection
        return self.projection.tiles(steps)

    @abstractmethod
    def dispatches(self, target: Target) -> TimedDispatches:
        """All dispatches of an execution, in order."""
