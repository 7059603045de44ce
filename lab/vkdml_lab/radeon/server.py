"""The process above those that use the GPU: it decodes their programs, and collects what they report."""

from __future__ import annotations

import ctypes as C
import hashlib
import os
import pickle
import socketserver
import struct
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from vkdml_lab.radeon import decoder, disassembler
from vkdml_lab.radeon.structures import FINDINGS, NOTED, VECTOR, Instruction, Report

_DECODE, _REPORT = 1, 2
_REQUEST, _ANSWER = struct.Struct("III"), struct.Struct("III")
_KINDS = list(FINDINGS)


@dataclass
class Server:
    """libraries: the folder with LLVM's. programs: where decoded ones are kept."""

    chip: str
    libraries: Path
    programs: Path
    lines: list[dict[int, str]] = field(default_factory=list)  # of each program by its number
    dispatches: int = 0
    executed: int = 0
    nanoseconds: int = 0
    loaded: int = 0
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and where
    lock: threading.Lock = field(default_factory=threading.Lock)

    def decode(self, code: bytes, wave: int) -> tuple[int, bytes]:
        """A program's number and its instructions: none where it is refused, which is a finding."""
        key = hashlib.sha256(b"".join([code, _SOURCES, f"{self.chip} {wave}".encode()])).hexdigest()
        path = self.programs / key
        if path.exists():
            lines, packed = pickle.loads(path.read_bytes())
        else:
            try:
                lines = disassembler.lines(self.libraries, self.chip, code, wave)
                packed = b"".join(map(bytes, decoder.program(lines)))
                new = path.with_suffix(f".{os.getpid()}")
                new.write_bytes(pickle.dumps((lines, packed)))
                new.rename(path)
            except decoder.Refused as refused:
                lines, packed = [], b""
                self.findings["REFUSED", str(refused)] += 1
        self.lines.append({pc: text for pc, text, _ in lines})
        return len(self.lines) - 1, packed

    def hear(self, report: Report) -> None:
        """Adds a dispatch to what was counted."""
        self.dispatches += 1
        self.executed += report.executed
        self.nanoseconds += report.nanoseconds
        self.loaded += report.loaded
        lines = self.lines[report.program] if report.program < len(self.lines) else {}
        for found in report.found[:report.found_count]:
            where = f"program {report.program:#x}: {found.pc:#06x} {lines[found.pc]}" if found.pc in lines else f"{found.detail:#x}"
            self.findings[_KINDS[found.kind], where] += found.count

    def is_clean(self) -> bool:
        """Whether nothing was found that may be a fault."""
        return all(kind in NOTED for kind, _ in self.findings)

    def summary(self) -> list[str]:
        """What to print at the end."""
        said = [f"radeon: {self.dispatches:,} dispatches of {len(self.lines)} programs, {self.executed:,} instructions of waves in "
                f"{self.nanoseconds / 1e9:.1f} s, {self.loaded:,} bytes loaded"]
        for kind, text in FINDINGS.items():
            places = [(where, count) for (of, where), count in self.findings.items() if of == kind]
            if places:
                said.append(f"radeon: {text}: {len(places)} places{' (noted)' if kind in NOTED else ''}")
                said += [f"    {where} ({count:,} times)" for where, count in places[:8]]
        return said


_SOURCES = b"".join(Path(module.__file__ or "").read_bytes() for module in (decoder, sys.modules[Instruction.__module__], decoder.table))


class _Connection(socketserver.BaseRequestHandler):
    server: _Listener

    def handle(self) -> None:
        while len(header := self._bytes(_REQUEST.size)) == _REQUEST.size:
            kind, wave, length = _REQUEST.unpack(header)
            data, state = self._bytes(length), self.server.state
            with state.lock:
                if kind == _REPORT:
                    state.hear(Report.from_buffer_copy(data))
                else:
                    number, packed = state.decode(data, wave)
                    made = [Instruction.from_buffer_copy(packed, at) for at in range(0, len(packed), C.sizeof(Instruction))]
                    used = (one.reg + one.words for i in made for one in (i.to, i.to2, *i.source) if one.kind == VECTOR)
                    self.request.sendall(_ANSWER.pack(number, len(made), max(used, default=0)) + packed)

    def _bytes(self, count: int) -> bytes:
        parts = []
        while count and (part := self.request.recv(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class _Listener(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, state: Server) -> None:
        self.state = state
        super().__init__(str(path), _Connection)


def listen(state: Server, path: Path) -> None:
    """Serves in threads, until the process ends."""
    threading.Thread(target=_Listener(path, state).serve_forever, daemon=True).start()
