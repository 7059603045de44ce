"""The structures that Python and C share. They are written here once: `c_text` gives the C of them."""

from __future__ import annotations

import ctypes
import json
from ctypes import c_int32, c_uint8, c_uint16, c_uint32, c_uint64
from typing import Any

KINDS_OF_OPERANDS = ["NONE", "VECTOR", "SCALAR", "CONSTANT"]
NONE, VECTOR, SCALAR, CONSTANT = range(4)
VCC, NULL, M0, EXEC, SCC = 106, 124, 125, 126, 253  # scalar registers with names, by their numbers in the machine code
# How an operand is read. HIGH, WORD and BYTE select bits, ODD the second byte of what HIGH left. HALF: a float16 of v_fma_mix
MODIFIERS = {name: 1 << bit for bit, name in enumerate(["NEG", "ABS", "HIGH", "HALF", "WORD", "BYTE", "ODD"])}
# Of a vector instruction's result, then of an access to memory
FLAGS = {name: 1 << bit for bit, name in enumerate([
    "CLAMP", "CLAMP_HALF", "TIMES2", "TIMES4", "HALVED", "TO_LOW", "TO_HIGH", "KEEPS", "DUAL", "SETS_EXEC", "GLC",
    "OFFEN", "TWO", "SIGNED", "D16", "D16_HIGH"])}
# What may be wrong beside numbers; the texts are shown
FINDINGS = {
    "EARLY_READ": "a register is read before its load is waited for",
    "EARLY_WRITE": "a register is written before its load is waited for",
    "UNWRITTEN_VECTOR": "a vector register is read that was never written",
    "UNWRITTEN_SCALAR": "a scalar register is read that was never written",
    "UNWRITTEN_LDS": "shared memory is read that was never written",
    "OUTSIDE_BUFFER": "an access outside of a buffer",
    "OUTSIDE_LDS": "an access outside of the shared memory",
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
# No faults: what was never written is noise, as is what others may write, and results are wrong where it matters. Compilers
# let lane masks begin with any bits, a workgroup that gives up reads shared memory that it fetched nothing into, and parts
# read others' state and do not use it
NOTED = {"UNWRITTEN_SCALAR", "UNWRITTEN_VECTOR", "UNWRITTEN_LDS", "NOISE"}
MOST_FOUND = 64  # places that one dispatch reports
# How hostile the GPU is. late: loads and stores end at once (0), at any time (1), as late as they may (2). caches: a core keeps
# lines until they are invalidated (2), or some time before (1). inexact: functions are wrong by what the guide allows, always
# alike for the same argument. resident: workgroups at once. budget: instructions of a wave. broken: the instruction, by its
# number in the table, that gives wrong bits wherever it runs
SETTINGS = {"seed": 1, "late": 1, "caches": 1, "inexact": 1, "resident": 1024, "budget": 20_000_000, "broken": -1}


class Operand(ctypes.Structure):
    """words: of 32 bits, from register `reg` on. value: of a constant."""

    _fields_ = [*((name, c_uint8) for name in ("kind", "reg", "words", "modifiers")), ("value", c_uint32)]


class Instruction(ctypes.Structure):
    """op: its number in the instruction table. size: bytes of an element in memory. immediate: an offset, or counts to wait
    for. target: the index that a branch goes to. pc: its address from the program's beginning.

    Counts: runs; loaded: bytes, and passed: those of lines that were not in the core's cache; waited: waits for loads
    that were issued since the wait before, from memory, and from shared memory or of scalars; ahead: instructions since those.
    """

    _fields_ = [("op", c_uint16), ("size", c_uint16), ("flags", c_uint32), ("immediate", c_int32 * 2), ("target", c_int32),
                ("pc", c_int32), ("to", Operand), ("to2", Operand), ("source", Operand * 3),
                *((name, c_uint64) for name in ("runs", "loaded", "passed")), ("waited", c_uint64 * 2), ("ahead", c_uint64 * 2)]


class Found(ctypes.Structure):
    """A finding: its number in FINDINGS, where, and how often. detail: an address or a register."""

    _fields_ = [("kind", c_uint32), ("pc", c_int32), ("group", c_uint32), ("count", c_uint32), ("detail", c_uint64)]


class Report(ctypes.Structure):
    """A dispatch that has ended. program: as the server numbered it."""

    _fields_ = [("program", c_uint32), ("found_count", c_uint32), ("executed", c_uint64), ("nanoseconds", c_uint64),
                ("found", Found * MOST_FOUND)]


def c_text() -> str:
    """The C of all that is above."""
    def member(name: str, kind: Any) -> str:
        length = getattr(kind, "_length_", None)
        names = {c_uint8: "uint8_t", c_uint16: "uint16_t", c_uint32: "uint32_t", c_int32: "int32_t", c_uint64: "uint64_t"}
        element = kind._type_ if length else kind
        return f"{names.get(element, element.__name__)} {name}{f'[{length}]' if length else ''};"

    registers = {"VCC": VCC, "NULL_REG": NULL, "EXEC": EXEC, "SCC_REG": SCC, "MOST_FOUND": MOST_FOUND}
    lines = [f"enum {{ {', '.join(names)} }};" for names in (KINDS_OF_OPERANDS, FINDINGS)]
    for row in (registers, MODIFIERS, FLAGS):
        lines.append(f"enum {{ {', '.join(f'{name} = {value}' for name, value in row.items())} }};")
    lines.append(f"static struct {{ long {', '.join(SETTINGS)}; }} settings = {{ {', '.join(map(str, SETTINGS.values()))} }};")
    lines.append(f"static const char *const SETTINGS[] = {{ {', '.join(json.dumps(name.upper()) for name in SETTINGS)} }};")
    for one in (Operand, Instruction, Found, Report):
        lines.append(f"typedef struct {{ {' '.join(member(*field[:2]) for field in one._fields_)} }} {one.__name__};")
    return "\n".join(lines)
