"""The file that a run on a device writes as it goes, so that a crash loses nothing.

A line of JSON each: first `about`, what is tested with what; then `selected`, how many tests there are; then each test when it
begins and when it has ended (lab/vkdml_lab/suite/recording.py). The later line of a test is its outcome.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vkdml import InvalidArgumentError
from vkdml_lab import reports

UNFINISHED, CRASHED = "unfinished", "crashed"
DEVICE_LOST = 86  # exit code of a process whose device cannot be used any more
_BAR_SECONDS, _LINE_SECONDS = 2.0, 30.0

About = dict[str, Any]
Test = dict[str, Any]
Record = dict[str, Any]  # a case, as lab/vkdml_lab/suite/recording.py writes it


def begin(path: Path, about: About, resume: bool) -> None:
    """Leaves in the file what is there to go on from: all tests that have ended, or nothing."""
    ended: list[Test] = []
    if resume and path.exists():
        head, tests = read(path)
        if {key: head.get(key) for key in about} != about:
            raise InvalidArgumentError("conformance", "--resume", f"{path} of another device, version or choice of tests",
                                       "the results of a run like this one, or no --resume")
        ended = [test for test in tests if test["outcome"] != UNFINISHED]
    path.write_text("".join(json.dumps(line) + "\n" for line in [about, *ended]))


def read(path: Path) -> tuple[dict[str, Any], list[Test]]:
    """What is said of the whole run, and the last line of each test."""
    head: dict[str, Any] = {}
    tests: dict[str, Test] = {}
    for found in reports.parsed(path.read_text()):
        if "test" in found:
            tests[found["test"]] = found
        else:
            head |= found
    return head, list(tests.values())


def add_crash(path: Path, how: str, output: str) -> bool:
    """Notes that the test that was running ended the process. Returns whether there was one."""
    running = [test for test in read(path)[1] if test["outcome"] == UNFINISHED]
    for test in running:
        doing = (test.get("running") or {}).get("doing") or "running it"
        reports.append(path, {**test, "outcome": CRASHED, "failure": f"the process {how} while {doing}\n{output}"})
    return bool(running)


class Progress:
    """Shows how far a run is whenever it is called with the file: a bar on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._bar = tqdm(unit="test", delay=2, disable=None, leave=False)
        self._began = self._shown = time.monotonic()
        self._interval = _LINE_SECONDS if self._bar.disable else _BAR_SECONDS

    def __call__(self, path: Path) -> None:
        now = time.monotonic()
        if now - self._shown < self._interval:
            return
        self._shown = now
        head, tests = read(path)
        ended = [test for test in tests if test["outcome"] != UNFINISHED]
        if self._bar.disable:
            failed = sum(test["outcome"] not in ("passed", "skipped") for test in ended)
            print(f"{len(ended)} of {head.get('selected', '?')} tests, {failed} failed, {now - self._began:.0f} s", flush=True,
                  file=sys.stderr)
        else:
            self._bar.total = head.get("selected")
            self._bar.update(len(ended) - self._bar.n)

    def close(self) -> None:
        self._bar.close()
