"""Runs random problems on an emulated GPU with random delays, caches and rounding, and checks results by the reference.

vkdml radeon python -m lab.tests.radeon.soak [--minutes M] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from itertools import count

from vkdml import Device
from vkdml.errors import VkdmlError
from vkdml_lab.radeon import process
from vkdml_lab.suite.support import OTHER_SCHEDULES, check, random_case, run_on_device


def run(device: Device, seed: int) -> str:
    """Run a seed's problem. Returns its schedule, or "refused". Raises AssertionError for wrong results, or for faults."""
    draw = random.Random(seed)
    process.change(seed=seed, late=draw.choice((0, 1, 1, 1, 2)), caches=draw.choice((0, 1, 1)), inexact=draw.choice((0, 1)))
    name = draw.choice(list(OTHER_SCHEDULES))  # forced, as tuning and the grid-sync test would take minutes
    case = random_case(seed)
    try:
        results = run_on_device(device, case, OTHER_SCHEDULES[name])
    except VkdmlError:
        return "refused"
    found = process.found()
    check(case, results)
    assert not found, f"{name}: {', '.join(sorted(found))}"
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    device, end, ran, failed = Device(), time.monotonic() + 60 * arguments.minutes, Counter[str](), 0
    process.found()
    for seed in count(arguments.seed):
        if time.monotonic() > end:
            break
        try:
            ran[run(device, seed)] += 1
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}: {error}", flush=True)
    print(f"{sum(ran.values())} random problems were right ({', '.join(f'{name} {n}' for name, n in ran.items())}), {failed} wrong")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
