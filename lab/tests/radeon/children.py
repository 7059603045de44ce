"""Checks that child processes compute on the emulated GPU, however they are started: fork, spawn, forkserver, subprocess.

vkdml radeon python -m lab.tests.radeon.children
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor


def compute(seed: int = 0) -> str:
    """Run a small GRU, LSTM or RNN, by `seed`, and check its results. Returns the device's name."""
    import vkdml
    from vkdml_lab.suite.support import CELLS, check, drawn_case, make_desc, run_on_device

    device = vkdml.Device()
    case = drawn_case(make_desc(CELLS[seed % len(CELLS)], 3, 2, 4, 9), seed=seed)
    check(case, run_on_device(device, case, vkdml.Options(schedule="stepped")))  # forced, as the grid-sync test takes minutes
    return device.info.name


def forked() -> str:
    """Call `compute` in a child process made by os.fork(). Returns its result."""
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, compute().encode())
        os._exit(0)
    os.wait()
    return os.read(reading, 100).decode()


def main() -> None:
    names = [forked(), compute()]
    for method in ("spawn", "forkserver"):
        with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
            names += pool.map(compute, range(2))
    names.append(subprocess.run([sys.executable, "-c", "from lab.tests.radeon.children import compute; print(compute())"],
                                capture_output=True, text=True, check=True).stdout.strip())
    print(*names, sep="\n")


if __name__ == "__main__":
    main()
