"""Forced options at random: what is forced runs right, or is refused by its name.

    python -m vkdml_lab.fuzz.options --draws 1000 --seed 0     each draw is a seed, so that --draws 1 --seed N makes one again

A draw is a random operator, of any type, strides and optional tensors, and up to four options, whose names are drawn with those of
one family of kernels: those of CPU drivers, those of GPUs (which CPU drivers run with lanes=False) or float64's.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import Any

import vkdml
from vkdml import InvalidArgumentError, Options
from vkdml.laboratory import BARRIER, FLOW, SCHEDULES
from vkdml_lab.suite.support import check, random_case, run_on_device

VALUES: dict[str, tuple[Any, ...]] = {
    "schedule": SCHEDULES, "meeting": (BARRIER, FLOW), "parts": (1, 2, 3, 5), "fused": (False, True), "lanes": (False, True),
    "resident": (False, True), "rows": (1, 2, 3, 5, 8), "units_at_once": (1, 2, 3), "workgroup": (4, 8, 8, 16, 16, 32, 64, 128),
    "shared_state": (False, True), "register_loads": (0, 0, 1, 3), "shared_loads": (0, 1, 1, 3), "chunk_steps": (1, 2, 5),
    "workspace_bytes": (1000, 5000, 100_000)}
# What is forced anyway, and the names that are drawn most
FAMILIES: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({}, ("schedule", "parts", "fused", "resident", "rows", "units_at_once", "workgroup", "shared_state")),
    ({"lanes": False}, ("schedule", "meeting", "parts", "rows", "workgroup", "register_loads", "shared_loads")),
    ({"lanes": False, "schedule": "sequence"}, ("rows", "workgroup", "register_loads", "shared_loads", "chunk_steps")))


def draw(seed: int) -> dict[str, Any]:
    """Options to force."""
    drawn = random.Random(f"options {seed}")
    forced, names = drawn.choice(FAMILIES)
    chosen = drawn.sample(names, drawn.randint(1, min(4, len(names))))
    if drawn.random() < 0.3:
        chosen.append(drawn.choice(list(VALUES)))
    return {**{name: drawn.choice(VALUES[name]) for name in chosen}, **forced}


def run(device: vkdml.Device, seed: int) -> str:
    """Make a draw. Returns what became of it. Raises AssertionError for wrong results and for a refusal of anything else."""
    case, forced = random_case(seed), draw(seed)
    try:
        results = run_on_device(device, case, Options(**forced))
    except InvalidArgumentError as error:
        name = error.field.removeprefix("options.")
        assert name in forced, f"seed {seed}, {forced}: {error}"  # noqa: PT017  (either outcome is right)
        assert f"found {forced[name]!r}; expected " in str(error)  # noqa: PT017
        return "refused by name"
    try:
        check(case, results)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {forced} with {case.problem.cell.name} in {case.element.name}: {error}") from error
    return "right"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.fuzz.options", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (0)")
    arguments = parser.parse_args()
    device, counts = vkdml.Device(), Counter[str]()
    for seed in range(arguments.seed, arguments.seed + arguments.draws):
        counts[run(device, seed)] += 1
        if counts.total() % 100 == 0 or counts.total() == arguments.draws:
            print(f"{device.info.name}, up to seed {seed}: {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
