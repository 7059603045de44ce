"""All tilings of a problem that a device's kernels allow. What the lengths and the batch exclude, `candidates` leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import gcd

from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, round_up
from . import gpu_projection, iterations, profiles
from .costs import Costs
from .device_info import DeviceInfo
from .gpu_loop import GpuLoops, packed_units
from .options import PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options
from .profiles import FLOAT64, LANES, RESIDENT
from .tiling import (
    ARRAY_COLUMNS,
    Layout,
    LoopTiling,
    ProjectionTiling,
    Tiling,
    block_loads,
    even_rows,
    hidden_layout,
    input_layout,
)

# Invocations of a workgroup in the float64 kernels: at least, and a multiple of it; and in their projection, which has
# workgroups enough
_LEAST_WORKGROUP, _PROJECTION_WORKGROUP = 32, 64
_MOST_ROWS = 16  # of a tile: with more, compiling takes long
_STEPS_FOR_A_ROW = 16  # steps of all rows for which the projection's tile gets one more, where compiling takes long


@dataclass(frozen=True)
class _Shape:
    """What tiles look like. projection: its kernel; None where the time loop multiplies the input."""

    kernel: str
    projection: str | None
    rows: int
    units_at_once: int


class Shapes:
    """A problem on a device, with options that are checked."""

    def __init__(self, problem: Problem, info: DeviceInfo, options: Options) -> None:
        self.problem, self.info, self.options = problem, info, options
        self.profile = profiles.profile(info)
        self._costs = Costs(info)
        self._workers = self._costs.workers

    def tilings(self) -> list[Tiling]:
        """One for each schedule and shape of tiles, of dispatches of one time step."""
        schedules = [self.options.schedule] if self.options.schedule else SCHEDULES
        found: list[Tiling | None] = [tiling for schedule in schedules for tiling in self._on_gpu(schedule)]
        for schedule, shape in product(schedules, self._shapes()):
            tilings = (self._tiling(schedule, shape, parts) for parts in self._parts(schedule, shape))
            found.append(next(filter(None, tilings), None))
        return list(filter(None, found))

    def in_one_part(self, tiling: Tiling) -> list[LoopTiling]:
        """What can run instead of a persistent loop with the same packed weights and projection."""
        others = GpuLoops(tiling.problem, self.info, self.options).in_sequence()
        return [other for other in others if self._has_iterations(replace(tiling, loop=other))]

    @cached_property
    def lanes(self) -> int:
        """The subgroup size where shuffles replace loads, else 1.

        Only CPU drivers gain: their workgroup is one whole subgroup, and loads are what they are slow at. A GPU reads shared
        memory faster, and may run a subgroup with fewer invocations than it reports. Kernels that shuffle are never persistent.
        """
        options = self.options
        possible = self.info.subgroup_shuffle and self.info.subgroup_size > 1 and not self.problem.element.pairs
        is_preferred = self.profile.prefers_shuffles and options.schedule != PERSISTENT
        wanted = is_preferred if options.lanes is None else options.lanes
        return self.info.subgroup_size if possible and wanted else 1

    @property
    def whole_units(self) -> int:
        """Invocations that workgroups of the time loop have a multiple of."""
        if self.lanes > 1 or self.problem.element.pairs:
            return self.lanes
        return GpuLoops(self.problem, self.info, self.options).whole_units

    # Shapes

    def _shapes(self) -> list[_Shape]:
        if self.lanes > 1:
            return self._shuffling_shapes()
        return [_Shape(FLOAT64, projection, 1, 1) for projection in (None, FLOAT64)] if self.problem.element.pairs else []

    def _shuffling_shapes(self) -> list[_Shape]:
        at_once = [self.options.units_at_once] if self.options.units_at_once else [2, 1]
        kernels = ((LANES, None), (LANES, LANES), (RESIDENT, LANES))
        return [_Shape(*pair, of_tile, units) for pair, of_tile, units in product(kernels, self._rows(), at_once)
                if pair[0] in self.profile.kernels and self._may_unroll(of_tile * units)]

    def _on_gpu(self, schedule: str) -> Iterator[Tiling]:
        """By the kernels for GPUs."""
        if self.lanes > 1 or self.problem.element.pairs:
            return
        layout = gpu_projection.layout(self.problem)
        projections = gpu_projection.tilings(self.problem, self.info, self.profile, layout, packed_units(self.problem))
        best = min(projections, key=lambda projection: self._costs.projection_seconds(projection, self.problem.steps),
                   default=None)
        if best is None:
            return
        for loop in GpuLoops(self.problem, self.info, self.options).loops(schedule):
            tiling = Tiling(loop, layout, best)
            if self._has_iterations(tiling):
                yield tiling

    def _may_unroll(self, rows_of_units: int) -> bool:
        most = self.profile.most_unrolled
        return most is None or rows_of_units <= most or self.options.rows is not None

    def _rows(self) -> list[int]:
        return [self.options.rows] if self.options.rows else even_rows(self.problem.batch, range(1, _MOST_ROWS + 1))

    def _parts(self, schedule: str, shape: _Shape) -> list[int]:
        """Workgroups that share a tile's units, the preferred number first; none where the schedule is no choice."""
        if schedule == SEQUENCE:
            return [1]
        if schedule == PERSISTENT or shape.kernel == RESIDENT:
            return []
        if self.options.parts:
            return [self.options.parts] if self.options.parts > 1 else []
        parts = self._most_parts(shape)
        return [max(parts, 2)] if self.options.schedule == STEPPED else [parts] if parts > 1 else []

    def _most_parts(self, shape: _Shape) -> int:
        if self.profile.most_parts:
            return min(self.profile.most_parts, ceil_div(self.problem.hidden, _LEAST_WORKGROUP))
        tiles = self.problem.directions * ceil_div(self.problem.batch, shape.rows)
        return min(self._workers // tiles, ceil_div(self.problem.hidden, self.lanes * shape.units_at_once))

    # Tilings

    def _tiling(self, schedule: str, shape: _Shape, parts: int) -> Tiling | None:
        """With the first workgroup that has loop iterations enough for a step."""
        for workgroup, unrolled in self._workgroups(shape, parts):
            loop = self._loop(schedule, shape, parts, workgroup, unrolled)
            if shape.kernel == RESIDENT and not self._is_resident(loop):
                return None
            layout = input_layout(self.problem, shape.projection or shape.kernel, self.lanes, loop.block_loads, loop.units)
            tiling = Tiling(loop, layout, self._projection(shape, loop, layout))
            if self._has_iterations(tiling):
                return tiling
        return None

    def _workgroups(self, shape: _Shape, parts: int) -> Iterator[tuple[int, bool]]:
        """Invocations of a workgroup, and whether loads are unrolled; the preferred first, then with fewer iterations each."""
        most = self.options.workgroup or self.info.max_workgroup_invocations
        if shape.kernel == RESIDENT:  # holds all units
            invocations = round_up(ceil_div(self.problem.hidden, shape.units_at_once), self.lanes)
            if invocations <= most:
                yield invocations, False
            return
        workgroup = self.options.workgroup or (self.lanes if self.lanes > 1 else self._whole_part(parts))
        if self.profile.most_unrolled is None:
            yield workgroup, False
        while workgroup <= most:
            yield workgroup, True
            workgroup *= 2

    def _whole_part(self, parts: int) -> int:
        """The invocations that hold a part's units, in as few turns as can be."""
        units = ceil_div(self.problem.hidden, parts)
        turns = ceil_div(units, min(self.profile.most_workgroup, self.info.max_workgroup_invocations))
        return round_up(ceil_div(units, turns), _LEAST_WORKGROUP)

    def _loop(self, schedule: str, shape: _Shape, parts: int, workgroup: int, unrolled: bool) -> LoopTiling:
        problem, turn = self.problem, workgroup * shape.units_at_once
        units = round_up(problem.hidden, turn)
        of_block = block_loads(problem.element, self.lanes)
        loop = LoopTiling(
            problem=problem, kernel=shape.kernel, schedule=schedule, lanes=self.lanes, rows=shape.rows,
            units_at_once=shape.units_at_once, parts=parts, workgroup=workgroup, block_loads=of_block, unrolled=unrolled,
            units=units, hidden=hidden_layout(problem, shape.kernel, self.lanes, of_block, units))
        return self._with_shared_state(loop)

    def _is_resident(self, loop: LoopTiling) -> bool:
        """Whether there are arrays enough for its weights, and compilers need not take long."""
        arrays = loop.hidden.columns // ARRAY_COLUMNS[RESIDENT]
        return arrays <= profiles.PRIVATE_ARRAYS and loop.resident_products <= self.profile.most_resident_products

    def _with_shared_state(self, loop: LoopTiling) -> LoopTiling:
        """With the state in shared memory, where the kernels know that and it fits."""
        fits = (loop.kernel in (FLOAT64, RESIDENT) and loop.schedule == SEQUENCE
                and loop.shared_bytes <= self.info.max_shared_memory)
        return replace(loop, shared_state=fits and self.options.shared_state is not False)

    def _projection(self, shape: _Shape, loop: LoopTiling, layout: Layout) -> ProjectionTiling | None:
        if shape.projection is None:
            return None
        workgroup, at_once = self._projection_workgroup(shape, loop)
        return ProjectionTiling(
            problem=self.problem, kernel=shape.projection, lanes=self.lanes, rows=self._projection_rows(shape, at_once),
            units_at_once=at_once, workgroup=workgroup, block_loads=loop.block_loads, unrolled=loop.unrolled, units=loop.units,
            group_units=workgroup * at_once, input=layout)

    def _projection_workgroup(self, shape: _Shape, loop: LoopTiling) -> tuple[int, int]:
        """Its invocations, and the units that each computes together."""
        if shape.kernel == RESIDENT:
            return self.lanes, 2 if loop.units % (2 * self.lanes) == 0 else 1
        return loop.workgroup if shape.kernel == LANES else gcd(loop.workgroup, _PROJECTION_WORKGROUP), shape.units_at_once

    def _projection_rows(self, shape: _Shape, at_once: int) -> int:
        if shape.projection == FLOAT64:
            return 1
        row_steps = self.problem.batch * self.problem.steps
        if self.profile.most_unrolled:
            return min(self.profile.most_unrolled // at_once, ceil_div(row_steps, _STEPS_FOR_A_ROW))
        return min(_MOST_ROWS, row_steps)

    def _has_iterations(self, tiling: Tiling) -> bool:
        """For a dispatch of one time step, and for a tile of the projection."""
        most = self.profile.most_iterations
        return (iterations.most_steps(tiling, most) >= 1
                and (tiling.projection is None or iterations.of_projection(tiling.projection) <= most))
