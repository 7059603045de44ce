"""The code that the families for CPU drivers and for float64 share.

A workgroup runs the steps of its rows alone (sequence), or parts share the units of each step (stepped). A subgroup's
time is that of its loads, its products and its gate math, at the rates of the device's profile; workgroups are spread over its
workers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ...operators.checks import ceil_div, power_of_two
from ..dispatches import WORKGROUPS_EVERYWHERE
from ..loop_dispatches import in_order
from ..options import SEQUENCE, STEPPED
from ..profiles import Rates
from ..tiling import KernelTiling, LoopTiling, Packing, Target, Tiling, TimedDispatches, gates_of_phases, loops, loops_of_phases

LEAST_PART_UNITS = 32  # fewest units of a part if the profile bounds the parts of a tile
ARRAY_COLUMNS = 32  # columns of weights in a private array
_SHARED_SLOTS = 2  # slots in shared memory beside resident weights: the memory of a third is better used for more rows


@dataclass(frozen=True, kw_only=True)
class PartsLoop(LoopTiling):
    """One way to run the time loop on CPU drivers or in float64. All slots of a tile's state are contiguous.

    resident: whether a workgroup holds all units, and their recurrent weights stay in private memory.
    """

    resident: bool = False

    @property
    def products(self) -> int:
        """How many products an invocation computes for a row of h."""
        return self.hidden.columns * self.units_at_once * self.problem.loop.products

    @property
    def arrays(self) -> int:
        """How many private arrays hold a unit's weights."""
        return self.hidden.columns // ARRAY_COLUMNS

    @property
    def turn_units(self) -> int:
        """How many units a workgroup computes at once."""
        return self.workgroup * self.units_at_once

    @property
    def part_units(self) -> int:
        return ceil_div(self.units // self.turn_units, self.parts) * self.turn_units

    @property
    def dispatches(self) -> int:
        """How many dispatches run all steps. Stepped, one more writes the first state."""
        return 1 + self.problem.steps * self.problem.loop.phases if self.schedule == STEPPED else self.chunks

    @property
    def shared_slots(self) -> int:
        """How many vectors of the state may be in shared memory."""
        return min(self.problem.loop.slots, _SHARED_SLOTS) if self.resident else self.problem.loop.slots

    @property
    def constants(self) -> dict[str, int]:
        return {"ARRAY_COLUMNS": ARRAY_COLUMNS, "SHARED_SLOTS": self.shared_slots} if self.resident else {}

    @property
    def shared_bytes(self) -> int:
        return self.shared_slots * self._slot_bytes

    @property
    def states_bytes(self) -> int:
        return self.problem.loop.slots * self._slot_bytes * self.problem.directions * self.tiles

    @property
    def _slot_bytes(self) -> int:
        element = self.problem.element
        return self.rows * self.hidden.loads * element.vecs_per_load * element.real4_bytes

    def may_share_state(self, target: Target) -> bool:
        """Whether the options allow the state in shared memory, and it fits."""
        fits = self.schedule == SEQUENCE and self.shared_bytes <= target.info.max_shared_memory
        return fits and target.options.shared_state is not False


@dataclass(frozen=True)
class PartsTiling(Tiling):
    """A tiling with a PartsLoop. product_cost: the time of a product, as a multiple of that of a float32 product."""

    loop: PartsLoop
    product_cost: ClassVar[int] = 1

    # Defined by each family

    @abstractmethod
    def phase_loops(self, gates: int) -> int:
        """Bound the iterations of a phase that multiplies this many gates."""

    @staticmethod
    @abstractmethod
    def product_loops(tiling: KernelTiling, packing: Packing, gates: int) -> int:
        """Bound the iterations of a tile's products with the weights of the units that an invocation computes together."""

    # Common to these families

    def step_estimate(self, target: Target) -> float:
        return spread(self.loop, self.loop.workgroups, self.part_seconds(target.profile.rates), target)

    def part_seconds(self, rates: Rates) -> float:
        """Estimate the seconds of a part's subgroup in a time step."""
        loop = self.loop
        at_once = loop.rows * loop.units_at_once
        input_part = at_once * rates.load if self.projection else self._product_seconds(loop, self.input, rates)
        of_turn = self._product_seconds(loop, loop.hidden, rates) + at_once * rates.gate_math + input_part
        return loop.part_units // loop.turn_units * of_turn

    def projection_estimate(self, target: Target, steps: int) -> float:
        projection, rates = self.projection, target.profile.rates
        assert projection
        of_turn = self._product_seconds(projection, projection.input, rates, projection.turns)
        stores = projection.rows * projection.units_at_once
        workgroups = projection.tiles(steps) * projection.groups_of_units * projection.problem.directions
        return spread(projection, workgroups, projection.turns * (of_turn + stores * rates.load), target)

    def _product_seconds(self, tiling: KernelTiling, packing: Packing, rates: Rates, turns: int = 1) -> float:
        """Estimate the seconds of a subgroup's products of a tile's rows with all gates' weights of its units.

        turns: how many times rows that are loaded once are multiplied, each time with the weights of other units.
        """
        element = tiling.problem.element
        of_unit = tiling.problem.loop.products if packing is self.loop.hidden else len(tiling.problem.cell.gates)
        gates = of_unit * tiling.units_at_once
        vectors = tiling.rows * element.vecs_per_load * tiling.problem.loop.phases / tiling.block_loads / turns  # per load
        product = rates.product_alone if tiling.rows * tiling.units_at_once == 1 else rates.product
        product *= self.product_cost
        return packing.loads * ((gates + vectors) * rates.load + gates * tiling.rows * element.vecs_per_load * product)

    def loops_of_step(self) -> int:
        return loops_of_phases(self.loop, [self.phase_loops(gates) for gates in gates_of_phases(self.problem)])

    def turn_loops(self, gates: int, turn: int) -> int:
        """Bound the iterations of all turns of a part, each with the input's products if they are fused."""
        fused = 0 if self.projection else self.product_loops(self.loop, self.input, gates)
        return loops(self.loop.part_units // self.loop.turn_units, fused + turn)

    def loops_of_projection(self) -> int:
        """Bound a projection's tile: it finds its samples one after the other, in any batch, loads and multiplies them."""
        projection = self.projection
        assert projection
        find = loops(projection.counted_rows + projection.rows)
        products = self.product_loops(projection, projection.input, len(self.problem.cell.gates))
        load = loops(projection.rows, loops(projection.input.loads // projection.block_loads)) if projection.turns > 1 else 0
        return find + load + loops(projection.turns, products + loops(projection.rows * projection.units_at_once))

    def dispatched_tiles(self, steps: int) -> int:
        """Return how many tiles are dispatched: with lengths a power of two, so that `spread` in shaders/cpu/ can mix them."""
        tiles = super().dispatched_tiles(steps)
        spread = power_of_two(tiles) if self.problem.has("SequenceLengthsTensor") else tiles
        return spread if spread <= WORKGROUPS_EVERYWHERE else tiles

    def dispatches(self, target: Target) -> TimedDispatches:
        return in_order(target, self)


def spread(tiling: KernelTiling, workgroups: int, of_subgroup: float, target: Target) -> float:
    """Estimate the seconds of workgroups spread over workers. of_subgroup: seconds of each subgroup of a workgroup."""
    subgroups = ceil_div(tiling.workgroup, target.info.subgroup_size)
    at_once = min(subgroups, target.profile.core_subgroups)
    return ceil_div(workgroups * at_once, target.workers) * ceil_div(subgroups, at_once) * of_subgroup


def schedules_of(target: Target) -> list[str]:
    """List the schedules that these kernels have and the options allow."""
    # Not persistent: on a busy CPU, its calls stalled for up to 1.9 s
    return [schedule for schedule in (SEQUENCE, STEPPED) if target.options.schedule in (None, schedule)]


def parts_of(target: Target, schedule: str, rows: int, turn: int) -> int | None:
    """Choose how many workgroups share a tile's units; None if they cannot be split. turn: units that a workgroup computes at
    once.
    """
    if schedule == SEQUENCE:
        return 1
    problem, profile = target.problem, target.profile
    if target.options.parts:
        return target.options.parts if target.options.parts > 1 else None
    if profile.most_parts:
        parts = min(profile.most_parts, ceil_div(problem.hidden, LEAST_PART_UNITS))
    else:
        tiles = problem.directions * ceil_div(problem.batch, rows)
        parts = min(target.workers // tiles, ceil_div(problem.hidden, turn))
    return max(parts, 2) if target.options.schedule == STEPPED else parts if parts > 1 else None
