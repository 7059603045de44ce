"""How a kernel cuts its work, and the sizes that follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..operators.element_types import ElementType
from ..operators.problem import Problem
from ..operators.whole_numbers import ceil_div

PACKED_INPUT, PACKED_HIDDEN, GATES, STATE = "packed input weights", "packed recurrent weights", "gates", "state"
MEETING = "meeting"

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
        """What its kernel is specialized with besides what all are."""
        return {}


@dataclass(frozen=True, kw_only=True)
class LoopTiling(KernelTiling, ABC):
    """Of the time loop. A tile's rows are batch rows."""

    schedule: str
    parts: int                  # workgroups that share a tile's units
    hidden: Layout              # of the recurrent weights
    shared_state: bool = False  # the state is in shared memory, not in a buffer
    chunk_steps: int = 1        # most time steps of a dispatch
    meeting: str | None = None  # how parts wait for each other, if they do

    @property
    def tiles(self) -> int:
        """Workgroups that share the rows."""
        return ceil_div(self.problem.batch, self.rows)

    @property
    def workgroups(self) -> int:
        return self.problem.directions * self.tiles * self.parts

    @property
    def chunks(self) -> int:
        """Dispatches that run all steps, where each has several."""
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
        """Of the states of all rows."""

    @property
    def buffers(self) -> dict[str, int]:
        """Bytes of what only the loop has, by name."""
        return {STATE: self.states_bytes}

    @property
    def properties(self) -> dict[str, Any]:
        """What options may force of it, beside what all loops have."""
        return {}


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

    def dispatched_tiles(self, steps: int) -> int:
        """As many, or more, which have nothing to do."""
        return self.tiles(steps)


def even_rows(batch: int, most: Iterable[int]) -> list[int]:
    """Rows of a tile that share the batch out evenly, for each number that a tile has at most."""
    return sorted({ceil_div(batch, ceil_div(batch, rows)) for rows in most})
