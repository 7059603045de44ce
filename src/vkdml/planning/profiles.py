"""One table: a row for each family of drivers, with the kernels it may run, its limits and its rates.

CPU drivers' rates are measured (docs/performance.md says how). Those of GPUs are what their makers and others have published:
none was measured here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .device_info import DeviceInfo

# The kernels of the time loop, and of the projection (which has no resident one)
GPU, LANES, RESIDENT, FLOAT64 = "gpu", "lanes", "resident", "float64"

_PORTABLE = frozenset({GPU, LANES, FLOAT64})

PRIVATE_ARRAYS = 16  # in the resident kernels, each indexed by constants alone


@dataclass(frozen=True)
class ResidentRates:
    """Seconds of a subgroup in the resident kernels."""

    product: float             # of a column, for one gate and row
    store: float = 10e-9       # of a weight of each invocation, to private memory
    fetch: float = 0.75e-9     # of a weight of each invocation from beyond a core's cache, once a phase
    cache_bytes: int = 512 * 1024
    barrier: float = 20e-9
    load_shared: float = 1.8   # loads of h beside Rates.load, from shared memory
    load_buffer: float = 2.8   # and from a buffer


@dataclass(frozen=True)
class Rates:
    """Seconds of a subgroup."""

    load: float                # of 16 bytes by each invocation
    product: float             # of 4 columns, for one gate and row
    product_alone: float       # the same, where an invocation has one row and one unit, and so few sums
    gate_math: float           # of one unit in each invocation, for one row
    submission: float          # of a call, with the wait for it
    dispatch: float            # of one that waits for the one before in the same submission
    second_worker: float = 0.0  # to wake one, for parts of a tile or for the projection, once a call
    late_worker: float = 0.0    # how much later it wakes in each dispatch after the first; other processes run too
    resident: ResidentRates | None = None


@dataclass(frozen=True)
class CompileShares:
    """Seconds of compiling, as the share of them that each execution is charged."""

    row_of_unit: float = 0.0           # of a row of a tile, for each unit that an invocation computes
    resident_loop: float = 0.55e-3     # of the resident kernels: 1 to 5 s, with that of their products
    resident_product: float = 0.0      # of each of these, as they are unrolled


@dataclass(frozen=True, kw_only=True)
class GpuRates:
    """What a GPU's units have and do. A unit is what runs a whole workgroup: a compute unit, an SM, an Xe-core."""

    # How many there are
    units: int                 # of a discrete GPU that does not say; cache_rate and memory_rate are those of so many
    integrated_units: int      # of another one that does not say
    # What a unit does
    lanes: int                 # float32 multiply-adds in a cycle
    clock: float               # cycles in a second
    # What the invocations of a unit share
    registers: int             # of 32 bits
    most_invocations: int      # that it holds side by side
    invocation_registers: int  # the most of one invocation, at the width of subgroup that the compiler takes
    other_registers: int = 48  # of one beside its weights and sums, in a step kernel: Mesa's compilers take 24 to 72
    most_weights: int          # registers of resident weights of one invocation without spills
    unit_shared_bytes: int     # shared memory, of all its workgroups together
    sinks_loads: bool = False  # its compiler moves loads to where they are used, where a tile has one row: no registers before
    # Bytes
    shared_rate: float         # in a cycle of a unit, from shared memory
    cache_rate: float          # in a second, from the second-level cache, all units together
    memory_rate: float         # in a second, from memory
    # Seconds
    latency: float             # of a load from memory or the second-level cache that nothing hides
    meeting: float             # of a barrier between workgroups
    seen: float                # until another workgroup sees a stored word: a store, a load and half a poll


