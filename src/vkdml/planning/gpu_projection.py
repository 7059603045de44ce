"""The projection on GPUs: the tiles of its matrix product, what they take, and what its kernel is told of them.

docs/bench/gpu-check.md has the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, power_of_two
from .device_info import DeviceInfo
from .gpu_loop import TOGETHER
from .gpus import GpuRates
from .profiles import GPU, DeviceProfile
from .tiling import Layout, ProjectionTiling

_LEAST_BLOCK_VECS = 4  # that small tiles multiply at once
_PITCH_VECS, _SAMPLE_BYTES = 2, 8  # of shared memory: that pad a vec of all samples, and what is kept of a sample
_VEC_CYCLES = 60  # a lone workgroup waits for shared memory, for each vec
_BLOCK_INSTRUCTIONS = 60  # of an invocation, for a block, beside its multiply-adds and its loads from shared memory
_SHARED_VEC_BYTES = 16


@dataclass(frozen=True)
class _Tile:
    """Samples and units of a workgroup, for cells of several gates.

    unit_lanes: invocations side by side in the units. block_vecs: vec4s of columns that are in shared memory at once: more
    where an invocation has few sums, so that as much is on its way from memory. registers: that compilers take for an
    invocation, on the GPUs that have least of them.
    """

    samples: int
    units: int
    unit_lanes: int
    workgroup: int
    block_vecs: int
    registers: int


# The larger, the less is loaded for a product; the smaller, the more workgroups there are
_TILES = (
    _Tile(128, 32, 16, 256, 2, 160),
    _Tile(64, 32, 32, 256, 4, 96),
    _Tile(32, 16, 16, 128, 8, 64),
    _Tile(16, 16, 16, 128, 8, 64),
    _Tile(8, 8, 8, 64, 16, 0),
)


def layout(problem: Problem) -> Layout:
    """Of the input weights, for tiles of any shape."""
    return Layout(problem.element, ceil_div(problem.input_size, problem.element.columns_per_load), TOGETHER)


def tilings(problem: Problem, info: DeviceInfo, profile: DeviceProfile, packed: Layout, units: int) -> list[ProjectionTiling]:
    """All that a device can run; they differ in time, not in results. packed: the weights' layout. units: H, rounded up."""
    fitting = [tile for tile in _TILES if profile.gpu is None or tile.registers <= profile.gpu.invocation_registers]
    found = [_tiling(problem, tile, packed, units) for tile in fitting]
    return [tiling for tiling in found if tiling.workgroup <= info.max_workgroup_invocations
            and shared_bytes(tiling) <= info.max_shared_memory]


def _tiling(problem: Problem, tile: _Tile, packed: Layout, units: int) -> ProjectionTiling:
    gates, element = len(problem.cell.gates), problem.element
    widen = 2 if gates == 1 else 1  # sums enough for one gate
    vecs = min(tile.block_vecs, max(_LEAST_BLOCK_VECS, power_of_two(ceil_div(problem.input_size, 4))))
    return ProjectionTiling(
        problem=problem, kernel=GPU, lanes=1, rows=tile.samples, units_at_once=widen * tile.units // tile.unit_lanes,
        workgroup=tile.workgroup, block_loads=vecs // element.vecs_per_load, unrolled=False, units=units,
        group_units=widen * tile.units, input=packed)


def constants(tiling: ProjectionTiling) -> dict[str, int]:
    """Beside those of all kernels."""
    return {"UNIT_LANES": _unit_lanes(tiling), "BLOCK_LOADS": tiling.block_loads, "TOGETHER": tiling.input.together}


def blocks(tiling: ProjectionTiling) -> int:
    """Of columns, which a workgroup multiplies one after the other."""
    return ceil_div(tiling.input.loads, tiling.block_loads)


def shared_bytes(tiling: ProjectionTiling) -> int:
    """Of a workgroup."""
    of_vec = tiling.rows + _PITCH_VECS + _weight_rows(tiling)
    return tiling.rows * _SAMPLE_BYTES + _SHARED_VEC_BYTES * (_block_vecs(tiling) * of_vec + 1)


def seconds(tiling: ProjectionTiling, steps: int, rates: GpuRates) -> float:
    """Of so many time steps: the longest of what may bound them.

    These are its instructions and the bytes from shared memory, on the unit with most workgroups; the blocks of a lone
    workgroup, which wait for their loads, one after the other; and the bytes from the second-level cache. Then the result is
    stored.
    """
    workgroups = tiling.tiles(steps) * tiling.groups_of_units * tiling.problem.directions
    of_unit = ceil_div(workgroups, rates.units)  # workgroups of the unit with most
    vecs, rows = blocks(tiling) * _block_vecs(tiling), tiling.rows + _weight_rows(tiling)
    products = 4 * vecs * tiling.rows * _weight_rows(tiling)
    loaded = vecs * tiling.workgroup * (samples_at_once(tiling) + tiling.units_at_once * len(tiling.problem.cell.gates))
    issued = products + loaded + blocks(tiling) * tiling.workgroup * _BLOCK_INSTRUCTIONS
    busy = of_unit * max(issued / rates.lanes, loaded * _SHARED_VEC_BYTES / rates.shared_rate) / rates.clock
    alone = (vecs * _VEC_CYCLES + products / min(tiling.workgroup, rates.lanes)) / rates.clock
    rounds = ceil_div(of_unit, max(1, rates.most_invocations // tiling.workgroup))
    waiting = rounds * max(blocks(tiling) * rates.latency, alone)
    cached = workgroups * rows * 4 * vecs * tiling.problem.element.itemsize / rates.cache_rate
    return max(busy, waiting, cached) + steps * tiling.step_bytes / rates.memory_rate


def samples_at_once(tiling: ProjectionTiling) -> int:
    """Of an invocation."""
    return tiling.rows * _unit_lanes(tiling) // tiling.workgroup


def _unit_lanes(tiling: ProjectionTiling) -> int:
    return tiling.group_units // tiling.units_at_once


def _weight_rows(tiling: ProjectionTiling) -> int:
    """Rows of the weights' matrix in a tile: all gates of its units."""
    return tiling.group_units * len(tiling.problem.cell.gates)


def _block_vecs(tiling: ProjectionTiling) -> int:
    return tiling.block_loads * tiling.problem.element.vecs_per_load
