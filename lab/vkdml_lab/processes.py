"""Child processes that may crash or hang: run to their end, or asked through a pipe, and killed with all that they started."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_OUTPUT_LINES = 100
_PR_SET_PDEATHSIG = 1
ENDED = "ended by what was asked before"
_ENDING_SECONDS = 10.0  # a killed process may take so long; one that waits for a driver may never end
_LAST_WORDS_SECONDS = 5.0  # a process may take so long to end once it has closed its pipe


class UnavailableError(Exception):
    """What is to be run cannot run on this machine. The text says why, and a report says it as it is."""


class WorkerError(Exception):
    """A worker crashed or hung, or refused a question. The text says which."""


class Child:
    """A command in a session of its own, so that killing it reaches its children. output: a file, or else a temporary one."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path | None = None,
                 descriptors: Sequence[int] = ()) -> None:
        self._output = (output.open("w+", errors="replace") if output else
                        tempfile.TemporaryFile("w+", errors="replace"))  # noqa: SIM115  (closed at the end)
        self._process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=self._output,
                                         stderr=subprocess.STDOUT, pass_fds=descriptors, start_new_session=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """The exit code, below zero the signal that ended it; None: it still runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def output(self, lines: int) -> str:
        """The last lines of its output."""
        self._output.seek(0)
        return "\n".join([line for line in self._output.read().splitlines() if line.strip()][-lines:])

    def end(self) -> None:
        """Kill it, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(_ENDING_SECONDS)
        self._output.close()


def crashed(code: int) -> str:
    """How a process with this exit code has ended, in words."""
    return f"crashed: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


@dataclass(frozen=True)
class Ended:
    """How a child has ended. code: None where it hung. how: in words, also where an exit code is no crash. output: the last."""

    code: int | None
    how: str
    output: str


def supervise(command: Sequence[str], environment: Mapping[str, str], folder: Path, *, seconds: float = math.inf,
              grows: Path | None = None, silence: float = math.inf, seen: Callable[[], object] = lambda: None,
              output: Path | None = None) -> Ended:
    """Run a command in a folder to its end, and kill what it leaves.

    It hangs, and is killed, when it has run for `seconds`, or when the file `grows` has not grown for `silence` seconds. seen:
    called each second. output: a file for all it prints.
    """
    child = Child(command, environment, folder, output)
    try:
        code, how = _watched(child, seconds, grows, silence, seen)
        return Ended(code, how, child.output(_OUTPUT_LINES))
    finally:
        child.end()


def _watched(child: Child, seconds: float, grows: Path | None, silence: float, seen: Callable[[], object]
             ) -> tuple[int | None, str]:
    size, began = -1, time.monotonic()
    grew = began
    while (now := time.monotonic()) - began < seconds:
        if grows is not None and grows.stat().st_size > size:
            size, grew = grows.stat().st_size, now
        if now - grew >= silence:
            return None, f"hung: no progress in {silence:g} s"
        seen()
        code = child.wait(min(1.0, silence, began + seconds - now))
        if code is not None:
            return code, crashed(code)
    return None, f"hung: not done in {seconds:g} s"


class Worker:
    """A Python module in a child process that answers questions through a pipe, whose descriptor is its last argument.

    patience: seconds without an answer after which it hangs. rests: it is stopped while it has nothing to answer, as the
    threads of some libraries spin after a call, or always.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, patience: float,
                 rests: bool = False) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment, self._folder, self._rests = environment, folder, rests
        self.patience = patience
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process's number; None: it does not run."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the process unless it runs."""
        if self._child is None:
            self._connection, theirs = Pipe()
            self._child = Child([*self._command, str(theirs.fileno())], self._environment, self._folder,
                                descriptors=[theirs.fileno()])
            theirs.close()

    def ask(self, command: str, *arguments: Any) -> Any:
        """The answer to a command. Raises WorkerError; after a crash or where it hangs, the process is gone."""
        if self._child is None:
            raise WorkerError(ENDED)
        self._signal(signal.SIGCONT)
        try:
            self._connection.send((command, arguments))
            if not self._connection.poll(self.patience):
                self.close()
                raise WorkerError(f"hung: no answer to {command} in {self.patience:g} s")
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerError(self._last_words(self._child)) from None
        self._signal(signal.SIGSTOP)
        if kind == "error":
            raise WorkerError(value)
        return value

    def close(self) -> None:
        if self._child is not None:
            self._child.end()
            self._connection.close()
            self._child = None

    def _signal(self, number: signal.Signals) -> None:
        if self._rests and self._child is not None:
            os.kill(self._child.pid, number)

    def _last_words(self, child: Child) -> str:
        code = child.wait(_LAST_WORDS_SECONDS)
        said = [crashed(code or 0), child.output(1)]
        self.close()
        return ": ".join(filter(None, said))


def answer(worker: object, command: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """("ok", what the worker's method returns) or ("error", what it raises)."""
    try:
        return "ok", getattr(worker, command)(*arguments)
    except (ImportError, UnavailableError) as error:
        return "error", str(error)
    except Exception as error:  # any error of a library is a result that the report shows
        return "error", f"{type(error).__name__}: {error}"


def serve(worker: object, descriptor: str) -> None:
    """The other side of a Worker: answer its commands with the methods of an object, until it is done."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped process does not notice that its parent has ended
    connection = Connection(int(descriptor))
    while True:
        try:
            command, arguments = connection.recv()
        except EOFError:
            return
        connection.send(answer(worker, command, arguments))
