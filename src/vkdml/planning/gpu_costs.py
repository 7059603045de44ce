"""What a time step takes on a GPU: a model of multiply-adds, bytes, waiting and dispatches.

It ranks tilings; a GPU's tuner measures.
"""

from __future__ import annotations

from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .gpu_loop import GpuLoop, resident_workgroups
from .options import FLOW, PERSISTENT, SEQUENCE
from .profiles import compute_units, gpu_rates

_TILE_INSTRUCTIONS, _ROW_INSTRUCTIONS = 230, 20  # of an invocation, beside its multiply-adds, as compilers make it
_TILE_CYCLES, _ROW_CYCLES, _CYCLES_OF_MULTIPLY_ADD = 600, 130, 2.5  # of a subgroup by itself, likewise
_SYNCHRONIZATION_CYCLES = 150  # of a phase: two barriers of the workgroup, with the latency of shared memory
_NOT_SIDE_BY_SIDE = 1.0  # seconds: parts that may wait for ones that have not begun


class GpuCosts:
    """The model of a GPU. dispatch: seconds of one that waits for the one before."""

    def __init__(self, info: DeviceInfo, dispatch: float) -> None:
        self._info, self._dispatch = info, dispatch
        self.rates, self._units = gpu_rates(info), compute_units(info)

    def step_seconds(self, loop: GpuLoop) -> float:
        """Of one time step."""
        phases = loop.problem.loop.phases
        alone = self._alone(loop) + phases * self._exposed(loop)
        tile = max(self._instructions(loop), self._shared(loop), self._cache(loop), alone)
        step = loop.tiles_of_group * loop.turns * tile
        if loop.schedule == SEQUENCE:
            return step
        if loop.schedule != PERSISTENT:
            return step + phases * self._dispatch + self._kept(loop)
        return step + phases * (self.rates.seen if loop.meeting == FLOW else self.rates.meeting)

    def start_seconds(self, loop: GpuLoop) -> float:
        """Of a dispatch of many steps: its weights are loaded, and what has no room waits, in vain, for what waits for it."""
        excess = ceil_div(loop.workgroups, max(1, resident_workgroups(loop, self._info))) - 1
        return self._kept(loop) + (excess * _NOT_SIDE_BY_SIDE if loop.schedule == PERSISTENT else 0)

    # Of one turn of a tile, in all workgroups

    def _instructions(self, loop: GpuLoop) -> float:
        """Of one unit, which has several workgroups."""
        products = loop.workgroup * _multiply_adds(loop)
        others = loop.workgroup * (_TILE_INSTRUCTIONS + loop.rows * _ROW_INSTRUCTIONS)
        return self._of_unit(loop) * (products + others) / (self.rates.lanes * self.rates.clock)

    def _alone(self, loop: GpuLoop) -> float:
        """Of a subgroup by itself, which waits for each result that it needs."""
        cycles = _TILE_CYCLES + loop.rows * _ROW_CYCLES + _CYCLES_OF_MULTIPLY_ADD * _multiply_adds(loop)
        return cycles / self.rates.clock

    def _shared(self, loop: GpuLoop) -> float:
        """Of the bytes from shared memory."""
        gates = len(loop.problem.cell.gates)
        vectors = loop.group_loads * loop.problem.element.vecs_per_load * loop.rows
        size = loop.workgroup * 16 * (vectors + loop.shared_loads * gates)
        return self._of_unit(loop) * size / (self.rates.shared_rate * self.rates.clock)

    def _cache(self, loop: GpuLoop) -> float:
        """Of the bytes from the second-level cache: streamed weights, h and the input's part."""
        streamed = loop.workgroup * loop.streamed_loads * len(loop.problem.cell.gates) * 16
        h = 0 if loop.schedule == SEQUENCE else loop.rows * loop.vector_bytes
        return loop.workgroups * (streamed + h + loop.rows * loop.turn_units * 16) / self.rates.cache_rate

    def _exposed(self, loop: GpuLoop) -> float:
        """Waiting that nothing hides, in a phase: for h, or the first streamed weights, and for the workgroup's barriers."""
        waits = loop.schedule != SEQUENCE or loop.streamed_loads > 0
        return waits * self.rates.latency + _SYNCHRONIZATION_CYCLES / self.rates.clock

    def _kept(self, loop: GpuLoop) -> float:
        """Of loading what stays, in all workgroups."""
        loads = (loop.register_loads + loop.shared_loads) * len(loop.problem.cell.gates)
        return self.rates.latency + loop.workgroups * loop.workgroup * loads * 16 / self.rates.cache_rate

    def _of_unit(self, loop: GpuLoop) -> int:
        return ceil_div(loop.workgroups, self._units)


def _multiply_adds(loop: GpuLoop) -> int:
    """Of an invocation."""
    return loop.group_loads * loop.problem.element.columns_per_load * loop.sum_registers
