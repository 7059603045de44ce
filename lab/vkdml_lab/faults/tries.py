"""Tries faults (failing Vulkan calls) in a worker process. A crash or hang is reported, and a new process goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vkdml_lab import ROOT
from vkdml_lab.faults.layer import Fault, build
from vkdml_lab.processes import Worker, WorkerError

# Further results of some functions, besides out of memory and device lost
_RESULTS = {
    "vkCreateInstance": (-3, -7), "vkCreateDevice": (-3, -10), "vkEnumeratePhysicalDevices": (-3,),
    "vkAllocateMemory": (-10,), "vkMapMemory": (-5,), "vkAllocateDescriptorSets": (-12, -1000069000),
}
_COMMON = (-1, -2, -4)
_TIMEOUT = 2


class Tries:
    """A worker process with the layer (layer.py), built in a folder. patience: seconds until a silent worker counts as hung."""

    def __init__(self, folder: Path, patience: float = 100) -> None:
        self.worker = Worker("vkdml_lab.faults.worker", [str(folder)], {**os.environ, **build(folder)}, ROOT, patience)

    def faults(self, scenario: str) -> list[list[Fault]]:
        """Return lists of faults to try with a scenario: for each Vulkan call in it, a fault for each error; then timeouts."""
        counts: Mapping[str, int] = self.ask("counts", scenario)
        faults = []
        for function, count in counts.items():
            if function == "vkGetFenceStatus":  # polled, so the number of calls varies
                count = min(count, 1)
            results = _COMMON + _RESULTS.get(function, ())
            faults += [[Fault(function, call, result) for result in results] for call in range(1, count + 1)]
        waits = counts["vkWaitForFences"]
        return faults + [[Fault("vkWaitForFences", call, _TIMEOUT, repeats=True)] for call in sorted({1, waits}) if waits]

    def ask(self, command: str, *arguments: Any) -> Any:
        """Return the answer to a command (a method of FaultWorker). Raises AssertionError for a mistake, crash or hang."""
        self.worker.start()
        try:
            return self.worker.ask(command, *arguments)
        except WorkerError as error:
            raise AssertionError(f"{arguments}: {error}") from None

    def close(self) -> None:
        self.worker.close()
