"""One table: a row for each family of drivers, with its limits and its rates.

CPU drivers' rates are measured (docs/performance.md says how). A GPU's figures are those of a row of gpus.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .device_info import DeviceInfo
from .gpus import GPUS, GpuRates, named_units

MOST_ITERATIONS = 2**31  # most_iterations of drivers that end no loops
PRIVATE_ARRAYS = 16  # how many the resident kernels have, each indexed by constants alone


@dataclass(frozen=True)
class ResidentRates:
    """How many seconds the work of a subgroup takes in the resident kernels."""

    product: float             # seconds to multiply a column, for one gate and row
    store: float = 10e-9       # seconds to store a weight of each invocation in private memory
    fetch: float = 0.75e-9     # seconds to load a weight of each invocation from beyond the core's cache, once a phase
    cache_bytes: int = 512 * 1024  # bytes of a core's cache
    barrier: float = 20e-9
    load_shared: float = 1.8   # cost of a load of h from shared memory, as a multiple of Rates.load
    load_buffer: float = 2.8   # cost of a load of h from a buffer, as a multiple of Rates.load


@dataclass(frozen=True)
class Rates:
    """How many seconds the work of a subgroup takes."""

    load: float                # seconds to load 16 bytes in each invocation
    product: float             # seconds to multiply 4 columns, for one gate and row
    product_alone: float       # seconds to multiply 4 columns if an invocation has one row and one unit, and so few sums
    gate_math: float           # seconds to compute one unit's gates in each invocation, for one row
    submission: float          # seconds to submit a call and wait for it
    dispatch: float            # seconds to run a dispatch that waits for the one before it in the same submission
    second_worker: float = 0.0  # seconds to wake a second worker for parts of a tile or for the projection, once a call
    late_worker: float = 0.0    # how much later that worker wakes in each further dispatch, as other processes run too
    resident: ResidentRates | None = None  # None: the driver does not run the resident kernels


@dataclass(frozen=True)
class CompileShares:
    """How many seconds of compiling each execution is charged when tilings are ranked."""

    row_of_unit: float = 0.0           # seconds for each row of a tile and each unit that an invocation computes
    resident_loop: float = 0.55e-3     # seconds for a resident kernel, which takes 1 to 5 s to compile with its products
    resident_product: float = 0.0      # seconds for each product of a resident kernel, as products are unrolled


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceProfile:
    """The limits and rates of a family of drivers: a row of PROFILES. Two rows are never equal."""

    # How a device is recognized
    is_cpu: bool
    type: str | None = None        # DeviceInfo.type; None: any
    vendor: int | None = None      # DeviceInfo.vendor; None: any
    names: str = ""                # a regular expression that is found in the device's name
    least_subgroup: int = 0        # the compiler's narrowest subgroup has at least this size
    driver: str | None = None      # the driver's name; None: any
    since_mesa: int = 0            # the least major version of Mesa; 0: any driver
    is_known: bool = False         # whether it has passed the tests; other drivers are tested before their first use
    # Kernels that run on it
    prefers_shuffles: bool = False  # whether to choose the kernels that shuffle if the device has subgroup shuffles
    tuned: bool = False            # whether the model is a guess, so that its best tilings are timed, persistent ones too
    coherent_polls: bool = False   # whether volatile loads of persistent workgroups bypass the cache that words are stored to
    # Limits
    workers: int | None = None     # subgroups that run at once; None: as many as the process has cores
    core_subgroups: int = 1        # subgroups of one workgroup that run at once, as a workgroup has one core
    most_parts: int | None = None  # most parts of a tile, except in the gpu kernels; None: at most one for each core
    most_workgroup: int = 128      # most invocations of a workgroup in the float64 kernels, and of a part in the gpu kernels
    large_tiles: bool = False      # whether tiles of the kernels that shuffle may be large, as loads are slow
    most_unrolled: int | None = None  # most rows x units if loads are unrolled, 4 times it if forced (gpu: rows); None: loops
    most_resident_products: int = 2048  # most products of an invocation in the resident kernels: more compile slowly
    most_iterations: int = MOST_ITERATIONS  # most iterations of all of an invocation's loops in a dispatch
    spins: int = 100_000           # polls of a persistent part in one wait, after which it gives up: tens of ms
    submission_seconds: float = 0.5  # most seconds of a submission, by the model or measured: drivers kill longer work
    # The model of costs
    rates: Rates
    compiling: CompileShares = CompileShares()
    # The kernels for GPUs, which CPU drivers may run too
    gpu: GpuRates = GPUS["unknown"]  # a GPU that these are like; larger ones have more cache and wider memory
    integrated_units: int = 4      # units of an integrated GPU that does not report them; 0: as many as `gpu`

    def fits(self, info: DeviceInfo) -> bool:
        return (self.is_cpu == info.is_cpu and self.driver in (None, info.driver) and self.type in (None, info.type)
                and self.vendor in (None, info.vendor)
                and self.least_subgroup <= (info.min_subgroup_size or info.subgroup_size)
                and re.search(self.names, info.name) is not None and self.since_mesa <= _mesa(info))


def _mesa(info: DeviceInfo) -> int:
    """Read the major version of Mesa that a driver belongs to; 0 for other drivers."""
    found = re.match(r"Mesa (\d+)", info.driver_version)
    return int(found[1]) if found else 0


_LLVMPIPE = DeviceProfile(
    is_cpu=True,
    driver="llvmpipe",
    is_known=True,
    prefers_shuffles=True,
    most_iterations=60_000,  # the driver silently ends an invocation's loops after 65,535 iterations of all together
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
    spins=50_000,  # a poll takes as long as a load from memory, 0.2 to 1 us: at most 50 ms in all
    submission_seconds=0.05,  # the model may be far off, some drivers kill work after 0.5 s, and a desktop freezes
    rates=Rates(load=20e-9, product=2e-9, product_alone=2e-9, gate_math=100e-9, submission=35e-6, dispatch=5e-6),
)

_AMD, _NVIDIA, _INTEL, _QUALCOMM, _ARM = 0x1002, 0x10DE, 0x8086, 0x5143, 0x13B5  # values of DeviceInfo.vendor
_OF_NVIDIA = replace(_GPU, vendor=_NVIDIA, integrated_units=8,  # measured on an H200 with NVIDIA's driver
                     rates=replace(_GPU.rates, submission=22e-6, dispatch=2e-6))
_ROW_REGISTERS = {"NVIDIA": 8}  # GpuRates.row_registers by driver: NVIDIA's compiler takes more than Mesa's

# A device's profile is the first row that fits it. Mesa's rows hold from a major version on: newer ones compile loads otherwise
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
    "llvmpipe": replace(_LLVMPIPE, large_tiles=True),  # only Mesa 22's was measured
    "SwiftShader": DeviceProfile(
        is_cpu=True,
        driver="SwiftShader driver",
        is_known=True,
        prefers_shuffles=True,
        most_unrolled=8,  # more code does not fit the first-level cache; with 32 rows, gpu kernels took 22 GB to compile
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
        _OF_NVIDIA, names=r"\bG?[HB][1-9]00|\bH20\b", gpu=GPUS["H200"]),
    "NVIDIA Ampere for data centers": replace(_OF_NVIDIA, names=r"\bA(100|800|30)\b", gpu=GPUS["A100"]),
    "NVIDIA before Ampere": replace(  # Volta and Pascal have more registers, shared memory or lanes
        _OF_NVIDIA, names=r"GTX|TITAN|RTX 20\d\d|Quadro|Tesla|GT 10\d\d|\b(MX|T|V|P)\d+", gpu=GPUS["RTX 2070 Super"]),
    "NVIDIA": replace(_OF_NVIDIA, gpu=GPUS["RTX 3090"]),
    "Intel before Xe2, discrete": replace(
        _GPU, vendor=_INTEL, type="discrete", names=r"Arc.* A\d|Flex|Max \d|MAX|\((DG1|DG2|ATS|PVC|SG1)",
        most_workgroup=256, gpu=GPUS["Arc B580"], coherent_polls=True),
    "Intel, discrete": replace(_GPU, vendor=_INTEL, type="discrete", most_workgroup=256, gpu=GPUS["Arc B580"]),
    "Intel before Xe": replace(
        _GPU, vendor=_INTEL, names=r"HD Graphics P?[456]\d\d|\((BDW|SKL|KBL|CFL|CML|BXT|GLK|ICL|EHL|JSL)", gpu=GPUS["UHD 630"],
        integrated_units=0, coherent_polls=True),
    "Intel, integrated": replace(
        _GPU, vendor=_INTEL, most_workgroup=256, gpu=GPUS["Iris Xe"], integrated_units=0, coherent_polls=True),
    "Qualcomm Adreno": replace(_GPU, vendor=_QUALCOMM, gpu=GPUS["Adreno 740"]),
    "ARM Mali": replace(_GPU, vendor=_ARM, gpu=GPUS["Mali-G78"], integrated_units=8),
    "Apple": replace(_GPU, names=r"^Apple", gpu=GPUS["M1"], integrated_units=0),
    "other GPUs": replace(_GPU),
}


def profile(info: DeviceInfo) -> DeviceProfile:
    """Find a device's profile: the first row that fits it."""
    return next(row for row in PROFILES.values() if row.fits(info))


def compute_units(info: DeviceInfo) -> int:
    """Find how many units (see GpuRates) a GPU has: as its driver reports, by its name, or by its profile."""
    row = profile(info)
    return info.compute_units or named_units(info.name) or (info.type != "discrete" and row.integrated_units) or row.gpu.units


def gpu_rates(info: DeviceInfo) -> GpuRates:
    """Scale the rates of the GPU that this one is like to its number of units: larger GPUs have more cache and wider memory."""
    rates, units = profile(info).gpu, compute_units(info)
    share = units / rates.units
    shares = {"cache_rate": share, "memory_rate": share, "cache_bytes": 2**20 if info.is_cpu else share,  # processors have more
              **dict.fromkeys(("memory_cache_rate", "memory_cache_bytes"), share if info.type == "discrete" else 0)}
    return replace(rates, units=units, row_registers=_ROW_REGISTERS.get(info.driver, rates.row_registers),
                   **{name: getattr(rates, name) * times for name, times in shares.items()})
