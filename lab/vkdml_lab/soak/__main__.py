"""Call all faces (interfaces) of vkdml at random, also with broken arguments and with a failing driver. Report leaks.

    python -m vkdml_lab.soak [--minutes M] [--output DIR] [--seed N]

Two processes run at a time, each with its own operators. One of the two has a Vulkan layer that makes driver calls fail. If a
process crashes or hangs, the report names its last call, and a new process begins. The report has failing calls in the form of
tests/fuzz/regressions.json, shrunk unless the driver failed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vkdml_lab import ROOT
from vkdml_lab.faults.layer import build
from vkdml_lab.processes import supervise
from vkdml_lab.soak import report

LANES, LONGEST_LIFE = 2, 10 * 60.0
COMMAND = ["-m", "vkdml_lab.soak.worker"]
# glibc keeps free memory for each thread. A lost device leads to new threads, so this would look like a leak
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
ERROR = 1  # exit code of Python after an uncaught exception
SILENCE = 300.0  # seconds for a round before it counts as hung


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="minutes to run (60)")
    parser.add_argument("--output", type=Path, default=ROOT / "soak-report", help="folder for the report (soak-report)")
    parser.add_argument("--seed", type=int, help="seed of the operators and calls (the time of day)")
    given = parser.parse_args(arguments)
    seed = int(time.time()) % 1_000_000 if given.seed is None else given.seed
    folder = given.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)  # an earlier report
    (folder / "layer").mkdir(parents=True)
    layer = build(folder / "layer")
    print(f"soak: {given.minutes:g} minutes, --seed {seed}", file=sys.stderr)
    with ThreadPoolExecutor(LANES) as pool:
        lanes = [pool.submit(live, folder, seed + lane, given.minutes * 60, layer if lane % 2 else {}) for lane in range(LANES)]
    lives = [life for lane in lanes for life in lane.result()]
    report.write(lives, folder)
    print(f"report: {given.output}/{report.MARKDOWN}")
    return int(bool(report.failed(lives)))


def live(folder: Path, seed: int, seconds: float, layer: dict[str, str]) -> list[report.LifeReport]:
    """Run one process of the soak after another for `seconds`. layer: variables that load the layer of failures, or {}."""
    lives, end = [], time.monotonic() + seconds
    for number in itertools.count(seed, LANES):
        left = end - time.monotonic()
        if left <= 0:
            break
        lives.append(live_once(folder, number, min(left, LONGEST_LIFE), layer))
    return lives


def live_once(folder: Path, seed: int, seconds: float, layer: dict[str, str]) -> report.LifeReport:
    file = folder / f"{seed}.jsonl"
    file.touch()
    command = [sys.executable, *COMMAND, str(file), "--seed", str(seed), "--seconds", str(seconds),
               *(["--faults", str(folder / "layer")] if layer else [])]
    child = supervise(command, {**os.environ, **ONE_ARENA, **layer}, ROOT, grows=file, silence=SILENCE)
    ended = "" if child.code in (0, ERROR) else child.how
    if not ended and (child.code or not file.stat().st_size):  # an error of the worker itself
        ended = "ended by an error"
    if ended:
        (folder / f"{seed}.txt").write_text(child.output)
    return report.read(file, seed, bool(layer), ended)


if __name__ == "__main__":
    raise SystemExit(main())
