"""Disassembles AMD's machine code with the LLVM library that Mesa's driver compiles shaders with."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

from vkdml_lab.radeon.decoder import Refused


@cache
def _llvm(folder: Path, chip: str, wave: int) -> tuple[ctypes.CDLL, int]:
    """Return the LLVM library in `folder`, and a handle of its disassembler for a chip. wave: lanes of a wave (32 or 64)."""
    llvm = ctypes.CDLL(str(next(folder.glob("libLLVM.so.*"))))
    for part in ("TargetInfo", "TargetMC", "Disassembler"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    create, disassemble = llvm.LLVMCreateDisasmCPUFeatures, llvm.LLVMDisasmInstruction
    pointer, number, size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
    create.restype, disassemble.restype = pointer, size
    disassemble.argtypes = [pointer, pointer, number, number, ctypes.c_char_p, size]
    return llvm, create(b"amdgcn--", chip.encode(), f"+wavefrontsize{wave},+real-true16".encode(), None, 0, None, None)


def lines(folder: Path, chip: str, code: bytes, wave: int) -> list[tuple[int, str]]:
    """Return the pair (address, text) of each instruction in a program. folder: has LLVM's library. wave: lanes of a wave."""
    llvm, made = _llvm(folder, chip, wave)
    found, pc = list[tuple[int, str]](), 0
    text, raw = ctypes.create_string_buffer(1000), ctypes.create_string_buffer(code, len(code))
    while pc < len(code):
        size = llvm.LLVMDisasmInstruction(made, ctypes.addressof(raw) + pc, len(code) - pc, pc, text, 1000)
        line = re.split(r"//|;", text.value.decode())[0].strip()
        if not size:
            raise Refused(f"no instruction at {pc:#x}: {code[pc:pc + 8].hex()}")
        if line.startswith("v_fma_mix") and size == 12:  # LLVM shows only half of this literal; op_sel selects the halves
            literal = int.from_bytes(code[pc + 8:pc + 12], "little")
            line = re.sub(rf"\b{literal & 0xffff:#x}\b", f"{literal:#x}", line)
        found.append((pc, line))
        pc += size
    return found
