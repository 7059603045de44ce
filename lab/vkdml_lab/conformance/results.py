"""The results file of a run on a device. It is written continuously, so that a crash loses nothing.

Each line is JSON. The first has the facts about the run: its device, software and choice of tests. The next one has the numbers
of tests. Each test adds lines (lab/vkdml_lab/suite/recording.py), the last of which has its outcome.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vkdml import InvalidArgumentError
from vkdml_lab import reports

UNFINISHED, CRASHED = "unfinished", "crashed"
DEVICE_LOST = 86  # exit code of a process that lost its device
_BAR_SECONDS = 2.0

About = dict[str, Any]
Test = dict[str, Any]
Record = dict[str, Any]  # a case, as lab/vkdml_lab/suite/recording.py writes it


def begin(path: Path, about: About, resume: bool) -> None:
    """Begin a results file. resume: keep ended tests. Raises InvalidArgumentError if they are of a run with other facts."""
    ended: list[Test] = []
    if resume and path.exists():
        head, tests = read(path)
        if {key: head.get(key) for key in about} != about:
            raise InvalidArgumentError("conformance", "--resume", f"{path} of another device, version or choice of tests",
                                       "the results of a run like this one, or no --resume")
        ended = [test for test in tests if test["outcome"] != UNFINISHED]
    path.write_text("".join(json.dumps(line) + "\n" for line in [about, *ended]))


def read(path: Path) -> tuple[dict[str, Any], list[Test]]:
    """Read a results file. Returns the facts about the run, and the last line of each test."""
    head: dict[str, Any] = {}
    tests: dict[str, Test] = {}
    for found in reports.parsed(path.read_text()):
        if "test" in found:
            tests[found["test"]] = found
        else:
            head |= found
    return head, list(tests.values())


def add_crash(path: Path, how: str, output: str) -> bool:
    """Record a crash or hang of the running test. how: in words. output: its last lines. Returns whether a test was running."""
    running = [test for test in read(path)[1] if test["outcome"] == UNFINISHED]
    for test in running:
        doing = (test.get("running") or {}).get("doing") or "running it"
        reports.append(path, {**test, "outcome": CRASHED, "failure": f"the process {how} while {doing}\n{output}"})
    return bool(running)


class Progress:
    """A progress bar on a terminal. Each call with a results file's path shows how many tests have ended."""

    def __init__(self) -> None:
        self._bar = tqdm(unit="test", delay=2, disable=None, leave=False)
        self._shown = time.monotonic()

    def __call__(self, path: Path) -> None:
        if self._bar.disable or time.monotonic() - self._shown < _BAR_SECONDS:
            return
        self._shown = time.monotonic()
        head, tests = read(path)
        self._bar.total = head.get("selected")
        self._bar.update(sum(test["outcome"] != UNFINISHED for test in tests) - self._bar.n)

    def close(self) -> None:
        self._bar.close()
