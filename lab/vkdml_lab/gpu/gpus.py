"""Lists the GPUs for which drivers compile vkdml's kernels here. Their rates are in src/vkdml/planning/gpus.py."""

from __future__ import annotations

from dataclasses import dataclass

from vkdml_lab.internals import GPUS as FIGURES
from vkdml_lab.internals import GpuRates

DESKTOP, INTEGRATED, MOBILE = "desktop", "integrated", "mobile"


@dataclass(frozen=True)
class Gpu:
    """A GPU for which a driver compiles. suite: Debian's suite that has the driver. driver: its name in Mesa. environment:
    variables that select the GPU. shim: the library that stands in for the Linux kernel driver, or "". title: the device's
    name, if the driver does not know it. allocation: a lane gets registers in multiples of this number; 0: the driver itself
    counts correctly how many subgroups fit.
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


def _amd(name: str, chip: str, figures: str) -> Gpu:
    return Gpu(name, DESKTOP, "sid", "radeon", {"AMDGPU_GPU_ID": chip}, FIGURES[figures], "amdgpu")


def _radv(name: str, family: str, figures: str, title: str, allocation: int = 0) -> Gpu:
    """Return a GPU for which RADV up to Mesa 25 compiles without a shim. It reports no memory, so Kompute cannot use it."""
    return Gpu(name, DESKTOP, "trixie", "radeon", {"RADV_FORCE_FAMILY": family}, FIGURES[figures], "", title, allocation)


def _nvidia(name: str, chipset: str, figures: str, title: str) -> Gpu:
    return Gpu(name, DESKTOP, "sid", "nouveau", {"NOUVEAU_CHIPSET": chipset}, FIGURES[figures], "nouveau", title)


def _intel(name: str, platform: str, figures: str, title: str = "") -> Gpu:
    kind = DESKTOP if title else INTEGRATED
    return Gpu(name, kind, "sid", "intel", {"INTEL_STUB_GPU_PLATFORM": platform}, FIGURES[figures], "intel", title)


def _adreno(name: str, number: str) -> Gpu:
    return Gpu(name, MOBILE, "sid", "freedreno", {"FD_GPU_ID": number}, FIGURES[f"Adreno {number}"], "freedreno")


GPUS = {gpu.name: gpu for gpu in [
    _amd("rx6900xt", "navi21", "RX 6900 XT"),
    _amd("rx7900xtx", "navi31", "RX 7900 XTX"),
    _radv("rx9070", "gfx1201", "RX 9070", "AMD Radeon RX 9070 (RADV GFX1201)", allocation=24),
    _amd("vega64", "vega10", "RX Vega 64"),
    _radv("mi200", "mi200", "Instinct MI210", "AMD Instinct MI210 (RADV GFX90A)"),
    _nvidia("rtx2080", "164", "RTX 2080", "NVIDIA GeForce RTX 2080"),
    _nvidia("a100", "170", "A100", "NVIDIA A100-PCIE-40GB"),
    _nvidia("h200", "180", "H200", "NVIDIA H200"),
    _nvidia("rtx3090", "172", "RTX 3090", "NVIDIA GeForce RTX 3090"),
    _nvidia("rtx4090", "192", "RTX 4090", "NVIDIA GeForce RTX 4090"),
    _nvidia("rtx5090", "1b2", "RTX 5090", "NVIDIA GeForce RTX 5090"),
    _intel("arc-a770", "dg2", "Arc A770", "Intel(R) Arc(tm) A770 Graphics (DG2)"),
    _intel("arc-b580", "bmg", "Arc B580", "Intel(R) Arc(tm) B580 Graphics (BMG G21)"),
    _intel("tgl", "tgl", "Iris Xe"),
    _adreno("adreno618", "618"),
    _adreno("adreno740", "740"),
]}
