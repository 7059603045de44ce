"""vkdml as a given source tree has it, for `bench.against`. Uses public names only, so that it runs with other commits."""

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
    """Measures the vkdml of a source tree. Opens the device when a case begins, as the time of a first result includes that.

    tree: the folder of the source tree from which vkdml must come. device: an index.
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
        """Measure from numpy to numpy. Returns `first`, the seconds to open the device and make the first call, and `compile`,
        the seconds of the first call minus a later call's.
        """
        arrays = case.arrays()
        started = time.perf_counter()
        runner = ours.Library(self._device)._host(case, arrays)
        opened = time.perf_counter()
        runner.run()
        done = time.perf_counter()
        settle(runner.run)
        return {"first": done - started, "compile": done - opened - median(timed(runner.run) for _ in range(LATER_CALLS))}
