"""The server of `vkdml radeon`. It decodes programs for the processes on the emulated GPU, and collects their faults."""

from __future__ import annotations

import hashlib
import os
import pickle
import socketserver
import struct
import threading
from collections import Counter
from ctypes import sizeof
from pathlib import Path

from vkdml_lab.radeon import decoder, disassembler, instructions, structures
from vkdml_lab.radeon.structures import FINDINGS, NOTED, VECTOR, Instruction, Report

_REPORT = 2
# A request: kind, wave size and length of the data. An answer: the program's number, bytes of instructions, vector registers
_NUMBERS = struct.Struct("III")
_MODULES = b"".join(Path(str(module.__file__)).read_bytes() for module in (decoder, disassembler, instructions, structures))


class Server(socketserver.ThreadingUnixStreamServer):
    """Answers in threads until the process ends. name: abstract socket. libraries: LLVM's folder. programs: cache folder."""

    daemon_threads = True

    def __init__(self, name: str, chip: str, libraries: Path, programs: Path) -> None:
        super().__init__(f"\0{name}", _Connection)
        self.chip, self.libraries, self.programs = chip, libraries, programs
        self.lines: list[dict[int, str]] = []  # by program: text by address
        self.totals, self.findings = Counter[str](), Counter[tuple[str, str]]()  # by kind and place
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def decode(self, code: bytes, wave: int) -> bytes:
        """Decode machine code, and return the packed answer. It has no instructions if one is unknown, which is a finding."""
        path = self.programs / hashlib.sha256(b"".join([code, _MODULES, f"{self.chip} {wave}".encode()])).hexdigest()
        lines, packed, registers = list[tuple[int, str]](), b"", 0
        try:
            if not path.exists():
                lines = disassembler.lines(self.libraries, self.chip, code, wave)
                made = decoder.program(lines)
                used = (one.reg + one.words for i in made for one in (i.to, i.to2, *i.source) if one.kind == VECTOR)
                new = path.with_suffix(f".{os.getpid()}")
                new.write_bytes(pickle.dumps((lines, b"".join(map(bytes, made)), max(used, default=0))))
                new.rename(path)
            lines, packed, registers = pickle.loads(path.read_bytes())
        except decoder.Refused as refused:
            self.findings["REFUSED", str(refused)] += 1
        self.lines.append(dict(lines))
        return _NUMBERS.pack(len(self.lines) - 1, len(packed) // sizeof(Instruction), registers) + packed

    def add(self, report: Report) -> None:
        self.totals["dispatches"] += 1
        for name in ("executed", "nanoseconds"):
            self.totals[name] += getattr(report, name)
        lines = self.lines[report.program] if report.program < len(self.lines) else {}
        for found in report.found[:report.found_count]:
            place = f"program {report.program}: {found.pc:#06x} {lines.get(found.pc, '')}"
            where = place if found.pc in lines else f"{found.detail:#x}"
            self.findings[list(FINDINGS)[found.kind], where] += found.count

    def is_clean(self) -> bool:
        """Return whether all findings are of the kinds in NOTED, which are no faults."""
        return all(kind in NOTED for kind, _ in self.findings)

    def summary(self) -> str:
        """Return a text with the totals, and for each kind of finding the first places in programs where it occurred."""
        n = self.totals
        said = [f"radeon: {n['dispatches']:,} dispatches of {len(self.lines)} programs, "
                f"{n['executed']:,} instructions of waves in {n['nanoseconds'] / 1e9:.1f} s"]
        for kind, text in FINDINGS.items():
            places = [(where, count) for (of, where), count in self.findings.items() if of == kind]
            said += [f"radeon: {text}: {len(places)} places{' (noted)' if kind in NOTED else ''}"] if places else []
            said += [f"    {where} ({count:,} times)" for where, count in places[:2 if kind in NOTED else 8]]
        return "\n".join(said)


class _Connection(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        while len(header := self.rfile.read(_NUMBERS.size)) == _NUMBERS.size:
            kind, wave, length = _NUMBERS.unpack(header)
            data = self.rfile.read(length)
            with self.server.lock:
                if kind == _REPORT:
                    self.server.add(Report.from_buffer_copy(data))
                else:
                    self.wfile.write(self.server.decode(data, wave))
