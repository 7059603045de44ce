"""The compiled shaders that ship inside the package, and their specialization.

Specialization constants are made constants here, in the SPIR-V, and not by the driver: some drivers optimize a shader before
they specialize it. SwiftShader does, and then unrolls no loop and keeps every array in memory: a quarter of the speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

_FIRST_INSTRUCTION = 5
_OP_NAME, _OP_CONSTANT_TRUE, _OP_CONSTANT_FALSE, _OP_CONSTANT, _OP_CONSTANT_COMPOSITE = 5, 41, 42, 43, 44
_OP_SPEC_CONSTANT, _OP_SPEC_CONSTANT_COMPOSITE, _OP_SPEC_CONSTANT_OP, _OP_FUNCTION, _OP_DECORATE = 50, 51, 52, 54, 71
_DECORATION_SPEC_ID = 1

# What glslang makes of the constant expressions in shaders/: 32-bit integers and bools
_OPERATIONS: dict[int, Callable[..., int]] = {
    128: lambda a, b: a + b,
    130: lambda a, b: a - b,
    132: lambda a, b: a * b,
    134: lambda a, b: a // b,
    137: lambda a, b: a % b,
    167: lambda a, b: a and b,
    168: lambda a: not a,
    169: lambda condition, a, b: a if condition else b,
    170: lambda a, b: a == b,
    171: lambda a, b: a != b,
    172: lambda a, b: a > b,
    197: lambda a, b: a | b,
}


@dataclass(frozen=True)
class CompiledKernel:
    """SPIR-V, and the ids of its specialization constants by the names they have in the GLSL."""

    name: str
    spirv: bytes
    constant_ids: dict[str, int]

    def specialize(self, constants: dict[str, int]) -> bytes:
        """The SPIR-V with these values, which fit 32 bits. `constants` may hold more names than this kernel declares."""
        given = {constant_id: constants[name] for name, constant_id in self.constant_ids.items()}
        places: dict[int, int] = {}  # result id: SpecId
        values: dict[int, int] = {}  # of constants, by result id
        words = self.spirv_words()
        out = words[:_FIRST_INSTRUCTION].tolist()
        end = len(words)
        for at, opcode, operands in _instructions(words):
            if opcode == _OP_FUNCTION:
                end = at
                break
            if opcode == _OP_DECORATE and operands[1] == _DECORATION_SPEC_ID:
                places[operands[0]] = operands[2]
                continue
            if opcode in (_OP_CONSTANT_TRUE, _OP_CONSTANT_FALSE):
                values[operands[1]] = opcode == _OP_CONSTANT_TRUE
            if opcode == _OP_CONSTANT:
                values[operands[1]] = operands[2]
            if opcode == _OP_SPEC_CONSTANT_COMPOSITE:
                opcode = _OP_CONSTANT_COMPOSITE
            if opcode in (_OP_SPEC_CONSTANT, _OP_SPEC_CONSTANT_OP):
                type_id, result, *arguments = operands
                value = given[places[result]] if opcode == _OP_SPEC_CONSTANT else \
                    _OPERATIONS[arguments[0]](*(values[argument] for argument in arguments[1:]))
                values[result] = value
                if isinstance(value, bool):
                    opcode, operands = _OP_CONSTANT_TRUE if value else _OP_CONSTANT_FALSE, [type_id, result]
                else:
                    values[result] = value % 2**32
                    opcode, operands = _OP_CONSTANT, [type_id, result, values[result]]
            out += [len(operands) + 1 << 16 | opcode, *operands]
        return np.array(out, "<u4").tobytes() + words[end:].tobytes()

    def spirv_words(self) -> np.ndarray:
        return np.frombuffer(self.spirv, "<u4")


@cache
def load(name: str) -> CompiledKernel:
    spirv = (resources.files(__package__) / "spirv" / f"{name}.spv").read_bytes()
    return CompiledKernel(name, spirv, _constant_ids(spirv))


def _instructions(words: np.ndarray) -> Iterator[tuple[int, int, list[int]]]:
    """Each instruction's place, opcode and operands."""
    at = _FIRST_INSTRUCTION
    while at < len(words):
        count, opcode = divmod(int(words[at]), 2**16)
        yield at, opcode, words[at + 1:at + count].tolist()
        at += count


def _constant_ids(spirv: bytes) -> dict[str, int]:
    """Names and SpecIds out of the module's debug names and decorations, which stand before its first function."""
    words = np.frombuffer(spirv, "<u4")
    names: dict[int, str] = {}
    ids: dict[int, int] = {}
    for at, opcode, operands in _instructions(words):
        if opcode == _OP_NAME:
            names[operands[0]] = words[at + 2:at + 1 + len(operands)].tobytes().split(b"\0")[0].decode()
        elif opcode == _OP_DECORATE and operands[1] == _DECORATION_SPEC_ID:
            ids[operands[0]] = operands[2]
        elif opcode == _OP_FUNCTION:
            break
    return {names[target]: constant_id for target, constant_id in ids.items() if names.get(target)}
