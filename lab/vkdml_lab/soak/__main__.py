"""Random calls over all faces for a time: right ones, broken ones, and calls while the driver fails; and what grows meanwhile.

    python -m vkdml_lab.soak [--minutes M] [--output DIR] [--seed N]

Calls run in processes of their own, two at a time, each with its own operators; every second one with a layer that makes
functions of Vulkan fail. One that crashes or hangs is reported with the call that it was in, and the next begins. A call that
fails is made as small as it fails, and written down as tests/fuzz/regressions.json takes it.
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
# glibc keeps free memory of each thread's arena, and a driver that is lost and found begins new threads: that is no growth
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
ERROR = 1  # the exit code of a Python program that an exception has ended
SILENCE = 300.0  # seconds that a round may take


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="minutes to run (60)")
    parser.add_argument("--output", type=Path, default=ROOT / "soak-report", help="folder for the report (soak-report)")
    parser.add_argument("--seed", type=int, help="seed of the operators and calls (the time of day)")
    given = parser.parse_args(arguments)
    seed = int(time.time()) % 1_000_000 if given.seed is None else given.seed
    folder = given.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)  # left by a report before this one
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
    """Run one life after the other. layer: the environment of those whose driver fails."""
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
    if not ended and (child.code or not file.stat().st_size):  # the worker's own error
        ended = "ended by an error"
    if ended:
        (folder / f"{seed}.txt").write_text(child.output)
    return report.read(file, seed, bool(layer), ended)


if __name__ == "__main__":
    raise SystemExit(main())
