"""One table: a row for each GPU, with every figure that the planner (profiles.py) and the check of compiled kernels (`make
gpu-check`) use. None was measured here: profiles.py has the figures that were measured, on an H200.

Sources. Of units: AMD's papers and instruction set guides of Vega, CDNA 2 and RDNA to RDNA 4, NVIDIA's papers on Turing,
Ampere (GA100 and GA102), Hopper, Ada and Blackwell, Intel's papers on Gen9 and its GPU Occupancy Calculator (Xe-LP to Xe2),
Arm's data sheet and guide to Valhall, Mesa's tables for Adreno, the Asahi project's findings for Apple. most_weights and
other_registers: prototypes of the step kernels, compiled by Mesa. units, clock (of boost) and memory_rate: the makers' data
sheets, rounded, memory of integrated GPUs down. cache_rate: others' public measurements, rounded; where a comment gives bytes a
cycle, the maker's figure times the clock. cache_bytes, memory_cache_bytes: Linux's table for AMD (amdkfd/kfd_crat.c), AMD's
data sheet of RDNA 4, papers of NVIDIA, Intel and Arm, public measurements of M1 and of Adreno 640, which is like 618; that of
Adreno 740 is a guess. memory_cache_rate: AMD's footnotes, 64 bytes a cycle for each of 12 to 24 channels. latency is 500 cycles
and seen is 750, unless better figures are published.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class GpuRates:
    """The resources and rates of a GPU. A unit runs whole workgroups: it is a compute unit, an SM or an Xe-core."""

    units: int
    clock: float               # cycles a second
    simds: int                 # SIMDs of a unit, each of which issues an instruction a cycle
    simd_lanes: int            # float32 multiply-adds of a SIMD in a cycle
    subgroups: int             # most subgroups that a SIMD holds at once
    subgroup_width: int        # invocations of such a subgroup
    registers: int             # 32-bit registers of a unit
    invocation_registers: int  # most registers of an invocation, with the subgroup width that the compiler chooses
    other_registers: int = 48  # registers besides weights and sums in a step kernel: Mesa's compilers take 24 to 72
    row_registers: int = 1     # registers of each further row of a tile, besides its sums
    most_weights: int          # most registers of resident weights that an invocation has without spills
    unit_shared_bytes: int     # shared memory of a unit, for all its workgroups together
    sinks_loads: bool = False  # whether the compiler moves loads to their use if a tile has one row, which saves registers
    shared_rate: float = 128   # bytes that a unit reads from shared memory in a cycle
    cache_rate: float          # bytes a second that all units together read from the second-level cache
    cache_bytes: float         # bytes of the second-level cache
    memory_cache_bytes: float = 0  # bytes of the cache between that one and the memory of a discrete GPU, if there is one
    memory_cache_rate: float = 0   # bytes a second that all units together read from it
    memory_rate: float         # bytes a second that all units together read from memory
    latency: float             # seconds of a load from memory or the second-level cache, if nothing hides it
    seen: float                # seconds until another workgroup sees a stored word: a store, a load and half a poll

    @property
    def lanes(self) -> int:
        """Multiply-adds of a unit in a cycle, without dual issue."""
        return self.simds * self.simd_lanes

    @property
    def most_invocations(self) -> int:
        """How many invocations a unit holds at once."""
        return self.simds * self.subgroups * self.subgroup_width

    def rate_of(self, size: float) -> float:
        """Return the bytes a second at which this many bytes are read over and over, from the nearest cache that holds them."""
        if size <= self.cache_bytes:
            return self.cache_rate
        return self.memory_cache_rate if size <= self.memory_cache_bytes else self.memory_rate

    def beyond_cache(self, size: float, whole: float) -> float:
        """Return how many seconds more than from the second-level cache bytes take that are a part of `whole` bytes."""
        return size / self.rate_of(whole) - size / self.cache_rate


# How many units GPUs have whose drivers do not report it, by the first pattern that is found in the device's name
_NAMED_UNITS = {
    r"Intel.*Max 1550": 64, r"Intel.*Max 1100": 56,
    r"Arc.*A770": 32, r"Arc.*A750": 28, r"Arc.*A(580|730M)": 24, r"Arc.*A550M": 16, r"Arc.*A3[578]0|Arc.*A[45]0\b": 8,
    r"Arc.*A310": 6, r"Arc.*B(60|580)\b": 20, r"Arc.*B570": 18, r"Arc.*B50\b": 16,
    r"Arc.*130V": 7, r"\((MTL|ARL|LNL)": 8, r"Iris.*Xe|\((TGL|ADL|RPL).* GT2\)": 6, r"UHD.*7[3-7]0|Intel.* GT1\)": 2,
    r"\(ICL GT2\)": 8, r"Intel.* GT3e?\)": 6, r"Intel.* GT4e?\)": 9,
    r"Adreno.* 690": 8, r"Adreno.* (74\d|75\d|X1)": 6, r"Adreno.* (680|725|730)": 4, r"Adreno.* (644|65\d|66\d|735)": 3,
    r"Adreno.* (621|63\d|64\d|[78]c)": 2, r"Adreno.* 6[012]\d": 1,
    r"Apple M\d Ultra": 64, r"Apple M\d Max": 32, r"Apple M\d Pro": 16, r"Apple M\d": 8,
}


def named_units(name: str) -> int:
    """Look up the number of units by a device's name; 0 if the name does not tell."""
    return next((units for pattern, units in _NAMED_UNITS.items() if re.search(pattern, name)), 0)


