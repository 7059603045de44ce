"""Other processes that write a file of results as they go, and may crash or hang."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_FINE = (0, 1, 5)  # pytest's: all passed, some failed, there were none
_OUTPUT_LINES = 100

Seen = Callable[[Path], object]  # called with the file each second


def supervise(command: Sequence[str], environment: Mapping[str, str], folder: Path, results: Path, silence: float,
              seen: Seen = lambda _: None) -> tuple[str, str]:
    """Run a command in a folder. Returns how it crashed or hung ("" if it did not), and the end of its output.

    It hangs when its results have not grown for `silence` seconds, and is killed.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = _wait(process, results, silence, seen)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        tail = "\n".join(output.read().splitlines()[-_OUTPUT_LINES:])
    if code is None:
        return f"hung: no progress in {silence:.0f} s", tail
    if code in _FINE:
        return "", tail
    return f"crashed: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}", tail


def _wait(process: subprocess.Popen[bytes], results: Path, silence: float, seen: Seen) -> int | None:
    """The exit code; None if the results no longer grow."""
    size, grew = -1, time.monotonic()
    while time.monotonic() - grew < silence:
        if results.stat().st_size > size:
            size, grew = results.stat().st_size, time.monotonic()
        seen(results)
        try:
            return process.wait(min(silence, 1))
        except subprocess.TimeoutExpired:
            continue
    return None
