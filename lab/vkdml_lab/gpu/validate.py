"""Runs all of vkdml under synchronization validation, with a driver of each maker in ONE_OF_EACH but without GPUs.

python -m vkdml_lab.gpu.validate [--drivers DIR] needs .vulkan/layers (make vulkan-extras) or VKDML_LAYER_PATH
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from vkdml_lab.gpu.drivers import FETCHED, Driver, driver
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.validate import hazards, layers, messages

ONE_OF_EACH = ("rx7900xtx", "rtx3090", "arc-a770", "adreno740")


def _exercise(of_gpu: Driver, *arguments: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as cache:  # findings of made-up devices must not be kept
        return messages(layers(), [*of_gpu.python(), "-m", "vkdml_lab.gpu.exercise", *arguments],
                        of_gpu.environment | {"XDG_CACHE_HOME": cache})


def check(name: str, drivers: Path) -> bool:
    """Run vkdml with a GPU's driver. Returns whether the layer reports a control run without barriers, and nothing else."""
    with tempfile.TemporaryDirectory() as temporary:
        of_gpu = driver(GPUS[name], drivers, Path(temporary))
        code, control = _exercise(of_gpu, "control")
        if code or not hazards(control):
            print(f"{name}: the control {'failed' if code else 'is not caught: the layer does not see a hazard that is there'}")
            return False
        code, log = _exercise(of_gpu)
    print(log[:4000] + f"{name}: {hazards(log)} hazards, {log.count('VUID-')} other messages; {hazards(control)} in the "
          f"control; it {'failed' if code else 'ran to its end'}", flush=True)
    return not code and not log.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.gpu.validate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what lab/vkdml_lab/gpu/fetch made (.gpu-drivers)")
    arguments = parser.parse_args()
    results = [check(name, arguments.drivers) for name in ONE_OF_EACH]
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
