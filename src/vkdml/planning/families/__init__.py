"""A table of the families of kernels, by the folder in shaders/ that has their kernels."""

from __future__ import annotations

from ..tiling import Tiling
from .cpu_tiling import LanesTiling, ResidentTiling
from .float64_tiling import Float64Tiling
from .gpu_tiling import GpuTiling

FAMILIES: dict[str, tuple[type[Tiling], ...]] = {
    "gpu": (GpuTiling,), "cpu": (LanesTiling, ResidentTiling), "float64": (Float64Tiling,)}
