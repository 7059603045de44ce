"""A way to run a problem on a device: how its kernels cut the work, the sizes that follow, and all that a family of kernels has
to say of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..operators.element_types import ElementType
from ..operators.problem import Problem
from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .dispatches import Dispatch
from .gpus import GpuRates
from .options import PERSISTENT, Options
from .profiles import gpu_rates, profile

PACKED_INPUT, PACKED_HIDDEN, GATES, STATE = "packed input weights", "packed recurrent weights", "gates", "state"
MEETING = "meeting"

TimedDispatches = Iterator[tuple[Dispatch, float | None]]  # with seconds, or None for one that starts no submission

MOST_COUNTED_ROWS = 128  # so that finding the steps of all rows takes little


# What plans are made for

class Machine:
    """A device with what its profile says of it, looked up once."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info, self.profile = info, profile(info)
        self.workers = self.profile.workers or info.cores

    @cached_property
    def gpu(self) -> GpuRates:
        """The rates for kernels for GPUs, which CPU drivers may run too."""
        return gpu_rates(self.info)


@dataclass(frozen=True)
class Target:
    """A problem on a machine, with options that are checked."""

    problem: Problem
    machine: Machine
    options: Options

    @cached_property
    def lanes(self) -> int:
        """The subgroup size where shuffles replace loads, else 1.

        Only CPU drivers gain: their workgroup is one whole subgroup, and loads are what they are slow at. A GPU reads shared
        memory faster, and may run a subgroup with fewer invocations than it reports. Kernels that shuffle are never persistent.
        """
        info, options = self.machine.info, self.options
        possible = info.subgroup_shuffle and info.subgroup_size > 1 and not self.problem.element.pairs
        is_preferred = self.machine.profile.prefers_shuffles and options.schedule != PERSISTENT
        wanted = is_preferred if options.lanes is None else options.lanes
        return info.subgroup_size if possible and wanted else 1


# How a kernel cuts its work

@dataclass(frozen=True)
class Layout:
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
    hidden: Layout              # of the recurrent weights
    shared_state: bool = False  # the state is in shared memory, not in a buffer
    chunk_steps: int = 1        # most time steps of a dispatch
    meeting: str | None = None  # how parts wait for each other, if they do

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
        """How many there are, with what comes before and after the steps."""

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
    input: Layout         # of the input weights
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

    def dispatched_tiles(self, steps: int) -> int:
        """The same number, or a larger one where the tiles beyond have nothing to do."""
        return self.tiles(steps)


def even_rows(batch: int, most: Iterable[int]) -> list[int]:
    """Rows of a tile that share the batch out evenly, for each number that a tile has at most."""
    return sorted({ceil_div(batch, ceil_div(batch, rows)) for rows in most})


# A bound on the loop iterations of an invocation in one dispatch, never too small: some drivers end all loops after a limit.
# The loops are those of shaders/, but for the ones that drivers unroll

@dataclass(frozen=True)
class Loops:
    """Iterations of loops, one after the other.

    masked: iterations counted even if no invocation of the subgroup is active: drivers that mask run the code all the same.
    """

    run: int = 0
    masked: int = 0

    def __add__(self, other: Loops) -> Loops:
        return Loops(self.run + other.run, self.masked + other.masked)

    def __rmul__(self, count: int) -> Loops:
        return Loops(count * self.run, count * self.masked)


NONE = Loops()


def loops(times: int, body: Loops = NONE) -> Loops:
    """Iterations of a loop. The check that ends it goes through the body once more, masked."""
    return Loops(times * (1 + body.run) + 1 + body.masked, 1 + body.masked)


def loops_of_state(loop: LoopTiling, units: int) -> Loops:
    """Iterations over all rows of so many units."""
    return loops(ceil_div(units, loop.workgroup), loops(loop.rows))


def loops_of_phases(loop: LoopTiling, phases: Sequence[Loops]) -> Loops:
    """An iteration of the loop over steps, and of the one that clears outputs past rows' lengths."""
    step = sum(phases, Loops(1, 1)) + loops(0)
    has_lengths = loop.problem.has("SequenceLengthsTensor")
    return step + Loops(1, 1) + loops_of_state(loop, loop.part_units) if has_lengths else step


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
    input: Layout
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
        """All that its kernels allow, of dispatches of one time step. Some may have too many loop iterations."""

    def fallbacks(self, options: Options, machine: Machine) -> list[Tiling]:
        """What can run where parts do not meet, with the same packed weights and projection, and in the same memory."""
        return []

    def fits_side_by_side(self, machine: Machine) -> bool:
        """Whether all workgroups surely run at once. Asked of those that wait for each other."""
        return False

    # What it takes. Seconds are the model's

    @abstractmethod
    def step_seconds(self, machine: Machine) -> float:
        """Seconds of one time step."""

    def start_seconds(self, machine: Machine) -> float:
        """Seconds of a dispatch of the time loop beside its steps."""
        return 0.0

    @abstractmethod
    def projection_seconds(self, machine: Machine, steps: int) -> float:
        """Seconds of the projection of so many time steps."""

    def compile_seconds(self, machine: Machine) -> float:
        """The share of compiling that an execution is charged."""
        return self.loop.rows * self.loop.units_at_once * machine.profile.compiling.row_of_unit

    def most_steps(self, machine: Machine, step_seconds: float) -> int:
        """Most time steps of a dispatch that takes no longer than it may."""
        return int(machine.profile.submission_seconds / step_seconds)

    def loops_once(self) -> Loops:
        """Iterations of a dispatch of the time loop that do not grow with its steps, beside those of all families."""
        return NONE

    @abstractmethod
    def loops_of_step(self) -> Loops:
        """Iterations of a time step, with those that clear outputs past rows' lengths."""

    @abstractmethod
    def loops_of_projection(self) -> Loops:
        """Iterations of a dispatch of the projection: each of its workgroups has one tile."""

    def iterations(self, steps: int) -> int:
        """Loop iterations of a dispatch of the time loop that runs so many steps."""
        return self._iterations_once + steps * self.loops_of_step().run

    def steps_within(self, iterations: int) -> int:
        """Time steps that a dispatch of so many loop iterations may run; below 1 where not even one is within them."""
        return (iterations - self._iterations_once) // self.loops_of_step().run

    def has_iterations(self, most: int) -> bool:
        """Whether a time step, and a tile of the projection, is within so many."""
        return self.steps_within(most) >= 1 and (self.projection is None or self.loops_of_projection().run <= most)

    @property
    def _iterations_once(self) -> int:
        """Iterations that do not grow with the steps: the last checks of the steps' loops too."""
        loop = self.loop
        padding = loop.hidden.columns - loop.problem.hidden
        once = loops(loop.rows, loops(loop.rows)) + loops(loop.rows)  # the rows' order, and finished ones dropped
        once += loops_of_state(loop, loop.part_units + padding) + loops_of_state(loop, loop.part_units)  # begin and end
        return (once + self.loops_once()).run + self.loops_of_step().masked

    # What runs

    @abstractmethod
    def dispatches(self, step_seconds: float, projection_seconds: Callable[[int], float]) -> TimedDispatches:
        """All dispatches of an execution, in order. step_seconds: of a time step; projection_seconds: of so many of them."""
