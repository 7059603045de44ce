"""The compiled shaders that ship inside the package, and their specialization constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

_OP_NAME, _OP_DECORATE, _OP_FUNCTION = 5, 71, 54
_DECORATION_SPEC_ID = 1


@dataclass(frozen=True)
class CompiledKernel:
    """SPIR-V, and the ids of its specialization constants by the names they have in the GLSL."""

    name: str
    spirv: bytes
    constant_ids: dict[str, int]

    def specialize(self, constants: dict[str, int]) -> np.ndarray:
        """kp's array, whose places are the ids. `constants` may hold more names than this kernel declares."""
        values = np.zeros(max(self.constant_ids.values()) + 1, np.uint32)
        for name, constant_id in self.constant_ids.items():
            values[constant_id] = constants[name]
        return values


@cache
def load(name: str) -> CompiledKernel:
    spirv = (resources.files(__package__) / "spirv" / f"{name}.spv").read_bytes()
    return CompiledKernel(name, spirv, _constant_ids(spirv))


def _constant_ids(spirv: bytes) -> dict[str, int]:
    """Names and SpecIds out of the module's debug names and decorations, which stand before its first function."""
    words = np.frombuffer(spirv, "<u4")
    names: dict[int, str] = {}
    ids: dict[int, int] = {}
    at = 5
    while at < len(words):
        count, opcode = int(words[at]) >> 16, int(words[at]) & 0xFFFF
        if opcode == _OP_NAME:
            names[int(words[at + 1])] = words[at + 2:at + count].tobytes().split(b"\0")[0].decode()
        elif opcode == _OP_DECORATE and words[at + 2] == _DECORATION_SPEC_ID:
            ids[int(words[at + 1])] = int(words[at + 3])
        elif opcode == _OP_FUNCTION:
            break
        at += count
    return {names[target]: constant_id for target, constant_id in ids.items() if names.get(target)}
