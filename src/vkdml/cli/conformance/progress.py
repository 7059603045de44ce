"""How far a run is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tqdm import tqdm

from . import results

_BAR_SECONDS, _LINE_SECONDS = 2.0, 30.0


class Progress:
    """Shows how far a run is whenever it is called with the file of results."""

    def __init__(self) -> None:
        self._bar = tqdm(unit="test", delay=2, disable=None, leave=False)
        self._began = self._shown = time.monotonic()
        self._interval = _LINE_SECONDS if self._bar.disable else _BAR_SECONDS

    def __call__(self, path: Path) -> None:
        now = time.monotonic()
        if now - self._shown < self._interval:
            return
        self._shown = now
        head, tests = results.read(path)
        ended = [test for test in tests if test["outcome"] != results.UNFINISHED]
        if self._bar.disable:
            failed = sum(test["outcome"] not in ("passed", "skipped") for test in ended)
            print(f"{len(ended)} of {head.get('selected', '?')} tests, {failed} failed, {now - self._began:.0f} s", flush=True,
                  file=sys.stderr)
        else:
            self._bar.total = head.get("selected")
            self._bar.update(len(ended) - self._bar.n)

    def close(self) -> None:
        self._bar.close()
