"""The family of kernels for GPUs. They always project the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...operators.whole_numbers import ceil_div
from ..cuts import MOST_COUNTED_ROWS
from ..dispatches import SUBMISSION_SECONDS, Dispatch, Submissions
from ..iterations import NONE, Loops, loops, loops_of_phases
from ..loop_dispatches import in_order
from ..options import FLOW, PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options
from ..target import Machine, Target
from ..tiling import Tiling
from . import gpu_costs
from .gpu_dispatches import exchanging
from .gpu_loop import GpuLoop, GpuLoops, resident_workgroups
from .gpu_projection import GpuProjection, projections


@dataclass(frozen=True)
class GpuTiling(Tiling):
    """A time loop by any schedule, and the fastest projection."""

    loop: GpuLoop
    projection: GpuProjection

    @staticmethod
    def runs(target: Target) -> bool:
        return target.lanes == 1 and not target.problem.element.pairs

    @staticmethod
    def whole_units(target: Target) -> int:
        return GpuLoops(target).whole_units

    @staticmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        problem, machine = target.problem, target.machine
        fastest = min(projections(problem, machine), default=None,
                      key=lambda projection: projection.seconds(problem.steps, machine.gpu))
        if fastest is None:
            return
        cuts = GpuLoops(target)
        for schedule in [target.options.schedule] if target.options.schedule else SCHEDULES:
            yield from (GpuTiling(loop, fastest.input, fastest) for loop in cuts.loops(schedule))

    def fallbacks(self, options: Options, machine: Machine) -> list[Tiling]:
        target = Target(self.problem, machine, Options(schedule=SEQUENCE, rows=options.rows))
        alone = [loop for loop in GpuLoops(target).loops(SEQUENCE) if loop.states_bytes <= self.loop.states_bytes]
        stepped = replace(self.loop, schedule=STEPPED, spins=0, meeting=None)
        return [replace(self, loop=loop) for loop in (*alone, stepped)]

    def fits_side_by_side(self, machine: Machine) -> bool:
        return self.loop.workgroups <= resident_workgroups(self.loop, machine)

    def step_seconds(self, machine: Machine) -> float:
        return gpu_costs.step_seconds(self.loop, machine)

    def start_seconds(self, machine: Machine) -> float:
        return gpu_costs.start_seconds(self.loop, machine)

    def projection_seconds(self, machine: Machine, steps: int) -> float:
        return self.projection.seconds(steps, machine.gpu)

    def most_steps(self, machine: Machine, step_seconds: float) -> int:
        """What workgroups wait in all of a dispatch counts together, and is bounded: the bound must be for twice as long. A
        look at a word in memory takes as long as a load, or longer.
        """
        most_seconds, rates = SUBMISSION_SECONDS, machine.profile.gpu
        if self.loop.schedule == PERSISTENT and rates:
            most_seconds = min(most_seconds, self.loop.spins * rates.latency / 2)
        most = int(most_seconds / step_seconds)
        return min(most, self.loop.most_flow_steps) if self.loop.meeting == FLOW else most

    def loops_once(self) -> Loops:
        """What is kept, the rows of a group, and waiting, which is bounded in all of a dispatch."""
        loop = self.loop
        group_rows = loop.tiles_of_group * loop.rows
        of_rows = loops(group_rows) + loops(ceil_div(group_rows, loop.column_groups), loops(0))
        return loops(loop.shared_loads) + of_rows + Loops(loop.spins)

    def loops_of_step(self) -> Loops:
        """A tile's rows are unrolled. Where parts exchange h and lengths end early, an iteration clears a step's outputs."""
        loop, phases = self.loop, self.problem.loop.phases
        streamed = NONE  # the blocks of weights, but for the last
        if loop.streamed_loads:
            streamed = loops(max(0, loop.streamed_loads // loop.stream_loads - 1))
        if loop.schedule == SEQUENCE:
            return loops_of_phases(loop, [loops(loop.turns, streamed)] * phases)
        fetch = Loops(1, 1) if loop.meeting == FLOW else NONE  # it checks after its body; waiting has a bound of its own
        tiles = loops(loop.tiles_of_group, fetch + streamed)
        step = Loops(1, 1) + (1 if loop.schedule == STEPPED else phases) * (tiles + loops(0)) + loops(0)
        clear = Loops(ceil_div(loop.tiles_of_group * loop.rows, loop.column_groups), 1)
        return step + clear if self.problem.has("SequenceLengthsTensor") else step

    def loops_of_projection(self) -> Loops:
        """An invocation looks for one sample: of any batch, as tilings are chosen for many."""
        find = loops(MOST_COUNTED_ROWS) if self.projection.skips_padding else NONE
        return find + loops(self.projection.blocks)

    def dispatches(self, submissions: Submissions) -> tuple[Dispatch, ...]:
        if self.loop.schedule == SEQUENCE:
            return in_order(self, submissions)
        return exchanging(self, self.loop, submissions)
