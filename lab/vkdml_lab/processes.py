"""Runs child processes that may crash or hang: commands (supervise), and modules that answer questions (Worker, serve)."""

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
    """Raised if something, such as a library, cannot run on this machine. Reports print the text as the reason."""


class WorkerError(Exception):
    """Raised if a worker crashed, hung, answered with an error, or is not running. The text says which."""


class Child:
    """A command in its own session: `end` kills its children, too. output: file for what it prints; None: a temporary one."""

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
        """Wait for at most `seconds`. Return the exit code (-N after signal N), or None if the process still runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def output(self, lines: int) -> str:
        """Return the last `lines` non-empty lines that the process printed, as one text."""
        self._output.seek(0)
        return "\n".join([line for line in self._output.read().splitlines() if line.strip()][-lines:])

    def end(self) -> None:
        """Kill the process and its children, and close the file of its output."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(_ENDING_SECONDS)
        self._output.close()


def crashed(code: int) -> str:
    """Return a text for the exit code of a process, such as "crashed: SIGSEGV" or "crashed: exit code 1"."""
    return f"crashed: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


@dataclass(frozen=True)
class Ended:
    """How a command ended. code: None if it hung. how: "hung: ..." or, for any code, text of `crashed`. output: last lines."""

    code: int | None
    how: str
    output: str


def supervise(command: Sequence[str], environment: Mapping[str, str], folder: Path, *, seconds: float = math.inf,
              grows: Path | None = None, silence: float = math.inf, seen: Callable[[], object] = lambda: None,
              output: Path | None = None) -> Ended:
    """Run a command in a folder until it ends, then kill any children that it left. Returns how it ended.

    The command counts as hung, and is killed, after `seconds`, or if the file `grows` has not grown for `silence` seconds.
    seen: called at least once a second. output: file for what the command prints; None: a temporary one.
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
    """Runs a Python module in a child process, which answers questions through a pipe. The module's last argument is the pipe's
    file descriptor. patience: seconds to wait for an answer before the process counts as hung. rests: stop the process by
    SIGSTOP between questions.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, patience: float,
                 rests: bool = False) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment, self._folder, self._rests = environment, folder, rests
        self.patience = patience
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The ID of the process, or None if no process is running."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the process if it is not running."""
        if self._child is None:
            self._connection, theirs = Pipe()
            self._child = Child([*self._command, str(theirs.fileno())], self._environment, self._folder,
                                descriptors=[theirs.fileno()])
            theirs.close()

    def ask(self, command: str, *arguments: Any) -> Any:
        """Call the method `command` of the process's object; return its result. Raises WorkerError if it crashes or fails."""
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
    """Call the method `command` of a worker. Return ("ok", its result), or ("error", the text of what it raised)."""
    try:
        return "ok", getattr(worker, command)(*arguments)
    except (ImportError, UnavailableError) as error:
        return "error", str(error)
    except Exception as error:  # the report shows any error of a library as a result
        return "error", f"{type(error).__name__}: {error}"


def serve(worker: object, descriptor: str) -> None:
    """Answer the parent process's Worker by calling methods of `worker`, until the pipe closes. descriptor: of the pipe."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a stopped process would not notice that its parent ended
    connection = Connection(int(descriptor))
    while True:
        try:
            command, arguments = connection.recv()
        except EOFError:
            return
        connection.send(answer(worker, command, arguments))
