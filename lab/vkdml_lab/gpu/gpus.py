"""The GPUs that plans are checked for, and which driver compiles for each. Their figures are those of the planner's table
(src/vkdml/planning/gpus.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from vkdml_lab.internals import GPUS as FIGURES
from vkdml_lab.internals import GpuRates

DESKTOP, INTEGRATED, MOBILE = "desktop", "integrated", "mobile"


@dataclass(frozen=True)
class Gpu:
    """suite: Debian's, whose driver it is (drivers.py). shim: the kernel's part; none where the driver does without.

    title: the device's name where its driver makes up none. allocation: registers of a lane that are handed out together, where
    the driver takes the GPU to have fewer than it has, so that what it says of subgroups side by side is not so.
    """

    name: str
    kind: str
    suite: str
    driver: str
    environment: dict[str, str]
    rates: GpuRates
    shim: str = ""
    title: str = ""
    allocation: int = 0

    @property
    def multiply_adds(self) -> float:
        """Multiply-adds per second, one for each lane and cycle: no dual issue."""
        return self.rates.units * self.rates.lanes * self.rates.clock


def _amd(chip: str) -> dict[str, str]:
    return {"AMDGPU_GPU_ID": chip}


def _radv(family: str) -> dict[str, str]:
    """RADV's own way to compile for a GPU that is not there, up to Mesa 25: without memory, so kp cannot use it."""
    return {"RADV_FORCE_FAMILY": family}


def _nvidia(chipset: str) -> dict[str, str]:
    return {"NOUVEAU_CHIPSET": chipset}


def _intel(platform: str) -> dict[str, str]:
    return {"INTEL_STUB_GPU_PLATFORM": platform}


GPUS = {gpu.name: gpu for gpu in [
    Gpu("rx6900xt", DESKTOP, "sid", "radeon", _amd("navi21"), FIGURES["RX 6900 XT"], "amdgpu"),
    Gpu("rx7900xtx", DESKTOP, "sid", "radeon", _amd("navi31"), FIGURES["RX 7900 XTX"], "amdgpu"),
    Gpu("rx9070", DESKTOP, "trixie", "radeon", _radv("gfx1201"), FIGURES["RX 9070"],
        title="AMD Radeon RX 9070 (RADV GFX1201)", allocation=24),
    Gpu("vega64", DESKTOP, "sid", "radeon", _amd("vega10"), FIGURES["RX Vega 64"], "amdgpu"),
    Gpu("mi200", DESKTOP, "trixie", "radeon", _radv("mi200"), FIGURES["Instinct MI210"],
        title="AMD Instinct MI210 (RADV GFX90A)"),
    Gpu("rtx2080", DESKTOP, "sid", "nouveau", _nvidia("164"), FIGURES["RTX 2080"], "nouveau",
        title="NVIDIA GeForce RTX 2080"),
    Gpu("a100", DESKTOP, "sid", "nouveau", _nvidia("170"), FIGURES["A100"], "nouveau",
        title="NVIDIA A100-PCIE-40GB"),
    Gpu("rtx3090", DESKTOP, "sid", "nouveau", _nvidia("172"), FIGURES["RTX 3090"], "nouveau",
        title="NVIDIA GeForce RTX 3090"),
    Gpu("rtx4090", DESKTOP, "sid", "nouveau", _nvidia("192"), FIGURES["RTX 4090"], "nouveau",
        title="NVIDIA GeForce RTX 4090"),
    Gpu("rtx5090", DESKTOP, "sid", "nouveau", _nvidia("1b2"), FIGURES["RTX 5090"], "nouveau",
        title="NVIDIA GeForce RTX 5090"),
    Gpu("arc-a770", DESKTOP, "sid", "intel", _intel("dg2"), FIGURES["Arc A770"], "intel",
        title="Intel(R) Arc(tm) A770 Graphics (DG2)"),
    Gpu("arc-b580", DESKTOP, "sid", "intel", _intel("bmg"), FIGURES["Arc B580"], "intel",
        title="Intel(R) Arc(tm) B580 Graphics (BMG G21)"),
    Gpu("tgl", INTEGRATED, "sid", "intel", _intel("tgl"), FIGURES["Iris Xe"], "intel"),
    Gpu("adreno618", MOBILE, "sid", "freedreno", {"FD_GPU_ID": "618"}, FIGURES["Adreno 618"], "freedreno"),
    Gpu("adreno740", MOBILE, "sid", "freedreno", {"FD_GPU_ID": "740"}, FIGURES["Adreno 740"], "freedreno"),
]}
