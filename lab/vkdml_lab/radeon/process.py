"""Lets a process that runs under `vkdml radeon` change the emulator's settings, read decoded programs, and read faults."""

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
    """Set settings of the emulated GPU by name, such as change(late=2). structures.SETTINGS lists them."""
    for name, value in settings.items():
        _library().radeon_set(list(SETTINGS).index(name), ctypes.c_long(value))


def programs() -> Iterator[Program]:
    at = _library().radeon_programs()
    while at:
        yield (program := Program.from_address(at))
        at = program.next


def found() -> set[str]:
    """Wait until the emulator is idle. Return the names of the kinds of faults (FINDINGS) that it found since the last call."""
    kinds = _library().radeon_wait()
    return {kind for bit, kind in enumerate(FINDINGS) if kinds >> bit & 1} - NOTED
