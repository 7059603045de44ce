"""The structures and constants that Python and C share. `c_text` returns their declarations in C."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

KINDS = {"VECTOR": 1, "SCALAR": 2, "CONSTANT": 3}  # kinds of operands; 0: no operand
VECTOR, SCALAR, CONSTANT = KINDS.values()
# Named scalar registers: number in machine code, and words
NAMED = {"vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1), "ttmp7": (115, 1), "ttmp8": (116, 1), "ttmp9": (117, 1),
         "null": (124, 1), "m0": (125, 1), "exec": (126, 2), "exec_lo": (126, 1), "exec_hi": (127, 1), "scc": (253, 1),
         "src_scc": (253, 1)}
# How an operand is read. HALF: converted from float16 to float32
MODIFIERS = {name: 1 << bit for bit, name in enumerate(["NEG", "ABS", "HALF"])}
# Flags of an instruction: first of a vector result, then of an access to memory. KEEPS: keep the destination's other bits.
# BY_LANE: the address includes the lane's number
FLAGS = {name: 1 << bit for bit, name in enumerate([
    "CLAMP", "TIMES2", "TIMES4", "HALVED", "KEEPS", "DUAL", "SETS_EXEC", "GLC", "TWO", "SIGNED", "BY_LANE"])}
# What the emulator finds, with the text to show. The last three kinds end a dispatch
FINDINGS = {
    "EARLY_READ": "a register is read before its load is waited for",
    "EARLY_WRITE": "a register is written before its load is waited for",
    "EARLY_PRODUCT": "matrices are multiplied right after the product of matrices that is one of them, with nothing between",
    "UNLIKE_LANES": "lanes that have to hold the same numbers of a matrix do not",
    "UNWRITTEN_VECTOR": "a vector register is read that was never written",
    "UNWRITTEN_SCALAR": "a scalar register is read that was never written",
    "UNWRITTEN_LDS": "shared memory is read that was never written",
    "OUTSIDE_BUFFER": "an access outside of a buffer",
    "OUTSIDE_LDS": "an access outside of the shared memory",
    "OUTSIDE_SCRATCH": "an access outside of the scratch memory that the driver reserved",
    "OUTSIDE_REGISTERS": "a register that the wave does not have",
    "MISALIGNED": "a misaligned access",
    "LDS_RACE": "waves access a word of shared memory, and nothing orders them",
    "RACE": "waves access a word of memory, and nothing orders them",
    "NOISE": "a lone word is read past the cache, which others may write meanwhile",
    "STALE": "a cache may hold an older value: it was not invalidated after another core's store",
    "UNORDERED": "memory is accessed that an earlier dispatch may still access",
    "FAULT": "an access to an address where there is no memory",
    "ENDLESS": "a wave does not end",
    "REFUSED": "the emulator does not know it",
}
# Findings that are no faults. Unwritten memory, and memory that others may be writing, reads as noise, so results are wrong if
# it matters. Compilers leave bits of lane masks undefined, a workgroup that gives up reads shared memory that it did not fill,
# and workgroups read others' state without using it
NOTED = {"UNWRITTEN_SCALAR", "UNWRITTEN_VECTOR", "UNWRITTEN_LDS", "NOISE"}
MOST_FOUND = 64  # most places in one dispatch's report
# How hostile the GPU is. late: loads and stores complete at once (0), at a random time (1), or as late as allowed (2). caches:
# a core keeps lines until they are invalidated (2), or until some time before (1). inexact: functions have the largest error
# that the guide allows, the same for the same argument. resident: workgroups that run at once. budget: instructions of a wave
# before it counts as endless. broken: number of an instruction that returns wrong bits. rdna: the generation
SETTINGS = {"seed": 1, "late": 1, "caches": 1, "inexact": 1, "resident": 1024, "budget": 20_000_000, "broken": -1, "rdna": 3}


class Operand(ctypes.Structure):
    """An operand: `words` registers from `reg` on, or a constant `value`. bits: how many are used, from `shift` on; 0: all."""

    _fields_ = [("value", c_uint32), *((name, c_uint8) for name in ("kind", "reg", "words", "modifiers", "shift", "bits"))]


class Instruction(ctypes.Structure):
    """A decoded instruction. op: number in instructions.NUMBERS. size: bytes of an element in memory. immediate: offsets or, in
    a wait, how many loads, accesses to shared memory, stores and scalar loads may stay pending. target: index of the
    instruction that a branch jumps to. pc: address in the program. runs: how often waves have executed it.
    """

    _fields_ = [("op", c_uint16), ("size", c_uint16), ("flags", c_uint32), ("immediate", c_int32 * 4), ("target", c_int32),
                ("pc", c_int32), ("to", Operand), ("to2", Operand), ("source", Operand * 3), ("runs", c_uint64)]


class Program(ctypes.Structure):
    """A decoded program. va: address of its code. registers: number of vector registers. next: address of the Program that was
    decoded before it. Python may change a program's instructions while the emulator is idle.
    """

    _fields_ = [("next", c_void_p), ("va", c_uint64),
                *((name, c_uint32) for name in ("wave", "bytes", "number", "count", "registers")),
                ("code", c_void_p), ("instructions", ctypes.POINTER(Instruction))]


class Found(ctypes.Structure):
    """A finding, such as a race. kind: index in FINDINGS. pc: address in the program. detail: address or register number."""

    _fields_ = [("kind", c_uint32), ("pc", c_int32), ("count", c_uint64), ("detail", c_uint64)]


class Report(ctypes.Structure):
    """What the emulator found in one dispatch. program: the server's number for the program. kinds: bits of the kinds found."""

    _fields_ = [("program", c_uint32), ("found_count", c_uint32), ("kinds", c_uint64), ("executed", c_uint64),
                ("nanoseconds", c_uint64), ("found", Found * MOST_FOUND)]


def c_text() -> str:
    names = {c_uint8: "u8", c_uint16: "u16", c_uint32: "u32", c_int32: "i32", c_uint64: "u64", c_void_p: "void *"}

    def member(name: str, kind: Any) -> str:
        length, is_pointer = getattr(kind, "_length_", None), hasattr(kind, "contents")
        element = kind._type_ if length or is_pointer else kind
        return f"{names.get(element, element.__name__)} {'*' * is_pointer}{name}{f'[{length}]' if length else ''};"

    numbers = {**KINDS, **MODIFIERS, **FLAGS, "MOST_FOUND": MOST_FOUND, **{name: n for n, name in enumerate(FINDINGS)},
               **{f"{name.upper()}_REG": register for name, (register, _) in NAMED.items()}}
    lines = [f"enum {{ {', '.join(f'{name} = {value}' for name, value in numbers.items())} }};"]
    lines.append(f"static struct {{ long {', '.join(SETTINGS)}; }} settings = {{ {', '.join(map(str, SETTINGS.values()))} }};")
    variables = ", ".join(f'"VKDML_RADEON_{name.upper()}"' for name in SETTINGS)
    lines.append(f"static const char *const VARIABLES[] = {{ {variables} }};")
    for one in (Operand, Instruction, Program, Found, Report):
        members = " ".join(member(*field[:2]) for field in one._fields_)
        lines.append(f"typedef struct {one.__name__} {one.__name__}; struct {one.__name__} {{ {members} }};")
    return "\n".join(lines)
