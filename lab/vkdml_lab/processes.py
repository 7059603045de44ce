"""Child processes that may crash or hang. They run to their end or answer through a pipe. Their own children are killed."""

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
_ENDING_SECONDS = 10.0  # a killed process that waits for a driver may never end
_LAST_WORDS_SECONDS = 5.0  # how long a process may take to end after it closed its pipe


class UnavailableError(Exception):
    """Something cannot run on this machine. Reports print the text as the reason."""


class WorkerError(Exception):
    """A worker crashed, hung or refused a question. The text says which."""


class Child:
    """A command in its own session, so that its children can be killed with it. output: its file; None: a temporary one."""

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
        """Return the exit code, or minus the number of the signal that ended the process. None: the process still runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def output(self, lines: int) -> str:
        """Return the last non-empty lines that the process printed."""
        self._output.seek(0)
        return "\n".join([line for line in self._output.read().splitlines() if line.strip()][-lines:])

    def end(self) -> None:
        """Kill the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(_ENDING_SECONDS)
        self._output.close()


def crashed(code: int) -> str:
    """Describe the end of a process with this exit code, as in "crashed: SIGSEGV"."""
    return f"crashed: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


@dataclass(frozen=True)
class Ended:
    """How a child ended. code: None if it hung. how: "crashed", "hung" or the exit code, in words. output: its last lines."""

    code: int | None
    how: str
    output: str


def supervise(command: Sequence[str], environment: Mapping[str, str], folder: Path, *, seconds: float = math.inf,
              grows: Path | None = None, silence: float = math.inf, seen: Callable[[], object] = lambda: None,
              output: Path | None = None) -> Ended:
    """Run a command in a folder until it ends. Kill the children that it leaves.

    The command counts as hung, and is killed, after `seconds`, or if the file `grows` has not grown for `silence` seconds.
    seen: is called once a second. output: the file for what the command prints.
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
    """A Python module in a child process that answers questions through a pipe. Its last argument is the pipe's descriptor.

    patience: seconds without an answer after which it counts as hung. rests: it is stopped (SIGSTOP) between questions.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, patience: float,
                 rests: bool = False) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment, self._folder, self._rests = environment, folder, rests
        self.patience = patience
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process's number, or None if it does not run."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the process if it does not run yet."""
        if self._child is None:
            self._connection, theirs = Pipe()
            self._child = Child([*self._command, str(theirs.fileno())], self._environment, self._folder,
                                descriptors=[theirs.fileno()])
            theirs.close()

    def ask(self, command: str, *arguments: Any) -> Any:
        """Return the answer to a command. Raises WorkerError. After a crash or hang, the process is gone."""
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
    """Return ("ok", the result of the worker's method) or ("error", what it raised)."""
    try:
        return "ok", getattr(worker, command)(*arguments)
    except (ImportError, UnavailableError) as error:
        return "error", str(error)
    except Exception as error:  # the report shows any error of a library as a result
        return "error", f"{type(error).__name__}: {error}"


def serve(worker: object, descriptor: str) -> None:
    """Answer the commands of a Worker in the parent process with the methods of an object, until the pipe closes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped process would not notice that its parent ended
    connection = Connection(int(descriptor))
    while True:
        try:
            command, arguments = connection.recv()
        except EOFError:
            return
        connection.send(answer(worker, command, arguments))
