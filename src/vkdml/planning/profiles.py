"""One table: a row for each family of drivers, with the kernels it may run, its limits and its rates.

CPU drivers' rates are measured (docs/performance.md says how). Those of GPUs are guesses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .device_info import DeviceInfo

# The kernels of the time loop, and of the projection (which has no resident one)
GPU, LANES, ROWS, RESIDENT, FLOAT64 = "gpu", "lanes", "rows", "resident", "float64"

_PORTABLE = frozenset({GPU, LANES, FLOAT64})

PRIVATE_ARRAYS = 16  # in the rows and resident kernels, each indexed by constants alone


@dataclass(frozen=True)
class RowsRates:
    """Seconds of a subgroup in the rows kernels."""

    product: float             # of a column, for one gate and one row of each invocation
    loop: float = 1.0          # how many times slower products are in the time loop than in the projection
    store: float = 20e-9       # of a column of one row of each invocation, to a private array
    gate_math: float = 0.75    # beside Rates.gate_math, which has loads of the input's part in it


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
    rows: RowsRates | None = None
    resident: ResidentRates | None = None


@dataclass(frozen=True)
class CompileShares:
    """Seconds of compiling, as the share of them that each execution is charged."""

    row_of_unit: float = 0.0           # of a row of a tile, for each unit that an invocation computes
    rows_loop: float = 9.9e-3          # of the rows kernels' time loop: 1 to 2 s
    rows_projection: float = 0.05e-3   # and of their projection
    resident_loop: float = 0.55e-3     # of the resident kernels: 1 to 5 s, with that of their products
    resident_product: float = 0.0      # of each of these, as they are unrolled


@dataclass(frozen=True, kw_only=True)
class DeviceProfile:
    """A row of PROFILES."""

    # How a device is recognized
    is_cpu: bool
    driver: str | None = None      # the driver's name; None: any
    since_mesa: int = 0            # the driver's major version of Mesa; 0: any
    # What it runs
    kernels: frozenset[str] = _PORTABLE
    prefers_shuffles: bool = False  # the kernels that shuffle are chosen where the device has subgroup shuffles
    host_memory: bool = False      # the device's memory is the host's: nothing need be copied
    # Limits
    workers: int | None = None     # subgroups that run side by side; None: as many as the process has cores
    core_subgroups: int = 1        # of those, subgroups of one workgroup: it has one core
    most_parts: int | None = None  # of a tile; None: as many as leave every core its own
    most_workgroup: int = 128      # invocations of the gpu and float64 kernels in the time loop
    most_rows: int = 16            # of a tile: with more, compiling takes long
    most_unrolled: int | None = None  # rows times units of a tile, where blocks of loads are unrolled; None: they are loops
    most_resident_products: int = 2048  # of an invocation of the resident kernels, all unrolled: compiling takes long with more
    block_vecs: int = 1            # vec4s of weights that the gpu kernels load at once, for each gate
    most_iterations: int = 2**31   # of an invocation's loops in a dispatch, all together
    spins: int = 100_000           # of a persistent dispatch's slow waiting: tens of milliseconds
    # Seconds
    rates: Rates
    compiling: CompileShares = CompileShares()

    def fits(self, info: DeviceInfo) -> bool:
        mesa = re.match(r"Mesa (\d+)", info.driver_version)
        return (self.is_cpu == info.is_cpu and self.driver in (None, info.driver)
                and self.since_mesa <= (int(mesa[1]) if mesa else 0))


_LLVMPIPE = DeviceProfile(
    is_cpu=True,
    driver="llvmpipe",
    kernels=_PORTABLE | {ROWS, RESIDENT},
    prefers_shuffles=True,
    host_memory=True,
    most_iterations=60_000,  # it ends all loops of an invocation, silently, after 65,535 iterations together
    spins=12_000,
    rates=Rates(load=25e-9, product=1.2e-9, product_alone=1.2e-9, gate_math=200e-9, submission=45e-6, dispatch=15e-6,
                second_worker=60e-6, rows=RowsRates(product=0.3e-9), resident=ResidentRates(product=0.3e-9)),
    compiling=CompileShares(resident_product=0.3e-6),
)

# The first that fits a device is its profile. Mesa's rows hold from a major version on: newer ones compile loads otherwise
PROFILES = {
    "llvmpipe of Mesa 26": replace(
        _LLVMPIPE,
        since_mesa=26,
        # Its LLVM multiplies all columns of a block in the loop before it adds any, with the products in memory
        rates=replace(_LLVMPIPE.rates, load=15e-9, rows=RowsRates(product=0.35e-9, loop=2.5)),
        compiling=CompileShares(row_of_unit=15e-6, resident_product=1.5e-6),
    ),
    "llvmpipe of Mesa 24 and 25": replace(
        _LLVMPIPE,
        since_mesa=24,
        rates=replace(_LLVMPIPE.rates, product=2.2e-9, product_alone=2.2e-9, rows=RowsRates(product=0.5e-9, loop=2.0),
                      resident=ResidentRates(product=1.2e-9)),
        compiling=CompileShares(row_of_unit=100e-6, resident_product=3e-6),
    ),
    "llvmpipe": _LLVMPIPE,
    "SwiftShader": DeviceProfile(
        is_cpu=True,
        driver="SwiftShader driver",
        prefers_shuffles=True,
        host_memory=True,
        most_unrolled=8,  # with more, the loop's code no longer fits the first-level cache
        rates=Rates(load=18e-9, product=3e-9, product_alone=2.5e-9, gate_math=300e-9, submission=48e-6, dispatch=12e-6,
                    second_worker=30e-6, late_worker=100e-6),
        compiling=CompileShares(row_of_unit=20e-6),
    ),
    "other CPU drivers": replace(_LLVMPIPE, driver=None, most_iterations=2**31, spins=100_000),
    "GPUs": DeviceProfile(
        is_cpu=False,
        workers=256,
        core_subgroups=4,
        most_parts=16,
        most_workgroup=512,
        most_rows=8,
        block_vecs=4,
        rates=Rates(load=20e-9, product=2e-9, product_alone=2e-9, gate_math=100e-9, submission=35e-6, dispatch=5e-6),
    ),
}


def profile(info: DeviceInfo) -> DeviceProfile:
    """The first row that fits a device."""
    return next(row for row in PROFILES.values() if row.fits(info))
