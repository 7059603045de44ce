"""A way to run a problem, and all that a family of kernels has to say of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from ..operators.problem import Problem
from .cuts import GATES, PACKED_HIDDEN, PACKED_INPUT, Layout, LoopTiling, ProjectionTiling
from .dispatches import SUBMISSION_SECONDS, Dispatch, Submissions
from .iterations import NONE, Loops, loops, loops_of_state
from .options import Options
from .target import Machine, Target


@dataclass(frozen=True)
class Tiling(ABC):
    """A family of kernels is a class of these, in a folder and in families.FAMILIES.

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
    def runs(target: Target) -> bool:
        """Whether this family is a choice."""

    @staticmethod
    @abstractmethod
    def whole_units(target: Target) -> int:
        """Invocations that workgroups of the time loop have a multiple of."""

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
        """Of one time step."""

    def start_seconds(self, machine: Machine) -> float:
        """Of a dispatch of the time loop, beside its steps."""
        return 0.0

    @abstractmethod
    def projection_seconds(self, machine: Machine, steps: int) -> float:
        """Of so many time steps."""

    def compile_seconds(self, machine: Machine) -> float:
        """The share of compiling that an execution is charged."""
        return self.loop.rows * self.loop.units_at_once * machine.profile.compiling.row_of_unit

    def most_steps(self, machine: Machine, step_seconds: float) -> int:
        """Time steps of a dispatch, so that it takes no longer than it may."""
        return int(SUBMISSION_SECONDS / step_seconds)

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
        """What does not grow with the steps: the last checks of their loops too."""
        loop = self.loop
        padding = loop.hidden.columns - loop.problem.hidden
        once = loops(loop.rows, loops(loop.rows)) + loops(loop.rows)  # the rows' order, and finished ones dropped
        once += loops_of_state(loop, loop.part_units + padding) + loops_of_state(loop, loop.part_units)  # begin and end
        return (once + self.loops_once()).run + self.loops_of_step().masked

    # What runs

    @abstractmethod
    def dispatches(self, submissions: Submissions) -> tuple[Dispatch, ...]:
        """All of an execution, in order."""
