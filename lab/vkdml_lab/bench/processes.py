"""Runs libraries in processes, which are stopped (SIGSTOP) except while they answer a command."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vkdml_lab import ROOT
from vkdml_lab.bench.peers import Peer
from vkdml_lab.processes import Worker, WorkerError

PATIENCE = 180.0  # seconds without an answer before a worker counts as hung


def machine() -> dict[str, str]:
    """Return the operating system, Python's version and the number of usable cores, for reports."""
    return {"system": platform.platform(), "Python": platform.python_version(), "cores": str(len(os.sched_getaffinity(0)))}


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with changes. Without layers in VK_LAYER_PATH, kp enables no validation layer."""
    return {**os.environ, "VK_LAYER_PATH": str(Path(__file__).parent), **changes}


class Process(Worker):
    """The process of one library, a worker. description: the library's version and device, by name; empty until `open`."""

    def __init__(self, peer: Peer, patience: float = PATIENCE) -> None:
        super().__init__("vkdml_lab.bench.worker", [], environment(peer.environment), ROOT, patience, rests=True)
        self.peer = peer
        self.description: dict[str, str] = {}

    def open(self) -> None:
        """Start the process and load its library, unless it runs. Raises WorkerError if the library is missing or fails."""
        if self.pid is None:
            self.start()
            self.description = self.ask("open", self.peer.adapter, self.peer.settings)

    def measure(self, *arguments: Any) -> dict[str, Any]:
        """Return what the library itself measures (its method `measure`), and end the process. Raises WorkerError."""
        try:
            self.open()
            measured: dict[str, Any] = self.ask("measure", *arguments)
            return measured
        finally:
            self.close()


def open_all(wanted: Sequence[Peer]) -> tuple[list[Process], list[dict[str, str]]]:
    """Open libraries. Returns their processes, and for each that cannot run a row: its name, the reason, how to install it."""
    processes, missing = [], []
    for peer in wanted:
        process = Process(peer)
        try:
            process.open()
            processes.append(process)
        except WorkerError as error:
            process.close()
            missing.append({"name": peer.name, "reason": str(error), "install": peer.install})
    return processes, missing
