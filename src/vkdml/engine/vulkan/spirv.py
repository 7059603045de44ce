"""The compiled shaders that ship inside the package, and their specialization.

Specialization constants become plain constants here, in the SPIR-V. Some drivers optimize a shader before they specialize it,
so that no loop is unrolled and it takes four times as long. And drivers inline functions before they drop dead code, so
branches on constants are removed here too.
"""

from __future__ import annotations

import hashlib
import operator as op
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from ...errors import DriverError

T = TypeVar("T")

_FIRST_INSTRUCTION = 5
_OP_NAME, _OP_MEMBER_NAME, _OP_CAPABILITY, _OP_TYPE_POINTER = 5, 6, 17, 32
_OP_CONSTANT_TRUE, _OP_CONSTANT_FALSE, _OP_CONSTANT, _OP_CONSTANT_COMPOSITE = 41, 42, 43, 44
_OP_SPEC_CONSTANT, _OP_SPEC_CONSTANT_COMPOSITE, _OP_SPEC_CONSTANT_OP = 50, 51, 52
_OP_FUNCTION, _OP_VARIABLE, _OP_DECORATE = 54, 59, 71
_OP_PHI, _OP_SELECTION_MERGE, _OP_LABEL, _OP_BRANCH, _OP_BRANCH_CONDITIONAL = 245, 247, 248, 249, 250
_DECORATION_SPEC_ID, _DECORATION_BINDING = 1, 33
_PUSH_CONSTANT = 9  # SPIR-V's storage class

# The operations of constant expressions in shaders/, on 32-bit integers and bools, by SPIR-V's opcodes
_OPERATIONS: dict[int, Callable[..., int]] = {
    128: op.add, 130: op.sub, 132: op.mul, 134: op.floordiv, 137: op.mod, 166: op.or_, 167: op.and_, 168: op.not_,
    169: lambda condition, a, b: a if condition else b, 170: op.eq, 171: op.ne, 172: op.gt, 174: op.ge, 176: op.lt, 197: op.or_,
}


class Interface(NamedTuple):
    """Declarations of a kernel's SPIR-V, by the names in the GLSL.

    constant_ids: the ids of specialization constants, by name. bindings: the names of the blocks at each binding, in ascending
    order (several may show a buffer in different types). push: the names of the push constants, in order. capabilities: the
    numbers of the SPIR-V capabilities that it needs.
    """

    constant_ids: dict[str, int]
    bindings: dict[int, set[str]]
    push: tuple[str, ...]
    capabilities: frozenset[int]


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's SPIR-V and its declarations."""

    name: str
    spirv: bytes
    interface: Interface

    def order(self, buffers: Mapping[str, T], missing: T) -> list[T]:
        """Return a buffer for each binding, in order. buffers: by block. missing: taken if an optional tensor is left out."""
        return [next((buffers[block] for block in blocks if block in buffers), missing)
                for blocks in self.interface.bindings.values()]

    def push_words(self, push: Mapping[str, int]) -> list[int]:
        """Return the values of push constants in order. push: by name."""
        return [push[name] for name in self.interface.push]

    def values(self, constants: Mapping[str, int]) -> tuple[int, ...]:
        """Return the values of the constants that this kernel declares. Dispatches with equal ones run the same pipeline."""
        return tuple(constants[name] for name in self.interface.constant_ids)

    def specialize(self, constants: Mapping[str, int]) -> bytes:
        """Return the SPIR-V with values for its constants, and its bindings renumbered without gaps.

        constants: values by name. It may have more names than this kernel declares.
        """
        given = {constant_id: constants[name] for name, constant_id in self.interface.constant_ids.items()}
        numbers = {binding: number for number, binding in enumerate(self.interface.bindings)}
        words = np.frombuffer(self.spirv, "<u4")
        specialized = words[:_FIRST_INSTRUCTION].tolist()
        places: dict[int, int] = {}  # SpecIds, by result id
        values: dict[int, int] = {}  # values of constants, by result id
        end = _FIRST_INSTRUCTION
        for at, opcode, operands in _declarations(words):
            end = at + 1 + len(operands)
            if opcode == _OP_DECORATE and operands[1] == _DECORATION_SPEC_ID:
                places[operands[0]] = operands[2]
                continue
            if opcode == _OP_DECORATE and operands[1] == _DECORATION_BINDING:
                operands[2] = numbers[operands[2]]
            if opcode == _OP_CONSTANT:
                values[operands[1]] = operands[2]
            elif opcode in (_OP_CONSTANT_TRUE, _OP_CONSTANT_FALSE):
                values[operands[1]] = opcode == _OP_CONSTANT_TRUE
            elif opcode == _OP_SPEC_CONSTANT_COMPOSITE:
                opcode = _OP_CONSTANT_COMPOSITE
            elif opcode in (_OP_SPEC_CONSTANT, _OP_SPEC_CONSTANT_OP):
                type_id, result, *rest = operands
                if opcode == _OP_SPEC_CONSTANT:
                    value = given[places[result]]
                else:
                    value = _OPERATIONS[rest[0]](*(values[operand] for operand in rest[1:]))
                if isinstance(value, bool):
                    opcode, operands = _OP_CONSTANT_TRUE if value else _OP_CONSTANT_FALSE, [type_id, result]
                else:
                    value %= 2**32  # as uints wrap
                    opcode, operands = _OP_CONSTANT, [type_id, result, value]
                values[result] = value
            specialized += [len(operands) + 1 << 16 | opcode, *operands]
        return np.array(specialized + _without_dead_branches(words[end:].tolist(), values), "<u4").tobytes()


