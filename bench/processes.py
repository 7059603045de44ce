"""The parent's side of a worker: starts its process, sends commands, ends it when it hangs, starts it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from bench.peers import Peer

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 180.0  # seconds without an answer after which a worker hangs


class WorkerError(Exception):
    """A worker's library is missing, or the worker refused a command, crashed or hung. The text says which."""


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with changes. Vulkan layers are looked for in this folder, which has none: kp would turn on a
    validation layer that is installed.
    """
    return {**os.environ, "VK_LAYER_PATH": str(Path(__file__).parent), **changes}


class Process:
    """A peer's worker. description: the version and device of its library, once it is open.

    The process is stopped except while it has a command to answer: the threads of some libraries spin after a call, or always.
    """

    def __init__(self, peer: Peer, patience: float = PATIENCE) -> None:
        self.peer = peer
        self.description: dict[str, str] = {}
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the process unless it runs. Raises WorkerError if the library is missing or fails."""
        if self._process is not None:
            return
        self._connection, theirs = Pipe()
        self._output = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", str(theirs.fileno())], cwd=ROOT, env=environment(self.peer.environment),
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
            start_new_session=True)  # a group with a stopped process gets a SIGHUP when its shell ends
        theirs.close()
        self.description = self.ask("open", self.peer.adapter, self.peer.settings)

    def ask(self, command: str, *arguments: Any) -> Any:
        """The answer to a command: a method of bench.worker.Worker. Raises WorkerError."""
        if self._process is None:
            raise WorkerError("ended by what was measured before")
        self._process.send_signal(signal.SIGCONT)
        try:
            self._connection.send((command, arguments))
            if not self._connection.poll(self._patience):
                raise WorkerError(f"hung: no answer to {command} in {self._patience:.0f} s")
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerError(self._end()) from None
        except WorkerError:
            self.close()
            raise
        self._process.send_signal(signal.SIGSTOP)
        if kind == "error":
            raise WorkerError(value)
        return value

    def close(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._output.close()
        self._process = None

    def _end(self) -> str:
        """How a process that no longer answers has ended, and the last line of its output."""
        assert self._process is not None
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = 0
        self._output.seek(0)
        words = self._output.read().strip().splitlines()[-1:]
        self.close()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return ": ".join([f"crashed ({name})", *words])