@dataclass(frozen=True, kw_only=True)
class DeviceProfile:
    """A row of PROFILES."""

    # How a device is recognized
    is_cpu: bool
    type: str | None = None        # DeviceInfo.type; None: any
    vendor: int | None = None      # DeviceInfo.vendor; None: any
    names: str = ""                # a regular expression that is found in its name
    least_subgroup: int = 0        # the narrowest that its compiler makes is at least so wide
    driver: str | None = None      # the driver's name; None: any
    since_mesa: int = 0            # the driver's major version of Mesa; 0: any
    is_known: bool = False         # it has passed the tests; others test themselves before they are first used
    # What it runs
    kernels: frozenset[str] = _PORTABLE
    prefers_shuffles: bool = False  # the kernels that shuffle are chosen where the device has subgroup shuffles
    tuned: bool = False            # the model is a guess: what it thinks best is timed, persistent too
    # Limits
    workers: int | None = None     # subgroups that run side by side; None: as many as the process has cores
    core_subgroups: int = 1        # of those, subgroups of one workgroup: it has one core
    most_parts: int | None = None  # of a tile in other kernels than gpu; None: as many as leave every core its own
    most_workgroup: int = 128      # invocations in the time loop, of the float64 kernels and of parts in the gpu kernels
    most_unrolled: int | None = None  # rows times units of a tile, where blocks of loads are unrolled; None: they are loops
    most_resident_products: int = 2048  # of an invocation of the resident kernels, all unrolled: compiling takes long with more
    most_iterations: int = 2**31   # of an invocation's loops in a dispatch, all together
    spins: int = 100_000           # of a persistent dispatch's slow waiting: tens of milliseconds
    # Seconds
    rates: Rates
    compiling: CompileShares = CompileShares()
    gpu: GpuRates | None = None    # None for CPU drivers

    def fits(self, info: DeviceInfo) -> bool:
        return (self.is_cpu == info.is_cpu and self.driver in (None, info.driver) and self.type in (None, info.type)
                and self.vendor in (None, info.vendor)
                and self.least_subgroup <= (info.min_subgroup_size or info.subgroup_size)
                and re.search(self.names, info.name) is not None and self.since_mesa <= _mesa(info))


def _mesa(info: DeviceInfo) -> int:
    """The driver's major version of Mesa, or 0."""
    found = re.match(r"Mesa (\d+)", info.driver_version)
    return int(found[1]) if found else 0


_LLVMPIPE = DeviceProfile(
    is_cpu=True,
    driver="llvmpipe",
    is_known=True,
    kernels=_PORTABLE | {RESIDENT},
    prefers_shuffles=True,
    most_iterations=60_000,  # it ends all loops of an invocation, silently, after 65,535 iterations together
    spins=12_000,
    rates=Rates(load=25e-9, product=1.2e-9, product_alone=1.2e-9, gate_math=200e-9, submission=45e-6, dispatch=15e-6,
                second_worker=60e-6, resident=ResidentRates(product=0.3e-9)),
    compiling=CompileShares(resident_product=0.3e-6),
)

_GPU = DeviceProfile(
    is_cpu=False,
    tuned=True,
    workers=256,
    core_subgroups=4,
    most_parts=16,
    most_workgroup=512,
    spins=50_000,  # a look takes as long as a load from memory, 0.2 to 1 us: at most 50 ms
    rates=Rates(load=20e-9, product=2e-9, product_alone=2e-9, gate_math=100e-9, submission=35e-6, dispatch=5e-6),
)

_AMD, _NVIDIA, _INTEL, _QUALCOMM, _ARM = 0x1002, 0x10DE, 0x8086, 0x5143, 0x13B5  # DeviceInfo.vendor

# What the comments below do not say: most_weights and other_registers are what Mesa's compilers made of prototypes of the step
# kernels. latency is 500 cycles and seen 750 where nobody has published better. meeting is what is told of persistent kernels,
# 1.5 to 4 us. cache_rate and memory_rate are those of the GPU that the comment ends with.

