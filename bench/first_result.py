"""Seconds from the start of a process to its first GRU result, with the driver's cache of compiled shaders and without.

`python -m bench.first_result DEVICE` is that process: it says when it has the result.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from statistics import median

from bench.processes import ROOT, environment

RUNS = 3


def measure(device: int) -> dict[str, float]:
    """By what is done with Mesa's cache; other drivers may keep one of their own."""
    with tempfile.TemporaryDirectory() as cache:
        kept = {"MESA_SHADER_CACHE_DIR": cache, "MESA_SHADER_CACHE_DISABLE": "false"}
        _start(device, kept)  # fills it
        return {"shader cache off": median(_start(device, {"MESA_SHADER_CACHE_DISABLE": "true"}) for _ in range(RUNS)),
                "shader cache on": median(_start(device, kept) for _ in range(RUNS))}


def _start(device: int, changes: dict[str, str]) -> float:
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "bench.first_result", str(device)], cwd=ROOT, env=environment(changes),
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - started
    if line != "done\n":
        raise RuntimeError("no first result: the process failed")
    return seconds


def main() -> int:
    import numpy as np

    import vkdml

    t, b, size = 10, 1, 256
    rng = np.random.default_rng(0)
    shapes = [(t, b, size), (1, 3 * size, size), (1, 3 * size, size), (1, 6 * size)]
    vkdml.gru(*(rng.standard_normal(shape, np.float32) * np.float32(0.1) for shape in shapes),
              device=int(sys.argv[1]))
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
