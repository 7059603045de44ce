"""The emulator in this process, which runs under `vkdml radeon`: its settings, programs with counts, and findings."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache

from vkdml_lab.radeon.structures import FINDINGS, NOTED, SETTINGS, Program


@cache
def _library() -> ctypes.CDLL:
    found = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
    found.radeon_programs.restype, found.radeon_wait.restype = ctypes.c_void_p, ctypes.c_uint64
    return found


def change(**settings: int) -> None:
    """Sets how the GPU behaves from now on."""
    for name, value in settings.items():
        _library().radeon_set(list(SETTINGS).index(name), ctypes.c_long(value))


def programs() -> Iterator[Program]:
    """All that were decoded."""
    at = _library().radeon_programs()
    while at:
        yield (program := Program.from_address(at))
        at = program.next


def found() -> set[str]:
    """Waits until nothing is executed; the kinds of findings since the last time, without those that are only noted."""
    kinds = _library().radeon_wait()
    return {kind for bit, kind in enumerate(FINDINGS) if kinds >> bit & 1} - NOTED
