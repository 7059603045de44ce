"""The GPUs that plans are checked for: which driver compiles for each, and the figures that the model of a step's time needs.

Figures are the vendors' own: AMD's papers and instruction set guides of RDNA to RDNA 4, Vega and CDNA 2, NVIDIA's whitepapers
of Turing, Ampere (GA100 and GA102), Ada and Blackwell, Intel's guides to Xe-LP, Xe-HPG and Xe2. Where those are silent (the
second-level cache's rate, mostly) they are what others have measured in public, rounded. None was measured with this project.
"""

from __future__ import annotations

from dataclasses import dataclass

DESKTOP, INTEGRATED, MOBILE = "desktop", "integrated", "mobile"


@dataclass(frozen=True)
class Core:
    """What runs a whole workgroup: AMD's compute unit, NVIDIA's multiprocessor, Intel's Xe core.

    simds: that each issue an instruction a cycle to `lanes` lanes. subgroups: that each of them holds at most.
    shared: bytes of shared memory. shared_rate, cache_rate: bytes a cycle from there and from the second-level cache.
    """

    simds: int
    lanes: int
    subgroups: int
    shared: int
    shared_rate: int = 128
    cache_rate: int = 64


@dataclass(frozen=True)
class Gpu:
    """suite: Debian's, whose driver it is (drivers.py). shim: the kernel's part; none where the driver does without.

    clock: cycles a second. cache_rate: bytes a second from the second-level cache, for all cores. title: the device's name
    where its driver makes up none.
    """

    name: str
    kind: str
    suite: str
    driver: str
    environment: dict[str, str]
    cores: int
    core: Core
    clock: float
    cache_rate: float
    shim: str = ""
    title: str = ""

    @property
    def multiply_adds(self) -> float:
        """A second, with one for each lane and cycle: no dual issue."""
        return self.cores * self.core.simds * self.core.lanes * self.clock


_RDNA = Core(simds=2, lanes=32, subgroups=16, shared=65536)
_GCN = Core(simds=4, lanes=16, subgroups=10, shared=65536)
_CDNA2 = Core(simds=4, lanes=16, subgroups=8, shared=65536)
_TURING = Core(simds=4, lanes=16, subgroups=8, shared=65536, shared_rate=64)
_GA100 = Core(simds=4, lanes=16, subgroups=16, shared=163840)
_GA102 = Core(simds=4, lanes=32, subgroups=12, shared=102400)
_XE_HPG = Core(simds=16, lanes=8, subgroups=8, shared=131072)
_XE2 = Core(simds=8, lanes=16, subgroups=8, shared=131072)
_XE_LP = Core(simds=16, lanes=8, subgroups=7, shared=65536)
_ADRENO = Core(simds=2, lanes=64, subgroups=8, shared=32768)  # rough: no demand on times rests on it


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
    Gpu("rx6900xt", DESKTOP, "sid", "radeon", _amd("navi21"), 80, _RDNA, 2.25e9, 4.5e12, "amdgpu"),
    Gpu("rx7900xtx", DESKTOP, "sid", "radeon", _amd("navi31"), 96, _RDNA, 2.4e9, 5e12, "amdgpu"),
    Gpu("rx9070", DESKTOP, "trixie", "radeon", _radv("gfx1201"), 56, _RDNA, 2.5e9, 5e12,
        title="AMD Radeon RX 9070 (RADV GFX1201)"),
    Gpu("vega64", DESKTOP, "sid", "radeon", _amd("vega10"), 64, _GCN, 1.5e9, 1.6e12, "amdgpu"),
    Gpu("mi200", DESKTOP, "trixie", "radeon", _radv("mi200"), 104, _CDNA2, 1.7e9, 6.9e12,
        title="AMD Instinct MI210 (RADV GFX90A)"),
    Gpu("rtx2080", DESKTOP, "sid", "nouveau", _nvidia("164"), 46, _TURING, 1.7e9, 2e12, "nouveau",
        title="NVIDIA GeForce RTX 2080"),
    Gpu("a100", DESKTOP, "sid", "nouveau", _nvidia("170"), 108, _GA100, 1.4e9, 5e12, "nouveau",
        title="NVIDIA A100-PCIE-40GB"),
    Gpu("rtx3090", DESKTOP, "sid", "nouveau", _nvidia("172"), 82, _GA102, 1.7e9, 3e12, "nouveau",
        title="NVIDIA GeForce RTX 3090"),
    Gpu("rtx4090", DESKTOP, "sid", "nouveau", _nvidia("192"), 128, _GA102, 2.5e9, 5e12, "nouveau",
        title="NVIDIA GeForce RTX 4090"),
    Gpu("rtx5090", DESKTOP, "sid", "nouveau", _nvidia("1b2"), 170, _GA102, 2.4e9, 6e12, "nouveau",
        title="NVIDIA GeForce RTX 5090"),
    Gpu("arc-a770", DESKTOP, "sid", "intel", _intel("dg2"), 32, _XE_HPG, 2.1e9, 2e12, "intel",
        title="Intel(R) Arc(tm) A770 Graphics (DG2)"),
    Gpu("arc-b580", DESKTOP, "sid", "intel", _intel("bmg"), 20, _XE2, 2.7e9, 2e12, "intel",
        title="Intel(R) Arc(tm) B580 Graphics (BMG G21)"),
    Gpu("tgl", INTEGRATED, "sid", "intel", _intel("tgl"), 6, _XE_LP, 1.3e9, 0.5e12, "intel"),
    Gpu("adreno618", MOBILE, "sid", "freedreno", {"FD_GPU_ID": "618"}, 1, _ADRENO, 0.7e9, 0.05e12, "freedreno"),
    Gpu("adreno740", MOBILE, "sid", "freedreno", {"FD_GPU_ID": "740"}, 6, _ADRENO, 0.7e9, 0.3e12, "freedreno"),
]}
