"""What a tiling takes, in seconds: a small model that need only rank tilings.

A subgroup's time is that of its loads, its products and its gate math, at the rates of the device's profile; workgroups are
spread over the device's workers.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

from ..spec.whole_numbers import ceil_div
from . import gpu_projection, profiles
from .device_info import DeviceInfo
from .gpu_costs import GpuCosts
from .gpu_loop import GpuLoop
from .options import PERSISTENT, STEPPED
from .profiles import FLOAT64, GPU, LANES, RESIDENT
from .tiling import KernelTiling, Layout, LoopTiling, ProjectionTiling, Tiling

T = TypeVar("T")

SUBMISSION_SECONDS = 0.5  # most work in one, by the model: drivers kill what runs for seconds

_VALID_STEPS = 0.75  # of a row, where lengths are given: a guess
_FLOAT64_PRODUCT = 20  # of pairs of floats, by products of floats


class Costs:
    """The model of a device."""

    def __init__(self, info: DeviceInfo) -> None:
        profile = profiles.profile(info)
        self.rates, self.compiling, self._core_subgroups = profile.rates, profile.compiling, profile.core_subgroups
        self.workers = profile.workers or info.cores
        self._subgroup_size = info.subgroup_size
        self._info = info

    @cached_property
    def _gpu(self) -> GpuCosts:
        """Of the kernels for GPUs."""
        return GpuCosts(self._info, self.rates.dispatch)

    def seconds(self, tiling: Tiling) -> float:
        """Of an execution, with its share of compiling."""
        return self.run_seconds(tiling) + self.compile_seconds(tiling)

    def run_seconds(self, tiling: Tiling) -> float:
        loop, steps = tiling.loop, tiling.problem.steps
        stepped = loop.schedule == STEPPED
        chunks = ceil_div(steps, loop.chunk_steps)
        dispatches = 1 + steps * loop.problem.loop.phases if stepped else chunks
        dispatches += loop.schedule == PERSISTENT
        total = steps * self.step_seconds(tiling)
        if loop.kernel == RESIDENT:
            total += dispatches * self._resident_start(loop)
        if isinstance(loop, GpuLoop):
            total += chunks * self._gpu.start_seconds(loop)
            dispatches += 1 if stepped else chunks if loop.schedule == PERSISTENT else 0  # begins, or the end
        if tiling.projection:
            share = _VALID_STEPS if tiling.projection.skips_padding else 1
            total += share * self.projection_seconds(tiling.projection, steps)
            dispatches += ceil_div(steps, tiling.projection.chunk_steps)
        if loop.parts > 1 or tiling.projection:
            total += self.rates.second_worker
        if stepped:
            total += (dispatches - 2) * self.rates.late_worker
        return total + self.rates.submission + dispatches * self.rates.dispatch

    def compile_seconds(self, tiling: Tiling) -> float:
        loop, shares = tiling.loop, self.compiling
        total = loop.rows * loop.units_at_once * shares.row_of_unit
        if loop.kernel == RESIDENT:
            total += shares.resident_loop + loop.resident_products * shares.resident_product
        return total

    def step_seconds(self, tiling: Tiling) -> float:
        """Of one time step."""
        if isinstance(tiling.loop, GpuLoop):
            return self._gpu.step_seconds(tiling.loop)
        return self._spread(tiling.loop, tiling.loop.workgroups, self._part(tiling))

    def projection_seconds(self, projection: ProjectionTiling, steps: int) -> float:
        """Of so many time steps."""
        if projection.kernel == GPU:
            return gpu_projection.seconds(projection, steps, self._gpu.rates)
        of_tile = self._products(projection, projection.input)
        stores = projection.rows * projection.units_at_once
        workgroups = projection.tiles(steps) * projection.groups_of_units * projection.problem.directions
        return self._spread(projection, workgroups, of_tile + stores * self.rates.load)

    def _part(self, tiling: Tiling) -> float:
        """Of a part's subgroup in a time step."""
        if tiling.loop.kernel == RESIDENT:
            return self._resident_part(tiling.loop)
        loop, rates = tiling.loop, self.rates
        at_once = loop.rows * loop.units_at_once
        input_part = at_once * rates.load if tiling.projection else self._products(loop, tiling.input)
        of_turn = self._products(loop, loop.hidden) + at_once * rates.gate_math + input_part
        return loop.part_units // loop.turn_units * of_turn

    def _resident_part(self, loop: LoopTiling) -> float:
        rates, phases = _given(self.rates.resident), loop.problem.loop.phases
        loads = phases * loop.hidden.columns / (4 * loop.lanes)  # of h
        beside = rates.load_shared if loop.shared_state else rates.load_buffer
        of_row = loads * beside * self.rates.load + loop.resident_products * rates.product
        of_row += loop.units_at_once * (self.rates.gate_math + self.rates.load)
        is_cached = loop.resident_products * loop.workgroup * 4 <= rates.cache_bytes
        return loop.rows * of_row + phases * rates.barrier + (0 if is_cached else loop.resident_products * rates.fetch)

    def _resident_start(self, loop: LoopTiling) -> float:
        """Of a dispatch's loads of the weights that stay."""
        of_subgroup = loop.resident_products * (self.rates.load / 4 + _given(self.rates.resident).store)
        return self._spread(loop, loop.workgroups, of_subgroup)

    def _products(self, tiling: KernelTiling, layout: Layout) -> float:
        """Of a subgroup's products of a tile's rows with all gates' weights of its units."""
        rates, element = self.rates, tiling.problem.element
        gates = len(tiling.problem.cell.gates) * tiling.units_at_once
        sharing = tiling.block_loads if tiling.kernel == LANES else 1  # loads of weights for each of a vector
        vectors = tiling.rows * element.vecs_per_load * tiling.problem.loop.phases / sharing
        product = rates.product_alone if tiling.rows * tiling.units_at_once == 1 else rates.product
        product *= _FLOAT64_PRODUCT if tiling.kernel == FLOAT64 else 1
        return layout.loads * ((gates + vectors) * rates.load + gates * tiling.rows * element.vecs_per_load * product)

    def _spread(self, tiling: KernelTiling, workgroups: int, of_subgroup: float) -> float:
        """Seconds of so many workgroups, each of whose subgroups takes `of_subgroup`. A worker runs whole workgroups."""
        subgroups = ceil_div(tiling.workgroup, self._subgroup_size)
        at_once = min(subgroups, self._core_subgroups)
        return ceil_div(workgroups * at_once, self.workers) * ceil_div(subgroups, at_once) * of_subgroup


def _given(rates: T | None) -> T:
    """The rates of kernels that the profile has."""
    assert rates
    return rates
