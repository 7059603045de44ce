"""Runs instructions on a wave, or on workgroups, of the emulated GPU, for its tests. Needs only a C compiler."""

from __future__ import annotations

import ctypes
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from vkdml_lab.radeon import building, decoder
from vkdml_lab.radeon.structures import FINDINGS, NAMED, NOTED, SETTINGS, Instruction

KEEP_DENORMALS, FLUSH_DENORMALS = 0x30, 0  # of MODE
_LDS_WORDS = 1 << 14
_USUAL = SETTINGS | {"inexact": 0}


@cache
def library() -> ctypes.CDLL:
    """Build the emulator with wave.c, and load it. Done once in a process."""
    found = ctypes.CDLL(str(building.build(Path(tempfile.gettempdir()), Path(__file__).with_name("wave.c"))))
    found.radeon_run_groups.restype = ctypes.c_uint64
    return found


def change(**settings: int) -> None:
    for name, value in settings.items():
        library().radeon_set(list(SETTINGS).index(name), ctypes.c_long(value))


@contextmanager
def changed(**settings: int) -> Iterator[None]:
    """Set settings of the emulated GPU, by their names in structures.SETTINGS. They are reset when the context ends."""
    change(**settings)
    yield
    change(**{name: _USUAL[name] for name in settings})


class Wave:
    """A wave's registers. v: vector registers, [register, lane]. s: scalar registers. lds: words of shared memory. queued: how
    many loads, accesses to shared memory, stores and scalar loads were still pending when the program ended.
    """

    def __init__(self, width: int = 32) -> None:
        self.width = width
        self.v = np.zeros((256, 64), np.uint32)
        self.s = np.zeros(128, np.uint32)
        self.scc = 0
        self.lds = np.zeros(_LDS_WORDS, np.uint32)
        self.queued = np.zeros(4, np.uint32)
        register, _ = NAMED["exec"]
        self.s[register:register + width // 32] = 0xffffffff

    def run(self, *texts: str, mode: int = KEEP_DENORMALS) -> str | None:
        """Execute instructions in assembly. mode: the register MODE. Returns the kind of fault that is found, or None."""
        made = [instruction for text in (*texts, "s_endpgm") for instruction in decoder.program([(0, text)])]
        scc = ctypes.c_uint32(self.scc)
        found = library().radeon_run((Instruction * len(made))(*made), self.width, mode, *(
            array.ctypes.data_as(ctypes.c_void_p) for array in (self.v, self.s)), ctypes.byref(scc), *(
                array.ctypes.data_as(ctypes.c_void_p) for array in (self.lds, self.queued)))
        self.scc = scc.value
        return None if found < 0 else list(FINDINGS)[found]


def run_groups(text: str, groups: int, waves: int, memory: np.ndarray, **settings: int) -> set[str]:
    """Run a program in `groups` workgroups of `waves` waves. text: assembly. memory: a buffer. Returns the kinds of faults."""
    lines, labels = list[str](), dict[str, int]()
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.endswith(":"):
            labels[line[:-1]] = len(lines)
        else:
            lines.append(line)
    for n, line in enumerate(lines):
        if "branch" in line:
            name, label = line.split()
            lines[n] = f"{name} {labels[label] - n - 1 & 0xffff}"
    made = decoder.program((4 * n, line) for n, line in enumerate(lines))
    change(**settings)
    kinds = library().radeon_run_groups((Instruction * len(made))(*made), len(made), groups, waves,
                                        memory.ctypes.data_as(ctypes.c_void_p), memory.nbytes)
    return {kind for bit, kind in enumerate(FINDINGS) if kinds >> bit & 1} - NOTED


def word(number: float | str) -> int:
    """Return the bits of a number as a float32. If `number` is a string, it already has the bits, in hexadecimal."""
    return int(number, 16) if isinstance(number, str) else struct.unpack("<I", struct.pack("<f", number))[0]


def vector(name: str, rows: Sequence[Sequence[int]], *, to: int = 0, mode: int = KEEP_DENORMALS, suffix: str = "") -> list[int]:
    """Run an instruction. Returns its result in each lane. rows: each lane's sources. to: the old result. suffix: modifiers."""
    wave = Wave(64)
    wave.v[0] = to
    for lane, row in enumerate(rows):
        for n, source in enumerate(row):
            wave.v[1 + n, lane] = source
    operands = [f"v{n}" for n in range(1 + len(rows[0]))]
    assert wave.run(f"{name} {', '.join(operands)}{suffix}", mode=mode) is None
    return [int(one) for one in wave.v[0, :len(rows)]]
