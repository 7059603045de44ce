"""The projection on GPUs: the tiles of its matrix product, their cost, and the constants of its kernel.

docs/bench/gpu-check.md has the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...operators.checks import ceil_div, power_of_two
from ...operators.problem import Problem
from ..gpus import GpuRates
from ..tiling import Packing, ProjectionTiling, Target
from .gpu_loop import TOGETHER, packed_units

_LEAST_BLOCK_VECS = 4  # fewest vec4s of columns that small tiles multiply at once
_PITCH_VECS, _SAMPLE_BYTES = 2, 8  # shared memory: vec4s that pad each vec4 of all samples, and bytes of facts about a sample
_VEC_CYCLES = 60  # cycles that a lone workgroup waits for shared memory, for each vec4
_BLOCK_INSTRUCTIONS = 60  # an invocation's instructions for a block, besides multiply-adds and loads from shared memory
_SHARED_VEC_BYTES = 16


@dataclass(frozen=True)
class _Tile:
    """The samples and units of a workgroup, for cells of several gates.

    unit_lanes: how many invocations share the units. block_vecs: vec4s of columns that are in shared memory at once: more if an
    invocation has few sums, so that as many loads are under way. registers: of an invocation, on the GPUs that have fewest.
    """

    samples: int
    units: int
    unit_lanes: int
    workgroup: int
    block_vecs: int
    registers: int


# Larger tiles load less for each product; smaller tiles make more workgroups
_TILES = (
    _Tile(128, 32, 16, 256, 2, 160),
    _Tile(64, 32, 32, 256, 4, 96),
    _Tile(32, 16, 16, 128, 8, 64),
    _Tile(16, 16, 16, 128, 8, 64),
    _Tile(8, 8, 8, 64, 16, 0),
)


@dataclass(frozen=True, kw_only=True)
class GpuProjection(ProjectionTiling):
    """The projection with one of the tiles, and its cost."""

    @property
    def constants(self) -> dict[str, int]:
        return {"UNIT_LANES": self.unit_lanes, "BLOCK_LOADS": self.block_loads, "TOGETHER": self.input.together}

    @property
    def blocks(self) -> int:
        """How many blocks of columns a workgroup multiplies, one after the other."""
        return ceil_div(self.input.loads, self.block_loads)

    @property
    def block_vecs(self) -> int:
        return self.block_loads * self.problem.element.vecs_per_load

    @property
    def unit_lanes(self) -> int:
        return self.group_units // self.units_at_once

    @property
    def weight_rows(self) -> int:
        """How many rows of the weight matrix a tile has: all gates of its units."""
        return self.group_units * len(self.problem.cell.gates)

    @property
    def shared_bytes(self) -> int:
        """Bytes of a workgroup's shared memory. surplus: unused vec4s, as the last round of loads may not be full."""
        of_vec = self.rows + _PITCH_VECS + self.weight_rows
        surplus = -self.rows * self.block_vecs % self.workgroup + -self.weight_rows * self.block_loads % self.workgroup
        return self.rows * _SAMPLE_BYTES + _SHARED_VEC_BYTES * (self.block_vecs * of_vec + surplus + 1)

    def seconds(self, steps: int, rates: GpuRates) -> float:
        """Estimate the seconds of this many time steps: the longest of several bounds, and then the stores of the result.

        The bounds are the instructions and the bytes from shared memory, on the unit with most workgroups; the blocks of a lone
        workgroup, each of which waits for its loads; and the bytes from the second-level cache, where not all may stay.
        """
        workgroups = self.tiles(steps) * self.groups_of_units * self.problem.directions
        of_unit = ceil_div(workgroups, rates.units)  # workgroups on the busiest unit
        vecs, rows = self.blocks * self.block_vecs, self.rows + self.weight_rows
        products = 4 * vecs * self.rows * self.weight_rows
        samples = self.rows * self.unit_lanes // self.workgroup  # of an invocation
        loaded = vecs * self.workgroup * (samples + self.units_at_once * len(self.problem.cell.gates))
        issued = products + loaded + self.blocks * self.workgroup * _BLOCK_INSTRUCTIONS
        busy = of_unit * max(issued / rates.lanes, loaded * _SHARED_VEC_BYTES / rates.shared_rate) / rates.clock
        alone = (vecs * _VEC_CYCLES + products / min(self.workgroup, rates.lanes)) / rates.clock
        rounds = ceil_div(of_unit, max(1, rates.most_invocations // self.workgroup))
        waiting = rounds * max(self.blocks * rates.latency, alone)
        cached = workgroups * rows * 4 * vecs * self.problem.element.itemsize / rates.cache_rate
        weights = self.problem.directions * self.units * self.input.loads * len(self.problem.cell.gates) * 16
        samples = steps * self.problem.batch * self.problem.input_size * self.problem.element.itemsize
        farther = rates.beyond_cache(weights, weights) + rates.beyond_cache(samples, samples)
        return max(busy, waiting, cached) + farther + steps * self.step_bytes / rates.memory_rate


def projections(target: Target) -> list[GpuProjection]:
    """List the projections that a device can run. They differ in time, not in results."""
    info, most = target.info, target.gpu.invocation_registers
    found = [_projection(target.problem, tile) for tile in _TILES if info.is_cpu or tile.registers <= most]
    return [projection for projection in found if projection.workgroup <= info.max_workgroup_invocations
            and projection.shared_bytes <= info.max_shared_memory]


def _projection(problem: Problem, tile: _Tile) -> GpuProjection:
    widen = 2 if len(problem.cell.gates) == 1 else 1  # so that cells of one gate have enough sums
    packed = Packing(problem.element, ceil_div(problem.input_size, problem.element.columns_per_load), TOGETHER)
    vecs = min(tile.block_vecs, max(_LEAST_BLOCK_VECS, power_of_two(ceil_div(problem.input_size, 4))))
    return GpuProjection(
        problem=problem, kernel="gpu/projection", rows=tile.samples, units_at_once=widen * tile.units // tile.unit_lanes,
        workgroup=tile.workgroup, block_loads=vecs // problem.element.vecs_per_load, units=packed_units(problem),
        group_units=widen * tile.units, input=packed)
