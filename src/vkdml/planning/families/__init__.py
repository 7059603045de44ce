"""The families of kernels: one table. Each says which problems and devices it is for."""

from __future__ import annotations

from ..tiling import Tiling
from .cpu_tiling import LanesTiling, ResidentTiling
from .float64_tiling import Float64Tiling
from .gpu_tiling import GpuTiling

FAMILIES: tuple[type[Tiling], ...] = (GpuTiling, LanesTiling, ResidentTiling, Float64Tiling)
