"""What a time step takes on a GPU: a model of multiply-adds, bytes, waiting and dispatches.

It ranks tilings; a GPU's tuner measures.
"""

from __future__ import annotations

from ...operators.whole_numbers import ceil_div
from ..gpus import GpuRates
from ..options import FLOW, PERSISTENT, SEQUENCE
from ..target import Machine
from .gpu_loop import GpuLoop, resident_workgroups

_TILE_INSTRUCTIONS, _ROW_INSTRUCTIONS = 230, 20  # of an invocation, beside its multiply-adds, as compilers make it
_TILE_CYCLES, _ROW_CYCLES, _CYCLES_OF_MULTIPLY_ADD = 600, 130, 2.5  # of a subgroup by itself, likewise
_SYNCHRONIZATION_CYCLES = 150  # of a phase: two barriers of the workgroup, with the latency of shared memory
_NOT_SIDE_BY_SIDE = 1.0  # seconds: parts that may wait for ones that have not begun


def step_seconds(loop: GpuLoop, machine: Machine) -> float:
    """Of one time step."""
    rates, phases = machine.gpu, loop.problem.loop.phases
    alone = _alone(loop, rates) + phases * _exposed(loop, rates)
    tile = max(_instructions(loop, rates), _shared(loop, rates), _cache(loop, rates), alone)
    step = loop.tiles_of_group * loop.turns * tile
    if loop.schedule == SEQUENCE:
        return step
    if loop.schedule != PERSISTENT:
        return step + phases * machine.profile.rates.dispatch + _kept(loop, rates)
    return step + phases * (rates.seen if loop.meeting == FLOW else rates.meeting)


def start_seconds(loop: GpuLoop, machine: Machine) -> float:
    """Of a dispatch of many steps: its weights are loaded, and what has no room waits, in vain, for what waits for it."""
    excess = ceil_div(loop.workgroups, max(1, resident_workgroups(loop, machine))) - 1
    return _kept(loop, machine.gpu) + (excess * _NOT_SIDE_BY_SIDE if loop.schedule == PERSISTENT else 0)


# Of one turn of a tile, in all workgroups

def _instructions(loop: GpuLoop, rates: GpuRates) -> float:
    """Of one unit, which has several workgroups."""
    products = loop.workgroup * _multiply_adds(loop)
    others = loop.workgroup * (_TILE_INSTRUCTIONS + loop.rows * _ROW_INSTRUCTIONS)
    return _of_unit(loop, rates) * (products + others) / (rates.lanes * rates.clock)


def _alone(loop: GpuLoop, rates: GpuRates) -> float:
    """Of a subgroup by itself, which waits for each result that it needs."""
    return (_TILE_CYCLES + loop.rows * _ROW_CYCLES + _CYCLES_OF_MULTIPLY_ADD * _multiply_adds(loop)) / rates.clock


def _shared(loop: GpuLoop, rates: GpuRates) -> float:
    """Of the bytes from shared memory."""
    vectors = loop.group_loads * loop.problem.element.vecs_per_load * loop.rows
    size = loop.workgroup * 16 * (vectors + loop.shared_loads * len(loop.problem.cell.gates))
    return _of_unit(loop, rates) * size / (rates.shared_rate * rates.clock)


def _cache(loop: GpuLoop, rates: GpuRates) -> float:
    """Of the bytes from the second-level cache: streamed weights, h and the input's part."""
    streamed = loop.workgroup * loop.streamed_loads * len(loop.problem.cell.gates) * 16
    h = 0 if loop.schedule == SEQUENCE else loop.rows * loop.vector_bytes
    return loop.workgroups * (streamed + h + loop.rows * loop.turn_units * 16) / rates.cache_rate


def _exposed(loop: GpuLoop, rates: GpuRates) -> float:
    """Waiting that nothing hides, in a phase: for h, or the first streamed weights, and for the workgroup's barriers."""
    waits = loop.schedule != SEQUENCE or loop.streamed_loads > 0
    return waits * rates.latency + _SYNCHRONIZATION_CYCLES / rates.clock


def _kept(loop: GpuLoop, rates: GpuRates) -> float:
    """Of loading what stays, in all workgroups."""
    loads = (loop.register_loads + loop.shared_loads) * len(loop.problem.cell.gates)
    return rates.latency + loop.workgroups * loop.workgroup * loads * 16 / rates.cache_rate


def _of_unit(loop: GpuLoop, rates: GpuRates) -> int:
    return ceil_div(loop.workgroups, rates.units)


def _multiply_adds(loop: GpuLoop) -> int:
    """Of an invocation."""
    return loop.group_loads * loop.problem.element.columns_per_load * loop.sum_registers