# RDNA: a compute unit, half a work-group processor, has 2 SIMDs of 32 lanes, with 128 KiB of registers and 16 waves each. GPUs
# of this kind have clocks of 2.1 to 2.6 GHz. The cache at the memory has 96 MiB, but a MiB for each unit in smaller ones
_RX_6700_XT = GpuRates(
    units=40, clock=2.2e9, simds=2, simd_lanes=32, subgroups=16, subgroup_width=32,
    registers=65_536, invocation_registers=256, other_registers=24, most_weights=192,
    unit_shared_bytes=65_536, cache_rate=2.2e12, cache_bytes=3 * _MIB, memory_cache_bytes=40 * _MIB,
    memory_cache_rate=1.4e12, memory_rate=384e9, latency=230e-9, seen=0.35e-6)
# The large GPUs of RDNA 3 and 4 have 1.5 times as many registers. The clock is between the game clock and the boost clock
_RX_7900_XTX = replace(_RX_6700_XT, units=96, clock=2.4e9, registers=98_304, cache_rate=5e12, cache_bytes=6 * _MIB,
                       memory_cache_bytes=96 * _MIB, memory_cache_rate=3.4e12, memory_rate=960e9)

# GCN and CDNA 2: a compute unit has 4 SIMDs of 16 lanes, with 64 KiB of registers and 10 (CDNA 2: 8) waves of 64 each. The
# second-level cache has 16 channels of 64 bytes a cycle (CDNA 2: 32 of 128)
_VEGA_64 = GpuRates(
    units=64, clock=1.5e9, simds=4, simd_lanes=16, subgroups=10, subgroup_width=64,
    registers=65_536, invocation_registers=256, most_weights=192, unit_shared_bytes=65_536,
    cache_rate=1.6e12, cache_bytes=4 * _MIB, memory_rate=484e9, latency=450e-9, seen=0.7e-6)

# GA102 and Ada: an SM has 4 SIMDs of 32 lanes, 256 KiB of registers, 48 warps, and 100 KiB of shared memory. The rate of the
# second-level cache is not published: this is the lower of two guesses
_RTX_3090 = GpuRates(
    units=82, clock=1.7e9, simds=4, simd_lanes=32, subgroups=12, subgroup_width=32,
    registers=65_536, invocation_registers=255, other_registers=24, most_weights=192, unit_shared_bytes=102_400,
    cache_rate=2.5e12, cache_bytes=6 * _MIB, memory_rate=936e9, latency=300e-9, seen=0.45e-6)
# Turing: an SM has 16 lanes, 32 warps, 64 KiB, and 16 load/store units, so 64 bytes a cycle. Both this and 800 bytes a cycle
# from TU104's cache were measured on the T4 (Jia et al., Dissecting the NVidia Turing T4 GPU via Microbenchmarking)
_RTX_2070_SUPER = replace(
    _RTX_3090, units=40, clock=1.8e9, simd_lanes=16, subgroups=8, unit_shared_bytes=65_536, shared_rate=64,
    cache_rate=1.4e12, cache_bytes=4 * _MIB, memory_rate=448e9)

# An Xe-core has 16 engines of 8 lanes (Xe2: 8 of 16) with 8 threads each, 128 registers in a lane of a thread, and 128 KiB of
# shared memory. In wider subgroups an invocation has half as many registers. The rate of the second-level cache is not
# published: this is the lower of two guesses
_ARC_B580 = GpuRates(
    units=named_units("Arc B580"), clock=2.7e9, simds=8, simd_lanes=16, subgroups=8, subgroup_width=16,
    registers=131_072, invocation_registers=128, other_registers=32, most_weights=80, sinks_loads=True,
    unit_shared_bytes=131_072, cache_rate=1.3e12, cache_bytes=18 * _MIB, memory_rate=456e9, latency=400e-9,
    seen=0.5e-6)
_OF_8_LANES = replace(_ARC_B580, simds=16, simd_lanes=8, subgroup_width=8)

# Adreno: a shader processor has 192 KiB of registers, 16 waves of 128, and 32 KiB of shared memory. An invocation may have 192
# registers, but Mesa's compiler spills on Adreno 618 if nearly all are needed
_ADRENO_740 = GpuRates(
    units=named_units("Adreno 740"), clock=0.68e9, simds=2, simd_lanes=64, subgroups=8, subgroup_width=128,
    registers=49_152, invocation_registers=156, most_weights=48, unit_shared_bytes=32_768, shared_rate=64,
    cache_rate=0.3e12, cache_bytes=_MIB, memory_rate=60e9, latency=770e-9, seen=1.2e-6)

