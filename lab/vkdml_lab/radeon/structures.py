"""The structures that Python and C share. They are written here once: `c_text` gives the C of them."""

from __future__ import annotations

import ctypes as C

# What an operand is: nothing, a vector register, a scalar one, or a constant
NONE, VECTOR, SCALAR, CONSTANT = range(4)
KINDS_OF_OPERANDS = ["NONE", "VECTOR", "SCALAR", "CONSTANT"]
# The scalar registers that have names, by their numbers in the machine code
VCC, NULL, M0, EXEC, SCC = 106, 124, 125, 126, 253
# How an operand is read. HIGH, WORD and BYTE select bits, ODD the second byte of what HIGH left. HALF is a float16 of v_fma_mix
MODIFIERS = {name: 1 << bit for bit, name in enumerate(["NEG", "ABS", "HIGH", "HALF", "WORD", "BYTE", "ODD"])}
FLAGS = {name: 1 << bit for bit, name in enumerate([
    "CLAMP", "TIMES2", "TIMES4", "HALVED",      # of a vector instruction's result
    "TO_HIGH", "DUAL", "SETS_EXEC",
    "GLC", "OFFEN", "TWO", "SIGNED", "D16", "D16_HIGH",     # of an access to memory
])}
# What may be wrong beside numbers; the texts are shown
FINDINGS = {
    "EARLY_READ": "a register is read before its load is waited for",
    "EARLY_WRITE": "a register is written before its load is waited for",
    "UNWRITTEN_VECTOR": "a vector register is read that was never written",
    "UNWRITTEN_LDS": "shared memory is read that was never written",
    "OUTSIDE_BUFFER": "an access outside of a buffer",
    "OUTSIDE_LDS": "an access outside of the shared memory",
    "OUTSIDE_REGISTERS": "a register that the wave does not have",
    "MISALIGNED": "a misaligned access",
    "LDS_RACE": "waves of a workgroup access a word of shared memory without a barrier between them",
    "STALE": "a cache may hold an older value: it was not invalidated after another core's store",
    "UNORDERED": "memory is read that an earlier dispatch may still write",
    "FAULT": "an access to an address where there is no memory",
    "ENDLESS": "a wave does not end",
    "REFUSED": "a program that the emulator does not know",
    "UNWRITTEN_SCALAR": "a scalar register is read that was never written",
}
# No fault by themselves: what was never written is noise, and results are wrong where it matters. Compilers let lane masks of loops
# begin with any bits, and a workgroup that gives up reads shared memory that nothing was fetched into
NOTED = {"UNWRITTEN_SCALAR", "UNWRITTEN_VECTOR", "UNWRITTEN_LDS"}
MOST_FOUND = 64  # places that one dispatch reports


class Operand(C.Structure):
    """words: of 32 bits, from register `reg` on. value: of a constant."""

    _fields_ = [("kind", C.c_uint8), ("reg", C.c_uint8), ("words", C.c_uint8), ("modifiers", C.c_uint8), ("value", C.c_uint32)]


class Instruction(C.Structure):
    """op: its number in the instruction table. size: bytes of an element in memory. immediate: an offset, or counts to wait
    for. target: the index that a branch goes to. pc: the address from the program's beginning.
    """

    _fields_ = [("op", C.c_uint16), ("size", C.c_uint16), ("flags", C.c_uint32), ("immediate", C.c_int32 * 2),
                ("target", C.c_int32), ("pc", C.c_int32), ("to", Operand), ("to2", Operand), ("source", Operand * 3)]


class Found(C.Structure):
    """A finding: its number in FINDINGS, where, and in how many waves or lanes. detail: an address or a register."""

    _fields_ = [("kind", C.c_uint32), ("pc", C.c_int32), ("group", C.c_uint32), ("count", C.c_uint32), ("detail", C.c_uint64)]


class Report(C.Structure):
    """A dispatch that has ended. program: as the server numbered it. found: the first places where something was wrong."""

    _fields_ = [("program", C.c_uint32), ("groups", C.c_uint32), ("threads", C.c_uint32), ("wave", C.c_uint32),
                ("executed", C.c_uint64), ("loaded", C.c_uint64), ("from_memory", C.c_uint64), ("nanoseconds", C.c_uint64),
                ("found_count", C.c_uint32), ("pad", C.c_uint32), ("found", Found * MOST_FOUND)]


_SHARED = [Operand, Instruction, Found, Report]
_C_NAMES = {C.c_uint8: "uint8_t", C.c_uint16: "uint16_t", C.c_uint32: "uint32_t", C.c_int32: "int32_t", C.c_uint64: "uint64_t"}


def c_text() -> str:
    """The C of all that is above."""
    lines = [f"enum {{ {', '.join(KINDS_OF_OPERANDS)} }};", f"enum {{ VCC = {VCC}, NULL_REG = {NULL}, EXEC = {EXEC}, SCC_REG = {SCC} }};"]
    for table in (MODIFIERS, FLAGS):
        lines.append(f"enum {{ {', '.join(f'{name} = {value}' for name, value in table.items())} }};")
    lines.append(f"enum {{ {', '.join(FINDINGS)}, KINDS_OF_FINDINGS, MOST_FOUND = {MOST_FOUND} }};")
    for structure in _SHARED:
        lines.append(f"typedef struct {{ {' '.join(_member(*field[:2]) for field in structure._fields_)} }} {structure.__name__};")
    return "\n".join(lines)


def _member(name: str, kind: type) -> str:
    length = getattr(kind, "_length_", None)
    element = kind._type_ if length else kind  # type: ignore[attr-defined]
    return f"{_C_NAMES.get(element, element.__name__)} {name}{f'[{length}]' if length else ''};"
