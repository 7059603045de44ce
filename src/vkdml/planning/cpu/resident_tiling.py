"""The kernels whose recurrent weights stay in private memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...operators.whole_numbers import ceil_div, round_up
from ..cuts import Layout
from ..iterations import Loops, loops
from ..options import SEQUENCE
from ..parts import schedules_of, spread
from ..profiles import PRIVATE_ARRAYS, Rates, ResidentRates
from ..target import Machine, Target
from ..tiling import Tiling
from .lanes_tiling import LanesLoop, LanesTiling, block_loads, layout, projection, tiles_of

_ARRAY_COLUMNS = 32  # of a private array
_SHARED_SLOTS = 2  # the third is better used for more rows


@dataclass(frozen=True, kw_only=True)
class ResidentLoop(LanesLoop):
    """Of the time loop: a workgroup holds all units."""

    @property
    def products(self) -> int:
        """Of an invocation, for a row."""
        return self.hidden.columns * self.units_at_once * len(self.problem.cell.gates)

    @property
    def arrays(self) -> int:
        return self.hidden.columns // _ARRAY_COLUMNS

    @property
    def shared_slots(self) -> int:
        return min(self.problem.loop.slots, _SHARED_SLOTS)

    @property
    def properties(self) -> dict[str, Any]:
        return {**super().properties, "resident": True}

    @property
    def constants(self) -> dict[str, int]:
        return {"ARRAY_COLUMNS": _ARRAY_COLUMNS, "SHARED_SLOTS": self.shared_slots}


@dataclass(frozen=True)
class ResidentTiling(LanesTiling):
    """Projected, in sequence."""

    loop: ResidentLoop

    @staticmethod
    def runs(target: Target) -> bool:
        return LanesTiling.runs(target) and target.machine.profile.rates.resident is not None

    @staticmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        """Those with arrays enough, for which compilers need not take long."""
        if SEQUENCE not in schedules_of(target):
            return
        profile = target.machine.profile
        for rows, units_at_once in tiles_of(target):
            tiling = _tiling(target, rows, units_at_once)
            has_room = tiling.loop.arrays <= PRIVATE_ARRAYS and tiling.loop.products <= profile.most_resident_products
            most = target.options.workgroup or target.machine.info.max_workgroup_invocations
            if has_room and tiling.loop.workgroup <= most:
                yield tiling

    def part_seconds(self, rates: Rates) -> float:
        loop, resident, phases = self.loop, _resident(rates), self.problem.loop.phases
        loads = phases * loop.hidden.columns / (4 * loop.lanes)  # of h
        beside = resident.load_shared if loop.shared_state else resident.load_buffer
        of_row = loads * beside * rates.load + loop.products * resident.product
        of_row += loop.units_at_once * (rates.gate_math + rates.load)
        is_cached = loop.products * loop.workgroup * 4 <= resident.cache_bytes
        return loop.rows * of_row + phases * resident.barrier + (0 if is_cached else loop.products * resident.fetch)

    def start_seconds(self, machine: Machine) -> float:
        """The loads of the weights that stay."""
        rates = machine.profile.rates
        of_subgroup = self.loop.products * (rates.load / 4 + _resident(rates).store)
        return spread(self.loop, self.loop.workgroups, of_subgroup, machine)

    def compile_seconds(self, machine: Machine) -> float:
        shares = machine.profile.compiling
        return super().compile_seconds(machine) + (shares.resident_loop + self.loop.products * shares.resident_product)

    def loops_once(self) -> Loops:
        """Each load goes to one of the arrays."""
        return loops(self.loop.hidden.loads, loops(1) + (self.loop.arrays - 1) * loops(0))

    def phase_loops(self, gates: int) -> Loops:
        """Products are unrolled."""
        return loops(self.loop.rows, loops(self.loop.units_at_once))


def _tiling(target: Target, rows: int, units_at_once: int) -> ResidentTiling:
    problem, lanes = target.problem, target.lanes
    workgroup = round_up(ceil_div(problem.hidden, units_at_once), lanes)
    loads = round_up(problem.hidden, _ARRAY_COLUMNS) // problem.element.columns_per_load
    loop = ResidentLoop(
        problem=problem, kernel=f"cpu/{problem.cell.kernel}_resident", schedule=SEQUENCE, lanes=lanes, rows=rows,
        units_at_once=units_at_once, parts=1, workgroup=workgroup, block_loads=block_loads(target),
        units=round_up(problem.hidden, workgroup * units_at_once), hidden=Layout(problem.element, loads, lanes))
    loop = replace(loop, shared_state=loop.may_share_state(target))
    packed = layout(target, problem.input_size)
    projected = projection(target, loop, packed, lanes, 2 if loop.units % (2 * lanes) == 0 else 1)
    return ResidentTiling(loop, packed, projected)


def _resident(rates: Rates) -> ResidentRates:
    assert rates.resident
    return rates.resident