GPUS = {
    "RX 6700 XT": _RX_6700_XT,
    "RX 6900 XT": replace(_RX_6700_XT, units=80, clock=2.25e9, cache_rate=4.5e12, cache_bytes=4 * _MIB,
                          memory_cache_bytes=128 * _MIB, memory_cache_rate=1.9e12, memory_rate=512e9),
    "RX 7900 XTX": _RX_7900_XTX,
    "RX 9070": replace(_RX_7900_XTX, units=56, clock=2.5e9, cache_bytes=8 * _MIB, memory_cache_bytes=64 * _MIB,
                       memory_cache_rate=2e12, memory_rate=640e9),
    "RX Vega 64": _VEGA_64,
    "Instinct MI210": replace(_VEGA_64, units=104, clock=1.7e9, subgroups=8, cache_rate=6.9e12, cache_bytes=8 * _MIB,
                              memory_rate=1.6e12),
    "RTX 2070 Super": _RTX_2070_SUPER,
    "RTX 2080": replace(_RTX_2070_SUPER, units=46, clock=1.7e9),
    # An SM has 16 lanes, 64 warps, 164 KiB. The cache's 5120 bytes a cycle are 7.2e12, of which 4.8e12 are reached (NVIDIA's
    # forum). This is the A100 of 40 GB
    "A100": replace(_RTX_3090, units=108, clock=1.4e9, simd_lanes=16, subgroups=16, unit_shared_bytes=167_936,
                    cache_rate=4.8e12, cache_bytes=40 * _MIB, memory_rate=1.55e12),
    "RTX 3090": _RTX_3090,
    "RTX 4090": replace(_RTX_3090, units=128, clock=2.5e9, cache_rate=5e12, cache_bytes=72 * _MIB, memory_rate=1.01e12),
    "RTX 5090": replace(_RTX_3090, units=170, clock=2.4e9, cache_rate=6e12, cache_bytes=96 * _MIB, memory_rate=1.79e12),
    # An SM has 64 warps and 228 KiB of shared memory
    "H200": replace(_RTX_3090, units=132, clock=2e9, subgroups=16, unit_shared_bytes=233_472, cache_rate=5.5e12,
                    cache_bytes=50 * _MIB, memory_rate=4.8e12),
    # Gen9: a subslice has 8 engines of 8 lanes with 7 threads each, and 64 KiB of shared memory
    "UHD 630": replace(_OF_8_LANES, units=3, clock=1.1e9, simds=8, subgroups=7, registers=57_344, unit_shared_bytes=65_536,
                       shared_rate=64, cache_rate=0.1e12, cache_bytes=0.75 * _MIB, memory_rate=35e9),
    # Xe-LP: a dual subslice has 16 engines with 7 threads, 64 KiB of shared memory, and 64 bytes a cycle from the cache
    "Iris Xe": replace(_OF_8_LANES, units=named_units("Iris Xe"), clock=1.3e9, subgroups=7, registers=114_688,
                       unit_shared_bytes=65_536, cache_rate=0.5e12, cache_bytes=3.75 * _MIB, memory_rate=65e9),
    "Arc A770": replace(_OF_8_LANES, units=named_units("Arc A770"), clock=2.1e9, cache_rate=2e12, cache_bytes=16 * _MIB,
                        memory_rate=560e9),
    "Arc B580": _ARC_B580,
    "Adreno 618": replace(_ADRENO_740, units=named_units("Adreno 618"), clock=0.7e9, cache_rate=0.05e12,
                          cache_bytes=0.125 * _MIB, memory_rate=15e9),
    "Adreno 740": _ADRENO_740,
    # Valhall: a core has 1024 threads with 32 registers, or 512 with 64; shared memory is plain memory in the first-level cache
    "Mali-G78": GpuRates(
        units=20, clock=0.8e9, simds=2, simd_lanes=16, subgroups=32, subgroup_width=16,
        registers=32_768, invocation_registers=64, most_weights=16, unit_shared_bytes=32_768, shared_rate=64,
        cache_rate=0.4e12, cache_bytes=2 * _MIB, memory_rate=45e9, latency=630e-9, seen=0.95e-6),
    # Apple's core has 128 lanes and 208 KiB of registers
    "M1": GpuRates(
        units=named_units("Apple M1"), clock=1.25e9, simds=4, simd_lanes=32, subgroups=8, subgroup_width=32,
        registers=53_248, invocation_registers=128, most_weights=48, unit_shared_bytes=61_440,
        cache_rate=0.4e12, cache_bytes=_MIB, memory_rate=65e9, latency=400e-9, seen=0.6e-6),
    # The least that one can expect of an unknown GPU
    "unknown": GpuRates(
        units=16, clock=1e9, simds=2, simd_lanes=32, subgroups=16, subgroup_width=32,
        registers=32_768, invocation_registers=64, most_weights=16, unit_shared_bytes=32_768, shared_rate=64,
        cache_rate=0.4e12, cache_bytes=_MIB, memory_rate=100e9, latency=600e-9, seen=1e-6),
}
