"""The families of kernels: one table. A target has the tilings of all that run on it."""

from __future__ import annotations

from collections.abc import Callable

from ..tiling import Target, Tiling
from .cpu_tiling import LanesTiling, ResidentTiling
from .float64_tiling import Float64Tiling
from .gpu_tiling import GpuTiling

FAMILIES: dict[type[Tiling], Callable[[Target], bool]] = {
    GpuTiling: lambda target: target.lanes == 1 and not target.problem.element.pairs,
    LanesTiling: lambda target: target.lanes > 1,
    ResidentTiling: lambda target: target.lanes > 1 and target.machine.profile.rates.resident is not None,
    Float64Tiling: lambda target: target.problem.element.pairs,
}


def families_of(target: Target) -> list[type[Tiling]]:
    return [family for family, runs in FAMILIES.items() if runs(target)]
