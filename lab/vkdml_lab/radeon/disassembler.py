"""LLVM's disassembler and assembler of AMD's machine code, from the library that the driver compiles with."""

from __future__ import annotations

import ctypes as C
import re
from functools import cache
from pathlib import Path

from vkdml_lab.radeon.decoder import Refused

PROCESSORS = {"navi31": "gfx1100", "navi21": "gfx1030"}  # LLVM's names of the chips
Line = tuple[int, str, int | None]  # an address, a text, and the address that a branch goes to


@cache
def _llvm(folder: Path) -> C.CDLL:
    llvm = C.CDLL(str(next(folder.glob("libLLVM.so.*"))))
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler", "AsmParser", "AsmPrinter"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    llvm.LLVMCreateDisasmCPUFeatures.restype = C.c_void_p
    llvm.LLVMCreateDisasmCPUFeatures.argtypes = [C.c_char_p] * 3 + [C.c_void_p, C.c_int, C.c_void_p, C.c_void_p]
    llvm.LLVMDisasmInstruction.restype = C.c_size_t
    llvm.LLVMDisasmInstruction.argtypes = [C.c_void_p, C.c_void_p, C.c_uint64, C.c_uint64, C.c_char_p, C.c_size_t]
    return llvm


@cache
def _context(folder: Path, chip: str, wave: int) -> int:
    features = f"+wavefrontsize{wave}".encode()
    made = _llvm(folder).LLVMCreateDisasmCPUFeatures(b"amdgcn--", PROCESSORS[chip].encode(), features, None, 0, None, None)
    return int(made)


def lines(folder: Path, chip: str, code: bytes, wave: int) -> list[Line]:
    """The instructions of a program up to its last one. folder: with LLVM's library."""
    found: list[Line] = []
    pc = farthest = 0
    text, raw = C.create_string_buffer(1000), C.create_string_buffer(code, len(code))
    while pc < len(code):
        size = _llvm(folder).LLVMDisasmInstruction(_context(folder, chip, wave), C.addressof(raw) + pc, len(code) - pc, pc, text, 1000)
        if not size:
            raise Refused(f"no instruction at {pc:#x}: {code[pc:pc + 8].hex()}")
        line = re.split(r"//|;", text.value.decode())[0].strip()
        if line.startswith("v_fma_mix") and size == 12:  # LLVM shows half of a literal, whose halves op_sel selects
            literal = int.from_bytes(code[pc + 8:pc + 12], "little")
            line = re.sub(rf"\b{literal & 0xffff:#x}\b", f"{literal:#x}", line)
        goes_to = None
        if line.startswith(("s_branch", "s_cbranch")):
            goes_to = pc + 4 + 4 * int.from_bytes(code[pc:pc + 2], "little", signed=True)
            farthest = max(farthest, goes_to)
        found.append((pc, line, goes_to))
        pc += size
        if line.startswith("s_endpgm") and pc > farthest:
            break
    return found