# AMD's RDNA papers and ISA: a compute unit, half a work-group processor, has 2 SIMDs of 32 lanes, with 128 KiB of registers
# and 16 waves each, and 64 KiB of shared memory with 128 bytes a cycle. RX 6700 XT
_RDNA = GpuRates(
    units=40, integrated_units=12,
    lanes=64, clock=2.2e9,
    registers=65_536, most_invocations=1024, invocation_registers=256, most_weights=192, other_registers=24,
    unit_shared_bytes=65_536, shared_rate=128, cache_rate=2.2e12, memory_rate=384e9,
    latency=230e-9, meeting=2.5e-6, seen=0.35e-6,
)
# NVIDIA's papers on Ampere GA102 and Ada: an SM has 128 lanes, 256 KiB of registers, 48 warps, and 100 KiB of shared memory
# with 128 bytes a cycle. RTX 3090
_AMPERE = GpuRates(
    units=82, integrated_units=8,
    lanes=128, clock=1.7e9,
    registers=65_536, most_invocations=1536, invocation_registers=255, most_weights=192, other_registers=24,
    unit_shared_bytes=102_400,
    shared_rate=128, cache_rate=2.5e12, memory_rate=936e9,
    latency=300e-9, meeting=2.5e-6, seen=0.45e-6,
)
# Intel's guide to optimizing for GPUs with oneAPI: an Xe-core has 16 engines of 8 lanes (Xe2: 8 of 16) with 8 threads each, 128
# registers in a lane of a thread, and 128 KiB of shared memory. In wider subgroups an invocation has half as many. Arc B580
_XE = GpuRates(
    units=20, integrated_units=8,
    lanes=128, clock=2.2e9,
    registers=131_072, most_invocations=1024, invocation_registers=128, most_weights=80, other_registers=32, sinks_loads=True,
    unit_shared_bytes=131_072,
    shared_rate=128, cache_rate=1.3e12, memory_rate=456e9,
    latency=400e-9, meeting=3e-6, seen=0.5e-6,
)

# How many units GPUs have whose drivers do not say: what is found first in the device's name. Intel's and Apple's by their data
# sheets, Qualcomm's by Mesa's tables
_UNITS = {
    r"Intel.*Max 1550": 64, r"Intel.*Max 1100": 56,
    r"Arc.*A770": 32, r"Arc.*A750": 28, r"Arc.*A(580|730M)": 24, r"Arc.*A550M": 16, r"Arc.*A3[578]0|Arc.*A[45]0\b": 8,
    r"Arc.*A310": 6, r"Arc.*B(60|580)\b": 20, r"Arc.*B570": 18, r"Arc.*B50\b": 16,
    r"Arc.*130V": 7, r"\((MTL|ARL|LNL)": 8, r"Iris.*Xe|\((TGL|ADL|RPL).* GT2\)": 6, r"UHD.*7[3-7]0|Intel.* GT1\)": 2,
    r"\(ICL GT2\)": 8, r"Intel.* GT3e?\)": 6, r"Intel.* GT4e?\)": 9,
    r"Adreno.* 690": 8, r"Adreno.* (74\d|75\d|X1)": 6, r"Adreno.* (680|725|730)": 4, r"Adreno.* (644|65\d|66\d|735)": 3,
    r"Adreno.* (621|63\d|64\d|[78]c)": 2, r"Adreno.* 6[012]\d": 1,
    r"Apple M\d Ultra": 64, r"Apple M\d Max": 32, r"Apple M\d Pro": 16, r"Apple M\d": 8,
}


