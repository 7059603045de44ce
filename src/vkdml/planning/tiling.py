"""Defines Target, a problem on a device, and Tiling, one way to run it: how kernels cut the problem, the sizes that follow, the
costs, and the dispatches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..operators.checks import ceil_div
from ..operators.element_types import ElementType
from ..operators.problem import Problem
from .device_info import DeviceInfo
from .dispatches import Dispatch
from .gpus import GpuRates
from .options import PERSISTENT, STEPPED, Options
from .profiles import DeviceProfile, gpu_rates, profile
from .size_classes import class_facts

PACKED_INPUT, PACKED_HIDDEN, GATES, STATE = "packed input weights", "packed recurrent weights", "gates", "state"
GAVE_UP = "gave up"

TimedDispatches = Iterator[tuple[Dispatch, float | None]]  # each with its seconds, or None if it starts no submission

_MOST_COUNTED_ROWS = 128  # most rows whose lengths the projection's tiles search, so that this takes little time
_VALID_STEPS = 0.75  # the share of T that rows have on average if lengths are given: a guess
_MOST_LOOPS = 40  # most loops in the code of a time step, where a loop counts each time that the step comes to it


@dataclass(frozen=True, eq=False)
class Target:
    """A problem on a device, with options, for which a plan is made. Targets are equal if their problems are of one size class,
    as these have the same tilings, except for T and B.

    may_wait: whether persistent tilings may be used without being forced. workspace_bytes: a bound besides that of the
    options if memory is short; it does not affect the choice of a tiling, so it changes no result. fastest: the tiling of the
    size class that was measured as the fastest. times: how many times as long as the model says steps and projections take.
    """

    problem: Problem
    info: DeviceInfo
    options: Options = Options()
    may_wait: bool = True
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
        """How many subgroups the device runs at once."""
        return self.profile.workers or self.info.cores

    @cached_property
    def lanes(self) -> int:
        """The subgroup size if shuffles replace loads, else 1.

        Only CPU drivers gain: their workgroup is one whole subgroup, and their loads are slow. A GPU reads shared memory
        faster, and may run a subgroup with fewer invocations than it reports. Kernels that shuffle are never persistent.
        """
        info, options = self.info, self.options
        possible = info.subgroup_shuffle and info.subgroup_size > 1 and not self.problem.element.pairs
        is_preferred = self.profile.prefers_shuffles and options.schedule != PERSISTENT
        wanted = is_preferred if options.lanes is None else options.lanes
        return info.subgroup_size if possible and wanted else 1

    @property
    def room(self) -> str:
        """The folder in shaders/ that has the kernels for this target."""
        return "float64" if self.problem.element.pairs else "cpu" if self.lanes > 1 else "gpu"


# How a kernel cuts its work

@dataclass(frozen=True)
class Packing:
    """How a matrix of weights is packed: W, or R. A load is 16 bytes of one gate of one unit."""

    element: ElementType
    loads: int     # loads in a row of the matrix, padded to whole blocks or arrays
    together: int  # units whose loads are interleaved, for a subgroup to read in order

    @property
    def columns(self) -> int:
        """How many columns the packed matrix has, with the padding."""
        return self.loads * self.element.columns_per_load


@dataclass(frozen=True, kw_only=True)
class KernelTiling:
    """One way to run a kernel. The rows of a tile share every weight that is loaded."""

    problem: Problem
    kernel: str             # the kernel's path in shaders/
    lanes: int = 1          # invocations of a subgroup, in the kernels that shuffle
    rows: int               # rows of a tile
    units_at_once: int = 1  # units that an invocation computes together
    workgroup: int          # invocations of a workgroup
    block_loads: int = 1    # loads of a gate's weights that make a block
    unrolled: bool = False  # whether the loads of a block are unrolled, in the kernels that shuffle
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
    hidden: Packing             # how the recurrent weights are packed
    shared_state: bool = False  # whether the state is in shared memory, not in a buffer
    chunk_steps: int = 1        # most time steps of a dispatch
    subgroup_size: int = 0      # the required size of subgroups; 0 leaves it to the driver
    coherent_polls: bool = False  # whether persistent parts poll by coherent loads, instead of volatile ones

    @property
    def tiles(self) -> int:
        """How many workgroups share the batch rows."""
        return ceil_div(self.problem.batch, self.rows)

    @property
    def workgroups(self) -> int:
        return self.problem.directions * self.tiles * self.parts

    @property
    def chunks(self) -> int:
        """How many dispatches run all steps, if each runs a chunk of them."""
        return ceil_div(self.problem.steps, self.chunk_steps)

    @property
    @abstractmethod
    def part_units(self) -> int:
        """How many units a part computes, rounded up to whole turns."""

    @property
    @abstractmethod
    def dispatches(self) -> int:
        """How many dispatches the time loop has, with those before and after the steps."""

    @property
    @abstractmethod
    def states_bytes(self) -> int:
        """Bytes of the states of all rows."""

    @property
    def buffers(self) -> dict[str, int]:
        """Bytes of the buffers that only the time loop uses, by name."""
        return {STATE: self.states_bytes}


@dataclass(frozen=True, kw_only=True)
class ProjectionTiling(KernelTiling):
    """One way to compute the input's part of all gates, before the time loop. A tile's rows are steps of batch rows."""

    group_units: int      # units of a workgroup
    input: Packing        # how the input weights are packed
    chunk_steps: int = 1  # most time steps of a dispatch

    @property
    def skips_padding(self) -> bool:
        """Whether tiles leave out steps past rows' ends, which they find in the lengths, row by row."""
        return self.problem.has("SequenceLengthsTensor") and self.problem.batch <= _MOST_COUNTED_ROWS

    @property
    def counted_rows(self) -> int:
        """How many rows' lengths a tile searches at most. Tilings are chosen for any batch."""
        return _MOST_COUNTED_ROWS if self.skips_padding else 0

    @property
    def turns(self) -> int:
        """How many times a workgroup multiplies its tile, each time with the weights of other units."""
        return self.group_units // (self.workgroup * self.units_at_once)

    @property
    def step_bytes(self) -> int:
        """Bytes of the projection of one time step."""
        return self.problem.directions * self.units * self.problem.batch * self.problem.element.real4_bytes

    @property
    def groups_of_units(self) -> int:
        return ceil_div(self.units, self.group_units)

    def tiles(self, steps: int) -> int:
        """How many tiles this many time steps make."""
        return ceil_div(steps * self.problem.batch, self.rows)


