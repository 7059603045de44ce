"""How a problem is cut, and the sizes that follow. Pure; `candidates` makes tilings and chooses among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..spec.element_types import ElementType
from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, round_up
from .profiles import LANES, RESIDENT

PACKED_INPUT, PACKED_HIDDEN, GATES, STATE = "packed input weights", "packed recurrent weights", "gates", "state"
MEETING = "meeting"

# Columns of one private array, by kernel; the others have none
ARRAY_COLUMNS = {RESIDENT: 32}
_RESIDENT_SHARED_SLOTS = 2  # the third is better used for more rows
MOST_COUNTED_ROWS = 128  # so that finding the steps of all rows takes little


@dataclass(frozen=True)
class Layout:
    """How a matrix of weights is packed: W, or R. A load is 16 bytes of one gate of one unit."""

    element: ElementType
    loads: int     # of a row of the matrix, padded to whole blocks or arrays
    together: int  # units that lie together: what a subgroup reads one after the other

    @property
    def columns(self) -> int:
        """Of a row, with its padding."""
        return self.loads * self.element.columns_per_load


@dataclass(frozen=True, kw_only=True)
class KernelTiling:
    """One way to run a kernel. A tile is so many rows, which share every weight that is loaded."""

    problem: Problem
    kernel: str         # one of those in `profiles`
    lanes: int          # invocations of a subgroup, in the kernels that shuffle; 1 in the others
    rows: int           # of a tile
    units_at_once: int  # that an invocation computes together
    workgroup: int      # invocations
    block_loads: int    # loads of weights for a gate that belong together
    unrolled: bool      # in the lanes kernels: those loads stand one after the other, not in a loop
    units: int          # H, rounded up to whole turns of the time loop's workgroups


@dataclass(frozen=True, kw_only=True)
class LoopTiling(KernelTiling):
    """Of the time loop. A tile's rows are batch rows."""

    schedule: str
    parts: int                  # workgroups that share a tile's units
    hidden: Layout              # of the recurrent weights
    spins: int = 0              # bound on the slow waiting of persistent parts
    shared_state: bool = False  # the state is in shared memory, not in a buffer
    chunk_steps: int = 1        # most time steps of a dispatch
    # Of kernels for GPUs (gpu_loop.py)
    meeting: str | None = None  # how persistent parts wait for each other
    register_loads: int = 0     # of weights that stay in registers
    shared_loads: int = 0       # and in shared memory

    @property
    def most_flow_steps(self) -> int:
        """Of a dispatch, where it has words for each step."""
        return 2**31

    @property
    def meeting_bytes(self) -> int:
        """Of a buffer by which parts meet, where they have one of its own."""
        return 0

    @property
    def tiles(self) -> int:
        return ceil_div(self.problem.batch, self.rows)

    @property
    def turn_units(self) -> int:
        """Units that a workgroup computes at once."""
        return self.workgroup * self.units_at_once

    @property
    def part_units(self) -> int:
        """Units of a part, whole turns."""
        return ceil_div(self.units // self.turn_units, self.parts) * self.turn_units

    @property
    def workgroups(self) -> int:
        return self.problem.directions * self.tiles * self.parts

    @property
    def resident_products(self) -> int:
        """Of an invocation of the resident kernels, for a row."""
        return self.hidden.columns * self.units_at_once * len(self.problem.cell.gates)

    @property
    def shared_slots(self) -> int:
        """Vectors of the state that may be in shared memory."""
        slots = self.problem.loop.slots
        return min(slots, _RESIDENT_SHARED_SLOTS) if self.kernel == RESIDENT else slots

    @property
    def shared_bytes(self) -> int:
        return self.shared_slots * self._slot_bytes

    @property
    def _slot_bytes(self) -> int:
        element = self.problem.element
        return self.rows * self.hidden.loads * element.vecs_per_load * element.real4_bytes

    @property
    def states_bytes(self) -> int:
        """Of the states of all tiles."""
        return self.problem.loop.slots * self._slot_bytes * self.problem.directions * self.tiles


@dataclass(frozen=True, kw_only=True)
class ProjectionTiling(KernelTiling):
    """Of the projection: the input's part of all gates, before the time loop. A tile's rows are steps of batch rows."""

    group_units: int      # units of a workgroup
    input: Layout         # of the input weights
    chunk_steps: int = 1  # most time steps of a dispatch

    @property
    def skips_padding(self) -> bool:
        """Whether tiles hold only steps that rows have, which they look for in the lengths, row by row."""
        return self.problem.has("SequenceLengthsTensor") and self.problem.batch <= MOST_COUNTED_ROWS

    @property
    def step_bytes(self) -> int:
        """Of the result for one time step."""
        return self.problem.directions * self.units * self.problem.batch * self.problem.element.real4_bytes

    @property
    def groups_of_units(self) -> int:
        return ceil_div(self.units, self.group_units)

    def tiles(self, steps: int) -> int:
        """Of so many time steps."""
        return ceil_div(steps * self.problem.batch, self.rows)


@dataclass(frozen=True)
class Tiling:
    """One way to run a problem. projection: None where the loop multiplies the input itself (fused)."""

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
            STATE: self.loop.states_bytes,
        }
        if self.loop.meeting_bytes:
            sizes[MEETING] = self.loop.meeting_bytes
        if self.projection:
            sizes[GATES] = self.projection.chunk_steps * self.projection.step_bytes
        return sizes


def even_rows(batch: int, most: Iterable[int]) -> list[int]:
    """Rows of a tile that share the batch out evenly, for each number that a tile has at most."""
    return sorted({ceil_div(batch, ceil_div(batch, rows)) for rows in most})


def block_loads(element: ElementType, lanes: int) -> int:
    """Loads of weights for a gate that belong together: those of a vec4 of each lane."""
    return max(1, lanes // element.vecs_per_load)


def hidden_layout(problem: Problem, kernel: str, lanes: int, of_block: int, units: int) -> Layout:
    if kernel == RESIDENT:
        loads = round_up(problem.hidden, ARRAY_COLUMNS[RESIDENT]) // problem.element.columns_per_load
        return Layout(problem.element, loads, lanes)
    return _layout(problem, problem.hidden, kernel, lanes, of_block, units)


def input_layout(problem: Problem, kernel: str, lanes: int, of_block: int, units: int) -> Layout:
    """kernel: the one that multiplies the input."""
    return _layout(problem, problem.input_size, kernel, lanes, of_block, units)


def _layout(problem: Problem, columns: int, kernel: str, lanes: int, of_block: int, units: int) -> Layout:
    loads = round_up(ceil_div(columns, problem.element.columns_per_load), of_block)
    return Layout(problem.element, loads, lanes if kernel == LANES else units)
