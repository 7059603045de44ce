"""The tilings of a problem that a device can run and the options allow, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import gcd

from ..errors import InvalidArgumentError
from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, round_up
from . import iterations, profiles
from .costs import Costs
from .device_info import DeviceInfo
from .forced import allowed, forced, has_all
from .options import PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options, check_options
from .profiles import FLOAT64, GPU, LANES, RESIDENT, ROWS
from .tiling import (
    ARRAY_COLUMNS,
    MOST_ROWS_OF_LANE,
    Layout,
    LoopTiling,
    ProjectionTiling,
    Tiling,
    block_loads,
    hidden_layout,
    input_layout,
)

_SUBMISSION_SECONDS = 0.5  # most work in one, by the model: drivers kill what runs for seconds
_MOST_STATES_BYTES = 2**24  # of parts with a state each, for which there is no need where there are many rows
# Invocations of a workgroup in the gpu and float64 kernels: at least, and a multiple of it; and in the projection, which has
# workgroups enough
_LEAST_WORKGROUP, _PROJECTION_WORKGROUP = 32, 64
_STEPS_FOR_A_ROW = 16  # steps of all rows for which the projection's tile gets one more, where compiling takes long
_MOST_STEPS_RECORDED = 2000  # stepped, a phase of a step is a submission, which takes some of the host's memory


@dataclass(frozen=True)
class _Shape:
    """What tiles look like. projection: its kernel; None where the time loop multiplies the input."""

    kernel: str
    projection: str | None
    rows: int
    units_at_once: int


class Planner:
    """A problem on a device, with options."""

    def __init__(self, problem: Problem, info: DeviceInfo, options: Options = Options()) -> None:
        check_options(options)
        self.problem, self.info, self.options = problem, info, options
        self.profile = profiles.profile(info)
        self.costs = Costs(info)

    def best(self) -> Tiling:
        """The fastest by the model. Raises InvalidArgumentError if there is none."""
        return min(self.tilings(), key=self.costs.seconds)

    def tilings(self) -> list[Tiling]:
        """All of them. Raises InvalidArgumentError if there is none."""
        found = self._found()
        if not found:
            raise self._refusal()
        return found

    def fallbacks(self, tiling: Tiling) -> list[Tiling]:
        """What can run instead of a persistent tiling with the same packed weights and projection, the fastest first."""
        loop = tiling.loop
        rows = [loop.rows] if loop.kernel == ROWS or self.options.rows else self._even_rows(loop.rows)
        workgroup = loop.workgroup * loop.parts if loop.kernel == RESIDENT else loop.workgroup
        alone = [replace(loop, schedule=SEQUENCE, parts=1, spins=0, workgroup=workgroup, rows=of_tile) for of_tile in rows]
        others = [self._with_shared_state(other) for other in alone
                  if other.rows * other.tiles <= loop.rows * loop.tiles]  # for which the state has room
        if loop.kernel != RESIDENT and self._can_be_stepped:
            others.append(replace(loop, schedule=STEPPED, spins=0))
        found = [replace(tiling, loop=other) for other in others if other.workgroup <= self.info.max_workgroup_invocations]
        return sorted((self._in_chunks(other) for other in found if self._steps_by_iterations(other) >= 1),
                      key=self.costs.seconds)

    def _found(self) -> list[Tiling]:
        self._check_workgroup()
        schedules = [self.options.schedule] if self.options.schedule else SCHEDULES
        found = []
        for schedule, shape in product(schedules, self._shapes()):
            for parts in self._parts(schedule, shape):
                tiling = self._tiling(schedule, shape, parts)
                if tiling and (schedule != PERSISTENT or self.fallbacks(tiling)):
                    found.append(tiling)
                    break
        return [tiling for tiling in found if has_all(tiling, self.options)]

    def _refusal(self) -> InvalidArgumentError:
        """Names the first option that leaves nothing of what the ones before it leave."""
        problem, items = self.problem, list(forced(self.options).items())
        left = [Planner(problem, self.info, Options(**dict(items[:count])))._found() for count in range(len(items) + 1)]
        culprit = left.index([])
        sizes = f"H = {problem.hidden}, I = {problem.input_size}"
        if culprit == 0:
            return InvalidArgumentError(problem.operator, "sizes", sizes,
                                        f"ones that {self.info.name} can loop over in one dispatch")
        *before, (name, value) = items[:culprit]
        others = "".join(f"{other} = {its!r}, " for other, its in before)
        return InvalidArgumentError(
            problem.operator, f"options.{name}", repr(value),
            f"{allowed(name, left[culprit - 1])} with {others}{sizes} and {problem.element.name} on {self.info.name}")

    @cached_property
    def _lanes(self) -> int:
        """The subgroup size where shuffles replace loads, else 1.

        Only CPU drivers gain: their workgroup is one whole subgroup, and loads are what they are slow at. A GPU reads shared
        memory faster, and may run a subgroup with fewer invocations than it reports.
        """
        possible = self.info.subgroup_shuffle and self.info.subgroup_size > 1 and not self.problem.element.pairs
        wanted = self.profile.prefers_shuffles if self.options.lanes is None else self.options.lanes
        return self.info.subgroup_size if possible and wanted else 1

    @cached_property
    def _can_be_stepped(self) -> bool:
        return self.problem.steps * self.problem.loop.phases <= _MOST_STEPS_RECORDED

    def _check_workgroup(self) -> None:
        workgroup, most = self.options.workgroup, self.info.max_workgroup_invocations
        if workgroup and (workgroup % self._lanes or workgroup > most):
            raise InvalidArgumentError(self.problem.operator, "options.workgroup", workgroup,
                                       f"a multiple of {self._lanes}, at most {most}")

    # Shapes

    def _shapes(self) -> list[_Shape]:
        if self._lanes > 1:
            return self._shuffling_shapes()
        kernel = FLOAT64 if self.problem.element.pairs else GPU
        rows = [1] if kernel == FLOAT64 else self._rows()
        return [_Shape(kernel, projection, of_tile, 1) for projection, of_tile in product((None, kernel), rows)
                if self._may_unroll(of_tile)]

    def _shuffling_shapes(self) -> list[_Shape]:
        at_once = [self.options.units_at_once] if self.options.units_at_once else [2, 1]
        kernels = [(LANES, None), *product((LANES, RESIDENT), (LANES, ROWS))]
        shapes = [_Shape(*pair, of_tile, units) for pair, of_tile, units in product(kernels, self._rows(), at_once)
                  if self.profile.kernels.issuperset(filter(None, pair)) and self._may_unroll(of_tile * units)]
        if ROWS in self.profile.kernels:
            shapes += [_Shape(ROWS, ROWS, of_tile, 1) for of_tile in self._rows_of_lanes()]
        return shapes

    def _may_unroll(self, rows_of_units: int) -> bool:
        most = self.profile.most_unrolled
        return most is None or rows_of_units <= most or self.options.rows is not None

    def _rows(self) -> list[int]:
        return [self.options.rows] if self.options.rows else self._even_rows(self.profile.most_rows)

    def _rows_of_lanes(self) -> list[int]:
        """For the rows kernels: whole subgroups."""
        most = MOST_ROWS_OF_LANE * self._lanes
        if self.options.rows:
            return [self.options.rows] if self.options.rows % self._lanes == 0 and self.options.rows <= most else []
        return sorted({round_up(rows, self._lanes) for rows in self._even_rows(most)})

    def _even_rows(self, most: int) -> list[int]:
        """Rows of a tile that share the batch out evenly."""
        batch = self.problem.batch
        return sorted({ceil_div(batch, ceil_div(batch, rows)) for rows in range(1, most + 1)})

    def _parts(self, schedule: str, shape: _Shape) -> list[int]:
        """Workgroups that share a tile's units, the preferred number first; none where the schedule is no choice."""
        is_forced = self.options.schedule == schedule
        if schedule == SEQUENCE:
            return [1]
        if not is_forced and (schedule == PERSISTENT or not self._can_be_stepped):
            return []
        if self.options.parts:
            return [self.options.parts] if self.options.parts > 1 else []
        turns = ceil_div(self.problem.hidden, self._lanes * shape.units_at_once)
        parts = self._most_parts(shape, turns)
        if schedule == STEPPED and shape.kernel == ROWS:  # or as many as have loop iterations enough for a step
            return [count for count in (parts, 2, 4, 8) if 1 < count <= turns]
        return [max(parts, 2)] if is_forced else [parts] if parts > 1 else []

    def _most_parts(self, shape: _Shape, turns: int) -> int:
        if self.profile.most_parts:
            return min(self.profile.most_parts, ceil_div(self.problem.hidden, _LEAST_WORKGROUP))
        tiles = self.problem.directions * ceil_div(self.problem.batch, shape.rows)
        return min(self.costs.workers // tiles, turns)

    # Tilings

    def _tiling(self, schedule: str, shape: _Shape, parts: int) -> Tiling | None:
        """With the first workgroup that has loop iterations enough for a step."""
        for workgroup, unrolled in self._workgroups(schedule, shape, parts):
            loop = self._loop(schedule, shape, parts, workgroup, unrolled)
            if shape.kernel == RESIDENT and not self._is_resident(loop):
                return None
            layout = input_layout(self.problem, shape.projection or shape.kernel, self._lanes, loop.block_loads, loop.units)
            tiling = Tiling(loop, layout, self._projection(shape, loop, layout))
            if self._steps_by_iterations(tiling) >= 1:
                return self._in_chunks(tiling) if self._can_project(tiling.projection) else None
        return None

    def _workgroups(self, schedule: str, shape: _Shape, parts: int) -> Iterator[tuple[int, bool]]:
        """Invocations of a workgroup, and whether loads are unrolled; the preferred first, then with fewer iterations each."""
        most = self.options.workgroup or self.info.max_workgroup_invocations
        if shape.kernel == RESIDENT:  # holds all units of a part
            invocations = round_up(ceil_div(self.problem.hidden, parts * shape.units_at_once), self._lanes)
            if schedule != STEPPED and invocations <= most:
                yield invocations, False
            return
        if shape.kernel == ROWS:
            yield self._lanes, False
            return
        workgroup = self.options.workgroup or (self._lanes if self._lanes > 1 else self._whole_part(parts))
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
        units = round_up(problem.hidden, turn * parts if shape.kernel == RESIDENT else turn)
        of_block = block_loads(problem.element, self._lanes, 1 if shape.kernel == FLOAT64 else self.profile.block_vecs)
        loop = LoopTiling(
            problem=problem, kernel=shape.kernel, schedule=schedule, lanes=self._lanes, rows=shape.rows,
            units_at_once=shape.units_at_once, parts=parts, workgroup=workgroup, block_loads=of_block, unrolled=unrolled,
            units=units, hidden=hidden_layout(problem, shape.kernel, self._lanes, of_block, units),
            spins=self.profile.spins if schedule == PERSISTENT else 0)
        return self._with_shared_state(self._with_own_states(loop))

    def _is_resident(self, loop: LoopTiling) -> bool:
        """Whether there are arrays enough for its weights, and compilers need not take long."""
        arrays = loop.hidden.columns // ARRAY_COLUMNS[RESIDENT]
        return arrays <= profiles.PRIVATE_ARRAYS and loop.resident_products <= self.profile.most_resident_products

    def _with_own_states(self, loop: LoopTiling) -> LoopTiling:
        """With all of the state in each part, where they need nothing else of each other, and it is small."""
        own = replace(loop, own_states=True)
        is_only_phase = loop.schedule == STEPPED and self.problem.steps * self.problem.loop.phases == 1
        return own if is_only_phase and own.states_bytes <= _MOST_STATES_BYTES else loop

    def _with_shared_state(self, loop: LoopTiling) -> LoopTiling:
        """With the state in shared memory, where the kernels know that and it fits."""
        fits = (loop.kernel in (GPU, FLOAT64, RESIDENT) and loop.schedule == SEQUENCE
                and loop.shared_bytes <= self.info.max_shared_memory)
        return replace(loop, shared_state=fits and self.options.shared_state is not False)

    def _projection(self, shape: _Shape, loop: LoopTiling, layout: Layout) -> ProjectionTiling | None:
        if shape.projection is None:
            return None
        workgroup, at_once = self._projection_workgroup(shape, loop)
        projection = ProjectionTiling(
            problem=self.problem, kernel=shape.projection, lanes=self._lanes, rows=self._projection_rows(shape, at_once),
            units_at_once=at_once, workgroup=workgroup, block_loads=loop.block_loads, unrolled=loop.unrolled, units=loop.units,
            group_units=loop.units if shape.projection == ROWS else workgroup * at_once, input=layout,
            by_tile=shape.kernel == ROWS)
        while (shape.projection == ROWS and projection.group_units > self._lanes
               and iterations.of_projection(projection) > self.profile.most_iterations):
            projection = replace(projection, group_units=ceil_div(projection.group_units, 2))
        return projection

    def _projection_workgroup(self, shape: _Shape, loop: LoopTiling) -> tuple[int, int]:
        """Its invocations, and the units that each computes together."""
        if shape.projection == ROWS:
            return self._lanes, 1
        if shape.kernel == RESIDENT:
            return self._lanes, 2 if loop.units % (2 * self._lanes) == 0 else 1
        return loop.workgroup if shape.kernel == LANES else gcd(loop.workgroup, _PROJECTION_WORKGROUP), shape.units_at_once

    def _projection_rows(self, shape: _Shape, at_once: int) -> int:
        row_steps = self.problem.batch * self.problem.steps
        if shape.kernel == ROWS:
            return shape.rows
        if shape.projection == ROWS:
            return min(MOST_ROWS_OF_LANE, ceil_div(row_steps, self._lanes)) * self._lanes
        if shape.projection == FLOAT64:
            return 1
        if self.profile.most_unrolled:
            return min(self.profile.most_unrolled // at_once, ceil_div(row_steps, _STEPS_FOR_A_ROW))
        return min(self.profile.most_rows, row_steps)

    def _can_project(self, projection: ProjectionTiling | None) -> bool:
        return projection is None or (iterations.of_projection(projection) <= self.profile.most_iterations
                                      and projection.step_bytes <= self._most_gates_bytes)

    @property
    def _most_gates_bytes(self) -> int:
        return min(self.options.workspace_bytes, self.info.max_storage_buffer_range)

    # Chunks

    def _steps_by_iterations(self, tiling: Tiling) -> int:
        return iterations.most_steps(tiling, self.profile.most_iterations)

    def _in_chunks(self, tiling: Tiling) -> Tiling:
        """With the most time steps that a dispatch of the time loop, and one of the projection, may run."""
        loop, steps = tiling.loop, self.problem.steps
        in_time = int(_SUBMISSION_SECONDS / self.costs.step_seconds(tiling))
        most = min(steps, self.options.chunk_steps or steps, self._steps_by_iterations(tiling), in_time)
        loop = replace(loop, chunk_steps=1 if loop.schedule == STEPPED else max(1, most))
        return replace(tiling, loop=loop, projection=self._projection_in_chunks(tiling.projection))

    def _projection_in_chunks(self, projection: ProjectionTiling | None) -> ProjectionTiling | None:
        if projection is None:
            return None
        in_time = int(_SUBMISSION_SECONDS / self.costs.projection_seconds(projection, 1))
        most = min(self.problem.steps, self._most_gates_bytes // projection.step_bytes,
                   self.info.max_workgroup_count // projection.tiles(1), in_time)
        return replace(projection, chunk_steps=max(1, most))