def even_rows(batch: int, most: Iterable[int]) -> list[int]:
    """List the numbers of rows that split the batch into even tiles. most: bounds on the rows of a tile."""
    return sorted({ceil_div(batch, ceil_div(batch, rows)) for rows in most})


# Upper bounds on the loop iterations of an invocation in one dispatch, as some drivers end all loops after a limit. The loops
# are those of shaders/, except the ones that drivers unroll

def masked(iterations: int, inner: int = _MOST_LOOPS) -> int:
    """Bound the iterations of code in which no invocation is active: some drivers run it, but check each loop only once.

    iterations: those of the code when active. inner: the most loops in it.
    """
    return min(iterations, inner)


def loops(times: int, body: int = 0, inner: int = _MOST_LOOPS) -> int:
    """Bound the iterations of a loop. body: those in its body, which the check that ends the loop runs once more, masked."""
    return times * (1 + body) + 1 + masked(body, inner)


def loops_of_state(loop: LoopTiling, units: int) -> int:
    """Bound the iterations over all rows of this many units of the state."""
    return loops(ceil_div(units, loop.workgroup), loops(loop.rows))


def loops_of_phases(loop: LoopTiling, phases: Sequence[int]) -> int:
    """Bound the iterations of a time step, given those of its phases, and of clearing outputs past rows' lengths."""
    step = 2 + sum(phases)
    return step + 1 + loops_of_state(loop, loop.part_units) if loop.problem.has("SequenceLengthsTensor") else step


def gates_of_phases(problem: Problem) -> list[int]:
    """List how many gates each phase multiplies: of two phases, the second has the last gate."""
    gates = problem.loop.products
    return [gates] if problem.loop.phases == 1 else [gates - 1, 1]


