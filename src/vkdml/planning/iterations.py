"""A bound on the loop iterations of an invocation in one dispatch, never too small: some drivers end all loops after a limit.

The loops are those of shaders/, but for the ones that drivers unroll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..operators.problem import Problem
from ..operators.whole_numbers import ceil_div
from .cuts import LoopTiling


@dataclass(frozen=True)
class Loops:
    """Iterations of loops, one after the other.

    masked: what they cost where none of a subgroup's invocations runs them. Drivers that mask go through the code all the same.
    """

    run: int = 0
    masked: int = 0

    def __add__(self, other: Loops) -> Loops:
        return Loops(self.run + other.run, self.masked + other.masked)

    def __rmul__(self, count: int) -> Loops:
        return Loops(count * self.run, count * self.masked)


NONE = Loops()


def loops(times: int, body: Loops = NONE) -> Loops:
    """The check that ends it goes through the body once more, masked."""
    return Loops(times * (1 + body.run) + 1 + body.masked, 1 + body.masked)


def loops_of_state(loop: LoopTiling, units: int) -> Loops:
    """All rows of so many units."""
    return loops(ceil_div(units, loop.workgroup), loops(loop.rows))


def loops_of_phases(loop: LoopTiling, phases: Sequence[Loops]) -> Loops:
    """An iteration of the loop over steps, and of the one that clears outputs past rows' lengths."""
    step = sum(phases, Loops(1, 1)) + loops(0)
    has_lengths = loop.problem.has("SequenceLengthsTensor")
    return step + Loops(1, 1) + loops_of_state(loop, loop.part_units) if has_lengths else step


def gates_of_phases(problem: Problem) -> list[int]:
    """Gates that each phase multiplies: of two, the second has the last one."""
    gates = len(problem.cell.gates)
    return [gates] if problem.loop.phases == 1 else [gates - 1, 1]
