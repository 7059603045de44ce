"""The kernels for drivers that run shaders on a processor: shaders/cpu/."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product

from ...operators.checks import ceil_div, round_up
from ..options import SEQUENCE
from ..profiles import PRIVATE_ARRAYS, Rates, ResidentRates
from ..tiling import KernelTiling, Packing, ProjectionTiling, Target, Tiling, even_rows, loops
from .parts import ARRAY_COLUMNS, PartsLoop, PartsTiling, parts_of, schedules_of, spread

_MOST_ROWS, _MOST_LARGE_ROWS = 16, 32  # most rows of a tile, and of a large one: with more, compiling takes long
_MOST_KEPT = 2**16  # most elements of X that a tile of the projection keeps, as they are on a stack
_STEPS_FOR_A_ROW = 16  # a tile of the projection has a row for so many steps of batch rows, if compiling takes long


@dataclass(frozen=True)
class LanesTiling(PartsTiling):
    """A tiling of the kernels that shuffle values within a subgroup: fused or projected, in sequence or stepped."""

    @staticmethod
    def whole_units(target: Target) -> int:
        return target.lanes

    @staticmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        most_rows = _MOST_ROWS
        # A large tile loads weights less often, where those of two units cannot stay. Each of at least two cores has a tile
        if target.profile.large_tiles and all(tiling.loop.units_at_once == 1 for tiling in ResidentTiling.tilings(target)):
            most_rows = max(most_rows, min(_MOST_LARGE_ROWS, target.problem.batch // max(2, target.workers)))
        tiles = _tiles_of(target, most_rows)
        # A fused loop multiplies the input as it does h, for each gate
        projected = (False, True)[target.problem.loop.products < len(target.problem.cell.gates):]
        for schedule, is_projected, (rows, units_at_once) in product(schedules_of(target), projected, tiles):
            parts = parts_of(target, schedule, rows, target.lanes * units_at_once)
            if parts:
                found = (_tiling(target, schedule, is_projected, rows, units_at_once, parts, workgroup, unrolled)
                         for workgroup, unrolled in _workgroups(target))
                yield from islice((one for one in found if one.has_iterations(target.profile.most_iterations)), 1)

    def phase_loops(self, gates: int) -> int:
        """Bound a phase. With lengths, separate code may multiply only half of a tile. Drivers may keep it without lengths."""
        loop = self.loop
        products = self.product_loops(loop, loop.hidden, gates)
        whole = loops(1, products, 2) if self.problem.has("SequenceLengthsTensor") else products
        products = whole + loops(0, products, 2)
        if loop.units_at_once > 1:  # drivers unroll only some of the code that prepares large tiles
            products += 2 * loops(loop.units_at_once)
        return self.turn_loops(gates, products + loops(loop.units_at_once, loops(loop.rows), 1))

    @staticmethod
    def product_loops(tiling: KernelTiling, packing: Packing, gates: int) -> int:
        """Bound the iterations over blocks of loads."""
        block = 0 if tiling.unrolled else tiling.block_loads  # the loop over a block checks after its body
        return loops(packing.loads // tiling.block_loads, block, 1)


def _tiles_of(target: Target, most_rows: int = _MOST_ROWS) -> list[tuple[int, int]]:
    """List pairs of the rows of a tile and the units that an invocation computes together."""
    options, most = target.options, target.profile.most_unrolled
    rows = [options.rows] if options.rows else even_rows(target.problem.batch, range(1, most_rows + 1))
    units = [options.units_at_once] if options.units_at_once else [2, 1]  # four gain nothing, and compile for seconds
    return [tile for tile in product(rows, units) if most is None or tile[0] * tile[1] <= (4 * most if options.rows else most)]


def _workgroups(target: Target) -> Iterator[tuple[int, bool]]:
    """Yield sizes of workgroups and whether loads are unrolled: the preferred pair first, then ones that loop less."""
    most = target.options.workgroup or target.info.max_workgroup_invocations
    workgroup = target.options.workgroup or target.lanes
    if target.profile.most_unrolled is None:
        yield workgroup, False
    while workgroup <= most:
        yield workgroup, True
        workgroup *= 2


def _tiling(target: Target, schedule: str, is_projected: bool, rows: int, units_at_once: int, parts: int, workgroup: int,
            unrolled: bool) -> LanesTiling:
    problem = target.problem
    loop = PartsLoop(
        problem=problem, kernel=f"cpu/{problem.cell.kernel}_lanes", schedule=schedule, lanes=target.lanes, rows=rows,
        units_at_once=units_at_once, parts=parts, workgroup=workgroup, block_loads=_block_loads(target), unrolled=unrolled,
        units=round_up(problem.hidden, workgroup * units_at_once), hidden=_packing(target, problem.columns))
    packed = _packing(target, problem.input_size)
    return LanesTiling(loop, packed, _projection(target, loop, packed, workgroup, units_at_once) if is_projected else None)


def _projection(target: Target, loop: PartsLoop, packed: Packing, workgroup: int, units_at_once: int) -> ProjectionTiling:
    """Make the projection for a time loop with or without resident weights. The workers share the units of a large tile."""
    turn, row_steps, most = workgroup * units_at_once, target.problem.batch * target.problem.steps, target.profile.most_unrolled
    most_rows = _MOST_LARGE_ROWS if target.profile.large_tiles else _MOST_ROWS
    rows = min(most // units_at_once, ceil_div(row_steps, _STEPS_FOR_A_ROW)) if most else min(most_rows, row_steps)
    keeps_x = target.profile.large_tiles and rows * packed.columns <= _MOST_KEPT
    turns = ceil_div(loop.units // turn, target.workers) if keeps_x else 1
    return ProjectionTiling(
        problem=target.problem, kernel="cpu/projection_lanes", lanes=target.lanes, rows=rows,
        units_at_once=units_at_once, workgroup=workgroup, block_loads=loop.block_loads, unrolled=loop.unrolled,
        units=loop.units, group_units=turns * turn, input=packed)


def _block_loads(target: Target) -> int:
    """Return how many loads of a gate's weights make a block: those that one vec4 in each lane is multiplied by."""
    return max(1, target.lanes // target.problem.element.vecs_per_load)


def _packing(target: Target, columns: int) -> Packing:
    element = target.problem.element
    return Packing(element, round_up(ceil_div(columns, element.columns_per_load), _block_loads(target)), target.lanes)


@dataclass(frozen=True)
class ResidentTiling(LanesTiling):
    """A tiling of the kernels whose recurrent weights stay in private memory: projected, in sequence."""

    @staticmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        """Yield the tilings whose weights fit into the private arrays and that do not take long to compile."""
        has_kernel = target.problem.cell.has_resident and SEQUENCE in schedules_of(target)
        if not has_kernel or target.profile.rates.resident is None:
            return
        for rows, units_at_once in _tiles_of(target):
            tiling = _resident_tiling(target, rows, units_at_once)
            loop = tiling.loop
            if (loop.arrays <= PRIVATE_ARRAYS and loop.products <= target.profile.most_resident_products
                    and loop.workgroup <= target.info.max_workgroup_invocations):
                yield tiling

    def part_seconds(self, rates: Rates) -> float:
        loop, resident, phases = self.loop, _resident(rates), self.problem.loop.phases
        loads = phases * loop.hidden.columns / (4 * loop.lanes)  # loads of h
        beside = resident.load_shared if loop.shared_state else resident.load_buffer
        of_row = loads * beside * rates.load + loop.products * resident.product
        of_row += loop.units_at_once * (rates.gate_math + rates.load)
        is_cached = loop.products * loop.workgroup * 4 <= resident.cache_bytes
        return loop.rows * of_row + phases * resident.barrier + (0 if is_cached else loop.products * resident.fetch)

    def start_seconds(self, target: Target) -> float:
        """Estimate the seconds of loading the resident weights."""
        rates = target.profile.rates
        of_subgroup = self.loop.products * (rates.load / 4 + _resident(rates).store)
        return spread(self.loop, self.loop.workgroups, of_subgroup, target)

    def compile_seconds(self, target: Target) -> float:
        shares = target.profile.compiling
        return super().compile_seconds(target) + (shares.resident_loop + self.loop.products * shares.resident_product)

    def loops_once(self) -> int:
        """Bound the loop that loads the resident weights into the private arrays."""
        return loops(self.loop.hidden.loads, loops(1) + (self.loop.arrays - 1) * loops(0))

    def phase_loops(self, gates: int) -> int:
        """Bound a phase, whose products are unrolled."""
        return loops(self.loop.rows, loops(self.loop.units_at_once))


def _resident_tiling(target: Target, rows: int, units_at_once: int) -> ResidentTiling:
    problem, lanes = target.problem, target.lanes
    workgroup = round_up(ceil_div(problem.hidden, units_at_once), lanes)
    loads = round_up(problem.hidden, ARRAY_COLUMNS) // problem.element.columns_per_load
    loop = PartsLoop(
        resident=True, problem=problem, kernel=f"cpu/{problem.cell.kernel}_resident", schedule=SEQUENCE, lanes=lanes, rows=rows,
        units_at_once=units_at_once, parts=1, workgroup=workgroup, block_loads=_block_loads(target),
        units=round_up(problem.hidden, workgroup * units_at_once), hidden=Packing(problem.element, loads, lanes))
    loop = replace(loop, shared_state=loop.may_share_state(target))
    packed = _packing(target, problem.input_size)
    projected = _projection(target, loop, packed, lanes, 2 if loop.units % (2 * lanes) == 0 else 1)
    return ResidentTiling(loop, packed, projected)


def _resident(rates: Rates) -> ResidentRates:
    assert rates.resident
    return rates.resident
