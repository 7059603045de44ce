"""`make radeon`: the suite of kernels for GPUs, and the tests of the engine and the faces, on the emulated Radeon.

    python -m lab.tests.radeon.check [--gpu NAME] [--minutes M]

It takes some minutes on two cores; --minutes goes on with random problems for so long.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

SUITE = [f"lab/vkdml_lab/suite/test_{name}.py" for name in ("gpu_kernels", "gpu_projection", "halves", "plain", "elementwise", "casts")]
# Why not: work of minutes for the emulator, which a GPU does in less than a second; a driver that fails, of a Vulkan layer that is
# not there; memory, copies and timings of CPU drivers
APART = ["test_kp", "test_faults", "test_portability", "test_tuner", "test_host_and_device"]
REST = ["tests/engine", "tests/faces"]


def main() -> int:
    """Whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="rx7900xtx")
    parser.add_argument("--minutes", type=float, default=0)
    arguments = parser.parse_args()
    radeon = [sys.executable, "-m", "vkdml", "radeon", "--gpu", arguments.gpu]
    suite = ["pytest", "--numprocesses", "2", "--dist", "worksteal"]
    commands = [[*suite, *SUITE], [*suite, "-m", "device and not thorough", "-k", " and ".join(f"not {name}" for name in APART), *REST]]
    if arguments.minutes:
        commands.append(["python", "-m", "lab.tests.radeon.soak", "--minutes", str(arguments.minutes)])
    return max(subprocess.run([*radeon, *command]).returncode for command in commands)


if __name__ == "__main__":
    raise SystemExit(main())
