"""The families of kernels: one table. Those that run a target are all candidates for it."""

from __future__ import annotations

from .cpu.lanes_tiling import LanesTiling
from .cpu.resident_tiling import ResidentTiling
from .float64.float64_tiling import Float64Tiling
from .gpu.gpu_tiling import GpuTiling
from .target import Target
from .tiling import Tiling

FAMILIES: tuple[type[Tiling], ...] = (GpuTiling, LanesTiling, ResidentTiling, Float64Tiling)


def families_of(target: Target) -> list[type[Tiling]]:
    return [family for family in FAMILIES if family.runs(target)]
