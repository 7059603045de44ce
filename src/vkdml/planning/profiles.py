"""One table: a row for each family of drivers, with its limits and its rates.

CPU drivers' rates are measured (docs/performance.md says how). A GPU's figures are those of a row of gpus.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .device_info import DeviceInfo
from .gpus import GPUS, GpuRates, named_units

MOST_ITERATIONS = 2**31  # where a driver ends no loops
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
    resident: ResidentRates | None = None  # None: it does not run these kernels


@dataclass(frozen=True)
class CompileShares:
    """Seconds of compiling, as the share of them that each execution is charged."""

    row_of_unit: float = 0.0           # of a row of a tile, for each unit that an invocation computes
    resident_loop: float = 0.55e-3     # of the resident kernels: 1 to 5 s, with that of their products
    resident_product: float = 0.0      # of each of these, as they are unrolled


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceProfile:
    """A row of PROFILES. Each equals itself alone."""

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
    prefers_shuffles: bool = False  # the kernels that shuffle are chosen where the device has subgroup shuffles
    tuned: bool = False            # the model is a guess: what it thinks best is timed, persistent too
    coherent_flow: bool = False    # in flow, its compiler makes volatile loads that pass the cache to which words are stored
    # Limits
    workers: int | None = None     # subgroups that run side by side; None: as many as the process has cores
    core_subgroups: int = 1        # of those, subgroups of one workgroup: it has one core
    most_parts: int | None = None  # of a tile in other kernels than gpu; None: as many as leave every core its own
    most_workgroup: int = 128      # invocations in the time loop, of the float64 kernels and of parts in the gpu kernels
    most_unrolled: int | None = None  # rows times units of a tile, where blocks of loads are unrolled; None: they are loops
    most_resident_products: int = 2048  # of an invocation of the resident kernels, all unrolled: compiling takes long with more
    most_iterations: int = MOST_ITERATIONS  # of an invocation's loops in a dispatch, all together
    spins: int = 100_000           # looks in vain of a persistent part in one wait, after which it gives up: tens of ms
    submission_seconds: float = 0.5  # most work in one, by the model or as measured: drivers kill what runs for seconds
    # Seconds
    rates: Rates
    compiling: CompileShares = CompileShares()
    # GPUs alone
    gpu: GpuRates | None = None    # a GPU that it is like: one with more units has more cache and wider memory
    integrated_units: int = 0      # of one that is not discrete and does not say; 0: as many as the GPU that it is like

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
    prefers_shuffles=True,
    most_iterations=60_000,  # it ends all loops of an invocation, silently, after 65,535 iterations together
    spins=12_000,
    rates=Rates(load=25e-9, product=1.2e-9, product_alone=1.2e-9, gate_math=200e-9, submission=45e-6, dispatch=15e-6,
                second_worker=60e-6, resident=ResidentRates(product=0.3e-9, store=45e-9)),
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
    submission_seconds=0.05,  # the guess may be far off, some drivers lose patience after 0.5 s, and a desktop stands still
    rates=Rates(load=20e-9, product=2e-9, product_alone=2e-9, gate_math=100e-9, submission=35e-6, dispatch=5e-6),
)

_AMD, _NVIDIA, _INTEL, _QUALCOMM, _ARM = 0x1002, 0x10DE, 0x8086, 0x5143, 0x13B5  # DeviceInfo.vendor


# The first that fits a device is its profile. Mesa's rows hold from a major version on: newer ones compile loads otherwise
PROFILES = {
    "llvmpipe of Mesa 26": replace(
        _LLVMPIPE,
        since_mesa=26,
        rates=replace(_LLVMPIPE.rates, load=15e-9, resident=ResidentRates(product=0.3e-9)),
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
    "other CPU drivers": replace(_LLVMPIPE, driver=None, is_known=False, most_iterations=MOST_ITERATIONS, spins=100_000),
    "AMD GCN and CDNA": replace(_GPU, vendor=_AMD, least_subgroup=64, gpu=GPUS["RX Vega 64"], integrated_units=8),
    "AMD RDNA 3 and 4, large": replace(
        _GPU, vendor=_AMD,
        names=r"RX 7[789]00|RX 9\d|W7[789]00|R9700|80[56]0S|NAVI3[12]|NAVI4|GFX110[01]|GFX1151|GFX120|STRIX_?HALO",
        gpu=GPUS["RX 7900 XTX"], integrated_units=40),
    "AMD RDNA": replace(_GPU, vendor=_AMD, gpu=GPUS["RX 6700 XT"], integrated_units=12),
    "NVIDIA Hopper and Blackwell for data centers": replace(
        _GPU, vendor=_NVIDIA, names=r"\bG?[HB][1-9]00|\bH20\b", gpu=GPUS["H200"], integrated_units=8),
    "NVIDIA Ampere for data centers": replace(
        _GPU, vendor=_NVIDIA, names=r"\bA(100|800|30)\b", gpu=GPUS["A100"], integrated_units=8),
    "NVIDIA before Ampere": replace(  # Volta and Pascal have more registers, shared memory or lanes
        _GPU, vendor=_NVIDIA, names=r"GTX|TITAN|RTX 20\d\d|Quadro|Tesla|GT 10\d\d|\b(MX|T|V|P)\d+",
        gpu=GPUS["RTX 2070 Super"], integrated_units=8),
    "NVIDIA": replace(_GPU, vendor=_NVIDIA, gpu=GPUS["RTX 3090"], integrated_units=8),
    "Intel before Xe2, discrete": replace(
        _GPU, vendor=_INTEL, type="discrete", names=r"Arc.* A\d|Flex|Max \d|MAX|\((DG1|DG2|ATS|PVC|SG1)",
        most_workgroup=256, gpu=GPUS["Arc B580"], coherent_flow=True),
    "Intel, discrete": replace(_GPU, vendor=_INTEL, type="discrete", most_workgroup=256, gpu=GPUS["Arc B580"]),
    "Intel before Xe": replace(
        _GPU, vendor=_INTEL, names=r"HD Graphics P?[456]\d\d|\((BDW|SKL|KBL|CFL|CML|BXT|GLK|ICL|EHL|JSL)", gpu=GPUS["UHD 630"],
        coherent_flow=True),
    "Intel, integrated": replace(_GPU, vendor=_INTEL, most_workgroup=256, gpu=GPUS["Iris Xe"], coherent_flow=True),
    "Qualcomm Adreno": replace(_GPU, vendor=_QUALCOMM, gpu=GPUS["Adreno 740"], integrated_units=4),
    "ARM Mali": replace(_GPU, vendor=_ARM, gpu=GPUS["Mali-G78"], integrated_units=8),
    "Apple": replace(_GPU, names=r"^Apple", gpu=GPUS["M1"]),
    "other GPUs": replace(_GPU, gpu=GPUS["unknown"], integrated_units=4),
}


def profile(info: DeviceInfo) -> DeviceProfile:
    """The first row that fits a device."""
    return next(row for row in PROFILES.values() if row.fits(info))


def compute_units(info: DeviceInfo) -> int:
    """How many of GpuRates' units a GPU has: what its driver says, what its name does, or what its row takes for its type."""
    of_type = 0 if info.type == "discrete" else _gpu_row(info).integrated_units
    return info.compute_units or named_units(info.name) or of_type or _rates(_gpu_row(info)).units


def gpu_rates(info: DeviceInfo) -> GpuRates:
    """A GPU's row, with the rates that all units share for as many as it has: larger GPUs have more cache and wider memory."""
    rates = _rates(_gpu_row(info))
    share = compute_units(info) / rates.units
    return replace(rates, units=compute_units(info), cache_rate=rates.cache_rate * share, memory_rate=rates.memory_rate * share)


def _gpu_row(info: DeviceInfo) -> DeviceProfile:
    """A CPU driver that is to run a GPU's kernels has the row of an unknown one."""
    row = profile(info)
    return row if row.gpu else PROFILES["other GPUs"]


def _rates(row: DeviceProfile) -> GpuRates:
    assert row.gpu
    return row.gpu
