"""The kernels whose invocations hold units, and pass values round a subgroup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from ...operators.whole_numbers import ceil_div, round_up
from ..cuts import KernelTiling, Layout, even_rows
from ..iterations import NONE, Loops, loops
from ..parts import PartsLoop, PartsProjection, PartsTiling, parts_of, schedules_of
from ..target import Target
from ..tiling import Tiling

_MOST_ROWS = 16  # of a tile: with more, compiling takes long
_STEPS_FOR_A_ROW = 16  # steps of all rows for which the projection's tile gets one more, where compiling takes long


@dataclass(frozen=True, kw_only=True)
class LanesLoop(PartsLoop):
    """Of the time loop."""

    @property
    def properties(self) -> dict[str, Any]:
        return {"lanes": True}


@dataclass(frozen=True)
class LanesTiling(PartsTiling):
    """Fused or projected, in sequence or stepped."""

    loop: LanesLoop

    @staticmethod
    def runs(target: Target) -> bool:
        return target.lanes > 1

    @staticmethod
    def whole_units(target: Target) -> int:
        return target.lanes

    @staticmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        for schedule, is_projected, (rows, units_at_once) in product(schedules_of(target), (False, True), tiles_of(target)):
            parts = parts_of(target, schedule, rows, target.lanes * units_at_once)
            if parts:
                found = (_tiling(target, schedule, is_projected, rows, units_at_once, parts, workgroup, unrolled)
                         for workgroup, unrolled in _workgroups(target))
                most = target.machine.profile.most_iterations
                yield from filter(None, [next((tiling for tiling in found if tiling.has_iterations(most)), None)])

    def phase_loops(self, gates: int) -> Loops:
        """A tile is multiplied whole or, with lengths, its first half, by code of its own. Without, drivers may keep it."""
        loop = self.loop
        products = self.product_loops(loop, loop.hidden, gates)
        whole = loops(1, products) if self.problem.has("SequenceLengthsTensor") else products
        products = whole + loops(0, products)
        if loop.units_at_once > 1:  # drivers unroll what makes large tiles ready, but not all of it
            products += 2 * loops(loop.units_at_once)
        return self.turn_loops(gates, products + loops(loop.units_at_once, loops(loop.rows)))

    @staticmethod
    def product_loops(tiling: KernelTiling, layout: Layout, gates: int) -> Loops:
        """Blocks of loads."""
        block = NONE if tiling.unrolled else Loops(tiling.block_loads, 1)  # a loop that checks after its body
        return loops(layout.loads // tiling.block_loads, block)


def tiles_of(target: Target) -> list[tuple[int, int]]:
    """Rows of a tile, and units that an invocation computes together."""
    options, most = target.options, target.machine.profile.most_unrolled
    rows = [options.rows] if options.rows else even_rows(target.problem.batch, range(1, _MOST_ROWS + 1))
    units = [options.units_at_once] if options.units_at_once else [2, 1]
    return [tile for tile in product(rows, units) if most is None or tile[0] * tile[1] <= most or options.rows]


def _workgroups(target: Target) -> Iterator[tuple[int, bool]]:
    """Invocations of a workgroup, and whether loads are unrolled; the preferred first, then with fewer iterations each."""
    most = target.options.workgroup or target.machine.info.max_workgroup_invocations
    workgroup = target.options.workgroup or target.lanes
    if target.machine.profile.most_unrolled is None:
        yield workgroup, False
    while workgroup <= most:
        yield workgroup, True
        workgroup *= 2


def _tiling(target: Target, schedule: str, is_projected: bool, rows: int, units_at_once: int, parts: int, workgroup: int,
            unrolled: bool) -> LanesTiling:
    problem = target.problem
    loop = LanesLoop(
        problem=problem, kernel=f"cpu/{problem.cell.kernel}_lanes", schedule=schedule, lanes=target.lanes, rows=rows,
        units_at_once=units_at_once, parts=parts, workgroup=workgroup, block_loads=block_loads(target), unrolled=unrolled,
        units=round_up(problem.hidden, workgroup * units_at_once), hidden=layout(target, problem.hidden))
    packed = layout(target, problem.input_size)
    return LanesTiling(loop, packed, projection(target, loop, packed, workgroup, units_at_once) if is_projected else None)


def projection(target: Target, loop: PartsLoop, packed: Layout, workgroup: int, units_at_once: int) -> PartsProjection:
    """For a time loop of this or another kernel that holds units."""
    return PartsProjection(
        problem=target.problem, kernel="cpu/projection_lanes", lanes=target.lanes, rows=_projection_rows(target, units_at_once),
        units_at_once=units_at_once, workgroup=workgroup, block_loads=loop.block_loads, unrolled=loop.unrolled,
        units=loop.units, group_units=workgroup * units_at_once, input=packed)


def _projection_rows(target: Target, units_at_once: int) -> int:
    row_steps, most = target.problem.batch * target.problem.steps, target.machine.profile.most_unrolled
    return min(most // units_at_once, ceil_div(row_steps, _STEPS_FOR_A_ROW)) if most else min(_MOST_ROWS, row_steps)


def block_loads(target: Target) -> int:
    """Loads of weights for a gate that belong together: those of a vec4 of each lane."""
    return max(1, target.lanes // target.problem.element.vecs_per_load)


def layout(target: Target, columns: int) -> Layout:
    element = target.problem.element
    return Layout(element, round_up(ceil_div(columns, element.columns_per_load), block_loads(target)), target.lanes)