def _without_dead_branches(functions: list[int], values: dict[int, int]) -> list[int]:
    """Replace branches on constants by jumps. Blocks that are not taken become unreachable but stay."""
    places = list(_instructions(functions))
    # A block with an OpPhi needs all branches to it
    with_phi = {functions[at + 1] for (at, opcode), (_, following) in pairwise(places)
                if opcode == _OP_LABEL and following == _OP_PHI}
    kept: list[int] = []
    start = 0
    for (at, opcode), (branch, branching) in pairwise(places):
        if (opcode, branching) != (_OP_SELECTION_MERGE, _OP_BRANCH_CONDITIONAL):
            continue
        condition, *targets = functions[branch + 1:branch + 4]
        if condition not in values:
            continue
        taken, other = targets if values[condition] else reversed(targets)
        if other not in with_phi:
            kept += [*functions[start:at], 2 << 16 | _OP_BRANCH, taken]
            start = branch + (functions[branch] >> 16)
    return kept + functions[start:]


def _instructions(words: Sequence[int] | np.ndarray, at: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the index and the opcode of each instruction, from an index on."""
    while at < len(words):
        count, opcode = divmod(int(words[at]), 2**16)
        yield at, opcode
        at += count


@cache
def load(name: str) -> CompiledKernel:
    """Load a shipped kernel. Raises DriverError if its file is damaged or missing."""
    folder = resources.files("vkdml") / "spirv"
    refuse_stale()
    try:
        spirv, checksums = ((folder / file).read_bytes() for file in (f"{name}.spv", "checksums.txt"))
    except OSError as error:
        raise DriverError(f"a file of vkdml cannot be read ({error}): install vkdml again") from error
    if f"{hashlib.sha256(spirv).hexdigest()}  {name}.spv".encode() not in checksums.splitlines():
        raise DriverError(f"{folder / name}.spv is damaged, or checksums.txt in {folder}: install vkdml again")
    return of_spirv(name, spirv)


@cache
def refuse_stale() -> None:
    """Raise DriverError if a source in sources.txt, which a checkout has and a wheel has not, is another now."""
    folder = Path(str(resources.files("vkdml"))) / "spirv"
    try:
        remedy, *lines = (folder / "sources.txt").read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        source = folder / line.split("  ", 1)[1]
        if not source.is_file() or not line.startswith(hashlib.sha256(source.read_bytes()).hexdigest()):
            raise DriverError(f"{source.resolve()} has changed since the kernels in {folder} were compiled: {remedy}")


def of_spirv(name: str, spirv: bytes) -> CompiledKernel:
    return CompiledKernel(name, spirv, _interface(spirv))


def _declarations(words: np.ndarray) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the index, opcode and operands of each instruction before the first function."""
    for at, opcode in _instructions(words, _FIRST_INSTRUCTION):
        if opcode == _OP_FUNCTION:
            return
        yield at, opcode, words[at + 1:at + (int(words[at]) >> 16)].tolist()


def _interface(spirv: bytes) -> Interface:
    """Read a module's interface from its debug names, decorations and types."""
    names: dict[int, str] = {}
    members: dict[int, list[str]] = {}
    constant_ids: dict[int, int] = {}
    bindings: dict[int, int] = {}  # binding numbers, by variable
    pointed: dict[int, int] = {}  # the types that pointers point to
    blocks: dict[int, int] = {}  # types, by variable
    push: list[str] = []
    capabilities: set[int] = set()
    for _, opcode, operands in _declarations(np.frombuffer(spirv, "<u4")):
        if opcode == _OP_CAPABILITY:
            capabilities.add(operands[0])
        elif opcode == _OP_NAME:
            names[operands[0]] = _text(operands[1:])
        elif opcode == _OP_MEMBER_NAME:
            members.setdefault(operands[0], []).append(_text(operands[2:]))
        elif opcode == _OP_DECORATE and operands[1] == _DECORATION_SPEC_ID:
            constant_ids[operands[0]] = operands[2]
        elif opcode == _OP_DECORATE and operands[1] == _DECORATION_BINDING:
            bindings[operands[0]] = operands[2]
        elif opcode == _OP_TYPE_POINTER:
            pointed[operands[0]] = operands[2]
        elif opcode == _OP_VARIABLE:
            blocks[operands[1]] = pointed[operands[0]]
            if operands[2] == _PUSH_CONSTANT:
                push = members[pointed[operands[0]]]
    of_binding: dict[int, set[str]] = {binding: set() for binding in sorted(bindings.values())}
    for variable, binding in bindings.items():
        of_binding[binding].add(names[blocks[variable]])
    return Interface({names[target]: constant_id for target, constant_id in constant_ids.items() if names.get(target)},
                     of_binding, tuple(push), frozenset(capabilities))


def _text(words: Sequence[int]) -> str:
    return np.array(words, "<u4").tobytes().split(b"\0")[0].decode()
