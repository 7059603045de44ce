"""Faults tried in a worker's process. One that crashes or hangs is told, and the next is tried in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from tools.faults.layer import Fault, build

ROOT = Path(__file__).resolve().parents[2]

# What a function may return beside being out of memory and losing the device, by name
_RESULTS = {
    "vkCreateInstance": (-3, -7), "vkCreateDevice": (-3, -10), "vkEnumeratePhysicalDevices": (-3,),
    "vkAllocateMemory": (-10,), "vkMapMemory": (-5,), "vkAllocateDescriptorSets": (-12, -1000069000),
}
_COMMON = (-1, -2, -4)
_TIMEOUT = 2


class Tries:
    """A worker with the layer, which is built into a folder."""

    def __init__(self, folder: Path, patience: float = 100) -> None:
        """patience: seconds without an answer after which it hangs."""
        self._folder, self._patience = folder, patience
        self._environment = {**os.environ, **build(folder)}
        self._process: subprocess.Popen[bytes] | None = None

    def faults(self, scenario: str) -> list[list[Fault]]:
        """For each call that a scenario makes, the ways to fail."""
        counts: Mapping[str, int] = self.ask("counts", scenario)
        faults = []
        for function, count in counts.items():
            results = _COMMON + _RESULTS.get(function, ())
            faults += [[Fault(function, call, result) for result in results] for call in range(1, count + 1)]
        waits = counts["vkWaitForFences"]
        return faults + [[Fault("vkWaitForFences", call, _TIMEOUT, repeats=True)] for call in sorted({1, waits}) if waits]

    def ask(self, command: str, *arguments: Any) -> Any:
        """What the worker answers. Raises AssertionError where something is wrong, and where the worker crashes or hangs."""
        if self._process is None:
            self._start()
        assert self._process
        self._connection.send((command, *arguments))
        try:
            if not self._connection.poll(self._patience):
                self.close()
                raise AssertionError(f"{arguments}: it hangs")
            outcome, answer = self._connection.recv()
        except EOFError:
            code = self._process.wait()
            self._process = None
            raise AssertionError(f"{arguments}: it ends with {code}") from None
        assert outcome == "ok", f"{arguments}: {answer}"
        return answer

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.faults.worker", str(self._folder), str(theirs.fileno())], cwd=ROOT,
            env=self._environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._connection.close()
            self._process = None
