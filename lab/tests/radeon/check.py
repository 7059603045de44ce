"""Tests the GPU kernels on each emulated Radeon, and the engine and faces on one (`make radeon`, some minutes on two cores)."""

from __future__ import annotations

import argparse
import subprocess
import sys

from vkdml_lab.radeon import command

SUITE = [f"lab/vkdml_lab/suite/test_{name}.py" for name in ("gpu_kernels", "gpu_projection", "halves", "plain", "elementwise", "casts")]
# Tests with other requirements of the machine
APART = {
    "work that a GPU does in less than a second, and the emulator in minutes": [
        "test_kp", "test_random_shapes_share_pipelines", "test_other_threads_go_on_meanwhile", "test_a_limit_on_memory", "test_tuner"],
    "times, or a driver's threads": ["test_what_does_not_end_in_time_is_lost", "test_a_hosts_array_outlives_its_device",
                                    "test_handlers_at_exit_may_call"],
    "memory that the host sees, as a CPU driver's": ["test_a_kernel_that_stores_16_bits", "test_a_kernel_that_relies_on_a_size_of"],
    "a CPU driver's plans": ["test_a_cpu_leaves_products_to_the_host"],
    "a Vulkan layer, or another driver": ["test_faults", "test_portability"],
}
REST = ["tests/engine", "tests/faces"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.tests.radeon.check", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="test random problems, too, for so many minutes (0)")
    arguments = parser.parse_args()
    radeon, suite = [sys.executable, "-m", "vkdml", "radeon"], ["pytest", "--numprocesses", "2", "--dist", "worksteal"]
    apart = " and ".join(f"not {name}" for names in APART.values() for name in names)
    commands = [*(["--gpu", gpu, *suite, *SUITE] for gpu in command.CHIPS), [*suite, "-m", "device and not thorough", "-k", apart, *REST]]
    if arguments.minutes:
        commands.append(["python", "-m", "lab.tests.radeon.soak", "--minutes", str(arguments.minutes)])
    return max(subprocess.run([*radeon, *one]).returncode for one in commands)


if __name__ == "__main__":
    raise SystemExit(main())
