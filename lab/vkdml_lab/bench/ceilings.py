"""Measures the limits of a device (its ceilings): rates of arithmetic and reads, and costs of calls.

Small shaders, written for this, run in a process of their own. `bench.bounds` computes a case's least time from these limits.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from vkdml import Buffer, Device
from vkdml_lab.bench.runner import timed
from vkdml_lab.internals import KP_VERSION, Commands, Dispatch, Kernel, of_spirv, open_device
from vkdml_lab.processes import UnavailableError

SHADERS = Path(__file__).parent / "shaders"
COMPILER = "glslangValidator"
FMA_ROUNDS, READ_LOADS = 8, 8  # the same as in the shaders
MIB = 2**20
MOST_ITERATIONS = 16_000  # one driver silently ends loops after 65,535
LONG_ENOUGH = 0.02  # seconds
SAMPLES = 5
DISPATCHES = 200
CALLS = 100
VEC4 = 16  # bytes


@dataclass(frozen=True)
class Sizes:
    """Sizes to try: vectors in an invocation (chains), workgroups for arithmetic and for reads, and bytes of buffers."""

    chains: tuple[int, ...] = (2, 3, 4, 8)
    groups: tuple[int, ...] = (1, 64, 4096)
    read_groups: tuple[int, ...] = (16, 64, 256, 1024)
    buffers: tuple[int, ...] = (MIB // 4, MIB, 4 * MIB, 16 * MIB)
    gpu_buffers: tuple[int, ...] = (128 * MIB,)  # larger than most caches


ALL = Sizes()
QUICK = Sizes((4,), (64,), (16,), (MIB // 4,), ())


class Library:
    """Measures a device. `measure` returns its ceilings by name, with the unit in the name, such as "gflops"."""

    def __init__(self, device: int, sizes: Sizes = ALL) -> None:
        info = next(info for info in Device.enumerate() if info.index == device)
        self._gpu = open_device(info)
        self._sizes = sizes
        self._buffers = sizes.buffers if info.is_cpu else sizes.buffers + sizes.gpu_buffers
        self._workgroups = sorted({info.subgroup_size, min(128, info.max_workgroup_invocations)})
        self.description = {"version": f"kp {KP_VERSION}", "device": info.name}

    def measure(self) -> dict[str, Any]:
        return {
            "gflops": self._fma_rate(),
            "read_gb_s": {str(size): self._read_rate(size, self._sizes.read_groups) for size in self._buffers},
            "read_one_workgroup_gb_s": {str(size): self._read_rate(size, [1]) for size in self._buffers[:2]},
            **self._call_costs(),
        }

    def _fma_rate(self) -> float:
        """Return the GFLOP/s of multiply-adds, which count as two operations each: the best rate of all sizes to try."""
        return max(self._fma(*sizes) for sizes in product(self._sizes.chains, self._workgroups, self._sizes.groups)) / 1e9

    def _fma(self, chains: int, workgroup: int, groups: int) -> float:
        results = Buffer(self._gpu, VEC4 * workgroup * groups)
        kernel = self._kernel(compile_shader("fma", CHAINS=chains), workgroup, groups, {"Results": results})
        factor = int(np.float32(1).view(np.uint32))
        iterations, seconds = lengthen(lambda count: self._seconds(kernel, {"iterations": count, "factor": factor}))
        steps = iterations * FMA_ROUNDS * np.arange(1, 5)
        expected = chains * steps + sum(range(chains))
        if not (results.download((workgroup * groups, 4)) == expected).all():
            raise RuntimeError(f"the driver did not run all of {iterations} iterations of multiply-adds")
        return 2 * 4 * chains * FMA_ROUNDS * iterations * workgroup * groups / seconds

    def _read_rate(self, size: int, groups: Iterable[int]) -> float:
        """Return the GB/s of reads of a buffer of `size` bytes, the best over workgroup sizes and the numbers in `groups`."""
        words = np.random.default_rng(0).integers(0, 2**32, size // 4, np.uint32)
        data = Buffer(self._gpu, size)
        data.upload(words)
        sums = words.reshape(-1, 4).sum(axis=0, dtype=np.uint32)
        sizes = [(workgroup, count) for workgroup, count in product(self._workgroups, groups)
                 if size // VEC4 // count >= workgroup * READ_LOADS]
        return max(self._read(data, sums, size // VEC4, *pair) for pair in sizes) / 1e9

    def _read(self, data: Buffer, sums: np.ndarray, loads: int, workgroup: int, groups: int) -> float:
        results = Buffer(self._gpu, VEC4 * workgroup * groups)
        part = loads // groups
        kernel = self._kernel(compile_shader("read"), workgroup, groups, {"Data": data, "Results": results})
        most = MOST_ITERATIONS * workgroup * READ_LOADS // part
        repetitions, seconds = lengthen(lambda count: self._seconds(kernel, {"repetitions": count, "part": part}), most)
        found = results.download((workgroup * groups, 4), np.uint32).sum(axis=0, dtype=np.uint32)
        if not (found == sums * np.uint32(repetitions)).all():
            raise RuntimeError(f"the driver did not run all of {repetitions} repetitions of reads")
        return loads * VEC4 * repetitions / seconds

    def _call_costs(self) -> dict[str, float]:
        """Return, by name, the microseconds of a submission of one dispatch, and of each further dispatch in it."""
        kernel = self._kernel(compile_shader("empty"), 1, 1, {"Results": Buffer(self._gpu, VEC4)}, writes=())
        one, many = (self._record(kernel, {}, count) for count in (1, 1 + DISPATCHES))
        submission, all_of_them = (median(timed(commands.execute) for _ in range(CALLS)) for commands in (one, many))
        return {"submission_us": submission * 1e6, "dispatch_us": (all_of_them - submission) / DISPATCHES * 1e6}

    def _kernel(self, spirv: bytes, workgroup: int, groups: int, buffers: dict[str, Buffer],
                writes: tuple[str, ...] = ("Results",)) -> Kernel:
        dispatch = Dispatch("ceiling", {"WORKGROUP": workgroup}, {name: name for name in buffers}, writes, (groups, 1, 1))
        return self._gpu.create_kernel(dispatch, buffers, of_spirv("ceiling", spirv))

    def _seconds(self, kernel: Kernel, push: dict[str, int]) -> float:
        """Return the seconds of a dispatch: the least of several samples, as a ceiling is the best that is possible."""
        commands = self._record(kernel, push)
        return min(timed(commands.execute) for _ in range(SAMPLES))

    def _record(self, kernel: Kernel, push: dict[str, int], times: int = 1) -> Commands:
        commands = Commands(self._gpu)
        for _ in range(times):
            commands.dispatch(kernel, push)
        return commands


def lengthen(seconds: Callable[[int], float], most: int = MOST_ITERATIONS) -> tuple[int, float]:
    """Try 16, 64, ... iterations until `seconds(iterations)` is LONG_ENOUGH. Returns their number (at most `most`) and time."""
    count = min(16, most)
    while (taken := seconds(count)) < LONG_ENOUGH and count < most:
        count = min(4 * count, most)
    return count, taken


def compile_shader(name: str, **macros: int) -> bytes:
    """Return a shader's SPIR-V: the wheel's, or else compiled with these macros. Raises UnavailableError without a compiler."""
    shipped = SHADERS / f"{'-'.join([name, *map(str, macros.values())])}.spv"
    if shipped.exists():
        return shipped.read_bytes()
    if shutil.which(COMPILER) is None:
        raise UnavailableError(f"no {COMPILER}, which compiles the shaders that measure (Debian's package glslang-tools)")
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "shader.spv"
        subprocess.run([COMPILER, "-V", "--quiet", "--target-env", "vulkan1.1", str(SHADERS / f"{name}.comp"),
                        *(f"-D{macro}={value}" for macro, value in macros.items()), "-o", str(binary)], check=True)
        return binary.read_bytes()
