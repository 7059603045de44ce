"""The adapter for the vkdml of a given source tree, for `bench.against`. It uses public names only, which all commits have."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import vkdml
from vkdml_lab.bench.adapters import ours
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.runner import Runner, settle, timed
from vkdml_lab.processes import UnavailableError

LATER_CALLS = 3


class Library:
    """The vkdml of a source tree. Opens the device only when a case begins, as this counts as a part of the first result.

    tree: the folder that vkdml must be imported from (UnavailableError if it is not). device: an index.
    """

    def __init__(self, tree: Path, device: int) -> None:
        found = Path(vkdml.__file__).resolve()
        if not found.is_relative_to(tree):
            raise UnavailableError(f"imported {found}, which is not in {tree}")
        self._device = device
        self._library: ours.Library | None = None
        self.description: dict[str, str] = {}

    def prepare(self, case: Case) -> dict[str, Runner]:
        self._library = self._library or ours.Library(self._device)
        return self._library.prepare(case)

    def measure(self, case: Case) -> dict[str, Any]:
        """Measure a case from numpy to numpy, in seconds. Returns `first`, the time to open the device and make the first call,
        and `compile`, the time of the first call minus that of a later call.
        """
        arrays = case.arrays()
        started = time.perf_counter()
        runner = ours.Library(self._device)._host(case, arrays)
        opened = time.perf_counter()
        runner.run()
        done = time.perf_counter()
        settle(runner.run)
        return {"first": done - started, "compile": done - opened - median(timed(runner.run) for _ in range(LATER_CALLS))}