@dataclass(frozen=True)
class Tiling(ABC):
    """A time loop with its projection. Each family of kernels is a subclass, in a module of families/.

    input: how the input weights are packed. projection: None if the loop multiplies the input itself (fused).
    """

    loop: LoopTiling
    input: Packing
    projection: ProjectionTiling | None

    @property
    def problem(self) -> Problem:
        return self.loop.problem

    @property
    def buffers(self) -> dict[str, int]:
        """Bytes of the packed weights and of scratch, by buffer."""
        gates, real4 = len(self.problem.cell.gates), self.problem.element.real4_bytes
        units = self.problem.directions * self.loop.units
        has_peephole = self.problem.has("PeepholeTensor")
        sizes = {
            PACKED_INPUT: units * (self.input.loads * gates + 1) * real4,
            PACKED_HIDDEN: units * (self.loop.hidden.loads * self.problem.loop.products + 1 + has_peephole) * real4,
            **self.loop.buffers,
        }
        if self.projection:
            sizes[GATES] = self.projection.chunk_steps * self.projection.step_bytes
        return sizes

    # The tilings of a family

    @staticmethod
    @abstractmethod
    def whole_units(target: Target) -> int:
        """Return a number of which the invocations of each of the time loop's workgroups are a multiple."""

    @staticmethod
    @abstractmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        """Yield the tilings that the kernels allow, with a step a dispatch. Some may lack forced options or loop too long."""

    def fallbacks(self, target: Target) -> list[Tiling]:
        """List the tilings that can run if parts give up, with the same packed weights, projection and memory."""
        return []

    def fits_side_by_side(self, target: Target) -> bool:
        """Whether all workgroups surely run at once, as they must if they wait for each other."""
        return False

    # The model of costs, in seconds, which need only rank tilings

    @abstractmethod
    def step_estimate(self, target: Target) -> float:
        """Estimate the seconds of one time step, by the model alone."""

    @abstractmethod
    def projection_estimate(self, target: Target, steps: int) -> float:
        """Estimate the seconds of the projection of this many time steps, by the model alone."""

    def step_seconds(self, target: Target) -> float:
        """Estimate the seconds of one time step, scaled to measured times."""
        return target.times * self.step_estimate(target)

    def projection_seconds(self, target: Target, steps: int) -> float:
        """Estimate the seconds of the projection of this many time steps, scaled to measured times."""
        return target.times * self.projection_estimate(target, steps)

    def start_seconds(self, target: Target) -> float:
        """Estimate the seconds of a dispatch of the time loop besides its steps."""
        return 0.0

    def run_seconds(self, target: Target) -> float:
        """Estimate the seconds of an execution."""
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
        """Estimate the seconds of compiling that an execution is charged."""
        return self.loop.rows * self.loop.units_at_once * target.profile.compiling.row_of_unit

    def seconds(self, target: Target) -> float:
        """Estimate the seconds of an execution with its share of compiling, by which tilings are ranked."""
        return self.run_seconds(target) + self.compile_seconds(target)

    def most_steps(self, target: Target) -> int:
        """Return the most time steps of a dispatch that keeps to the time limit of a submission."""
        return int(target.profile.submission_seconds / self.step_seconds(target))

    # Bounds on loop iterations

    def loops_once(self) -> int:
        """Bound the iterations of a time loop's dispatch that do not grow with its steps and that not all families have."""
        return 0

    @abstractmethod
    def loops_of_step(self) -> int:
        """Bound the iterations of a time step, with those that clear outputs past rows' lengths."""

    @abstractmethod
    def loops_of_projection(self) -> int:
        """Bound the iterations of a dispatch of the projection: each of its workgroups has one tile."""

    def iterations(self, steps: int) -> int:
        """Bound the iterations of a dispatch of the time loop that runs this many steps."""
        return self._iterations_once + steps * self.loops_of_step()

    def steps_within(self, iterations: int) -> int:
        """Return how many time steps a dispatch may run within this many loop iterations; below 1 if not even one."""
        return (iterations - self._iterations_once) // self.loops_of_step()

    def has_iterations(self, most: int) -> bool:
        """Whether a time step, and a tile of the projection, need at most this many iterations."""
        return self.steps_within(most) >= 1 and (self.projection is None or self.loops_of_projection() <= most)

    @property
    def _iterations_once(self) -> int:
        """The iterations that do not grow with the steps. The loop's last check counts too, as a masked step."""
        loop = self.loop
        padding = loop.hidden.columns - loop.problem.hidden
        once = loops(loop.rows, loops(loop.rows)) + loops(loop.rows)  # sort and drop rows
        once += loops_of_state(loop, loop.part_units + padding) + loops_of_state(loop, loop.part_units)
        return once + self.loops_once() + masked(self.loops_of_step())

    # Dispatches

    def dispatched_tiles(self, steps: int) -> int:
        """Return how many tiles the projection of this many time steps dispatches. Some may have no rows and do nothing."""
        assert self.projection
        return self.projection.tiles(steps)

    @abstractmethod
    def dispatches(self, target: Target) -> TimedDispatches:
        """Make all dispatches of an execution, in order."""