# The first that fits a device is its profile. Mesa's rows hold from a major version on: newer ones compile loads otherwise
PROFILES = {
    "llvmpipe of Mesa 26": replace(
        _LLVMPIPE,
        since_mesa=26,
        rates=replace(_LLVMPIPE.rates, load=15e-9),
        compiling=CompileShares(row_of_unit=15e-6, resident_product=1.5e-6),
    ),
    "llvmpipe of Mesa 24 and 25": replace(
        _LLVMPIPE,
        since_mesa=24,
        rates=replace(_LLVMPIPE.rates, product=2.2e-9, product_alone=2.2e-9,
                      resident=ResidentRates(product=1.2e-9)),
        compiling=CompileShares(row_of_unit=100e-6, resident_product=3e-6),
    ),
    "llvmpipe": _LLVMPIPE,
    "SwiftShader": DeviceProfile(
        is_cpu=True,
        driver="SwiftShader driver",
        is_known=True,
        prefers_shuffles=True,
        most_unrolled=8,  # with more, the loop's code no longer fits the first-level cache
        rates=Rates(load=18e-9, product=3e-9, product_alone=2.5e-9, gate_math=300e-9, submission=48e-6, dispatch=12e-6,
                    second_worker=30e-6, late_worker=100e-6),
        compiling=CompileShares(row_of_unit=20e-6),
    ),
    "other CPU drivers": replace(_LLVMPIPE, driver=None, is_known=False, most_iterations=2**31, spins=100_000),
    # AMD's papers and ISA of Vega and CDNA: a compute unit has 4 SIMDs of 16 lanes, with 64 KiB of registers and 10 waves of 64
    # each. RX Vega 64
    "AMD GCN and CDNA": replace(_GPU, vendor=_AMD, least_subgroup=64, gpu=GpuRates(
        units=64, integrated_units=8,
        lanes=64, clock=1.4e9,
        registers=65_536, most_invocations=2560, invocation_registers=256, most_weights=192, unit_shared_bytes=65_536,
        shared_rate=128, cache_rate=1.5e12, memory_rate=484e9,
        latency=450e-9, meeting=3e-6, seen=0.7e-6,
    )),
    # The large GPUs of RDNA 3 and 4 have half as many registers again. RX 7900 XTX
    "AMD RDNA 3 and 4, large": replace(
        _GPU, vendor=_AMD,
        names=r"RX 7[789]00|RX 9\d|W7[789]00|R9700|80[56]0S|NAVI3[12]|NAVI4|GFX110[01]|GFX1151|GFX120|STRIX_?HALO",
        gpu=replace(_RDNA, units=96, integrated_units=40, clock=2.4e9, registers=98_304, cache_rate=5e12, memory_rate=960e9)),
    "AMD RDNA": replace(_GPU, vendor=_AMD, gpu=_RDNA),
    # NVIDIA's paper on the H100: 64 warps, 228 KiB of shared memory. H200
    "NVIDIA Hopper and Blackwell for data centers": replace(
        _GPU, vendor=_NVIDIA, names=r"\bG?[HB][1-9]00|\bH20\b",
        gpu=replace(_AMPERE, units=132, most_invocations=2048, unit_shared_bytes=233_472, cache_rate=5.5e12,
                    memory_rate=4.8e12)),
    # NVIDIA's paper on the A100: 64 lanes, 64 warps, 164 KiB. A100 with 40 GB
    "NVIDIA Ampere for data centers": replace(
        _GPU, vendor=_NVIDIA, names=r"\bA(100|800|30)\b",
        gpu=replace(_AMPERE, units=108, lanes=64, clock=1.4e9, most_invocations=2048, unit_shared_bytes=167_936,
                    cache_rate=4e12, memory_rate=1.55e12)),
    # NVIDIA's paper on Turing: 64 lanes, 32 warps, 64 KiB; Volta and Pascal have more of one or the other. RTX 2070 Super
    "NVIDIA before Ampere": replace(
        _GPU, vendor=_NVIDIA, names=r"GTX|TITAN|RTX 20\d\d|Quadro|Tesla|GT 10\d\d|\b(MX|T|V|P)\d+",
        gpu=replace(_AMPERE, units=40, lanes=64, clock=1.6e9, most_invocations=1024, unit_shared_bytes=65_536,
                    cache_rate=1.2e12, memory_rate=448e9)),
    "NVIDIA": replace(_GPU, vendor=_NVIDIA, gpu=_AMPERE),
    "Intel, discrete": replace(_GPU, vendor=_INTEL, type="discrete", most_workgroup=256, gpu=_XE),
    # Intel's papers on Gen9 and Gen11: a subslice has 8 engines of 8 lanes with 7 threads each. UHD Graphics 630
    "Intel before Xe": replace(
        _GPU, vendor=_INTEL, names=r"HD Graphics P?[456]\d\d|\((BDW|SKL|KBL|CFL|CML|BXT|GLK|ICL|EHL|JSL)",
        gpu=replace(_XE, units=3, integrated_units=3, lanes=64, clock=1.1e9, registers=57_344, most_invocations=448,
                    unit_shared_bytes=65_536, shared_rate=64, cache_rate=0.1e12, memory_rate=35e9)),
    # The first Xe has 7 threads in an engine. Iris Xe with 96 engines
    "Intel, integrated": replace(
        _GPU, vendor=_INTEL, most_workgroup=256,
        gpu=replace(_XE, units=6, integrated_units=6, clock=1.3e9, registers=114_688, most_invocations=896, cache_rate=0.3e12,
                    memory_rate=65e9)),
    # Mesa's tables: a shader processor has 192 KiB of registers, 16 waves of 128, and 32 KiB of shared memory. Adreno 740
    "Qualcomm Adreno": replace(_GPU, vendor=_QUALCOMM, gpu=GpuRates(
        units=6, integrated_units=4,
        lanes=128, clock=0.65e9,
        registers=49_152, most_invocations=2048, invocation_registers=192, most_weights=48, unit_shared_bytes=32_768,
        shared_rate=64, cache_rate=0.3e12, memory_rate=60e9,
        latency=770e-9, meeting=4e-6, seen=1.2e-6,
    )),
    # Arm's data sheet of its GPUs and its guide to Valhall: 1024 threads with 32 registers, or half as many with 64; shared
    # memory is memory like any other, in the first-level cache. Mali-G78 with 20 cores
    "ARM Mali": replace(_GPU, vendor=_ARM, gpu=GpuRates(
        units=20, integrated_units=8,
        lanes=32, clock=0.8e9,
        registers=32_768, most_invocations=1024, invocation_registers=64, most_weights=16, unit_shared_bytes=32_768,
        shared_rate=64, cache_rate=0.4e12, memory_rate=45e9,
        latency=630e-9, meeting=4e-6, seen=0.95e-6,
    )),
    # What the Asahi project and others have found out: a core has 128 lanes and 208 KiB of registers. M1
    "Apple": replace(_GPU, names=r"^Apple", gpu=GpuRates(
        units=8, integrated_units=8,
        lanes=128, clock=1.25e9,
        registers=53_248, most_invocations=1024, invocation_registers=128, most_weights=48, unit_shared_bytes=61_440,
        shared_rate=128, cache_rate=0.4e12, memory_rate=65e9,
        latency=400e-9, meeting=4e-6, seen=0.6e-6,
    )),
    # Nothing is known of them: as little as one can expect of a GPU
    "other GPUs": replace(_GPU, gpu=GpuRates(
        units=16, integrated_units=4,
        lanes=64, clock=1e9,
        registers=32_768, most_invocations=1024, invocation_registers=64, most_weights=16, unit_shared_bytes=32_768,
        shared_rate=64, cache_rate=0.4e12, memory_rate=100e9,
        latency=600e-9, meeting=4e-6, seen=1e-6,
    )),
}


def profile(info: DeviceInfo) -> DeviceProfile:
    """The first row that fits a device."""
    return next(row for row in PROFILES.values() if row.fits(info))


def compute_units(info: DeviceInfo) -> int:
    """How many of GpuRates' units a GPU has: what its driver says, what its name does, or what its row takes for its type."""
    if info.compute_units:
        return info.compute_units
    rates = _of_gpu(info)
    named = next((units for name, units in _UNITS.items() if re.search(name, info.name)), None)
    return named or (rates.units if info.type == "discrete" else rates.integrated_units)


def gpu_rates(info: DeviceInfo) -> GpuRates:
    """A GPU's row, with the rates that all units share for as many as it has: larger GPUs have more cache and wider memory."""
    rates = _of_gpu(info)
    share = compute_units(info) / rates.units
    return replace(rates, units=compute_units(info), cache_rate=rates.cache_rate * share, memory_rate=rates.memory_rate * share)


def _of_gpu(info: DeviceInfo) -> GpuRates:
    """A CPU driver that is to run a GPU's kernels has the row of an unknown one."""
    rates = profile(info).gpu or PROFILES["other GPUs"].gpu
    assert rates
    return rates
