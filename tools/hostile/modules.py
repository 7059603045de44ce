"""A kernel's SPIR-V as Python objects: what glslang makes of shaders/, no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np


class Op(IntEnum):
    """Opcodes, as the specification names them."""

    Undef, Name, MemberName, ExtInst, EntryPoint, ExecutionMode = 1, 5, 6, 12, 15, 16
    TypeVoid, TypeBool, TypeInt, TypeFloat, TypeVector, TypeArray, TypeRuntimeArray, TypeStruct = 19, 20, 21, 22, 23, 28, 29, 30
    TypePointer, TypeFunction, ConstantTrue, ConstantFalse, Constant, ConstantComposite = 32, 33, 41, 42, 43, 44
    Function, FunctionParameter, FunctionEnd, FunctionCall, Variable, Load, Store, AccessChain = 54, 55, 56, 57, 59, 61, 62, 65
    Decorate, MemberDecorate, VectorExtractDynamic, VectorShuffle, CompositeConstruct, CompositeExtract = 71, 72, 77, 79, 80, 81
    ConvertFToU, ConvertFToS, ConvertSToF, ConvertUToF, UConvert, Bitcast, SNegate = 109, 110, 111, 112, 113, 124, 126
    FNegate, IAdd, FAdd, ISub, FSub, IMul, FMul, UDiv, FDiv, UMod = 127, 128, 129, 130, 131, 132, 133, 134, 136, 137
    VectorTimesScalar, IAddCarry, ISubBorrow, All, IsNan, LogicalOr, LogicalAnd = 142, 149, 150, 155, 156, 166, 167
    LogicalNot, Select = 168, 169
    IEqual, INotEqual, UGreaterThan, SGreaterThan, UGreaterThanEqual, SGreaterThanEqual = 170, 171, 172, 173, 174, 175
    ULessThan, SLessThan, ULessThanEqual, SLessThanEqual, FOrdEqual, FUnordNotEqual = 176, 177, 178, 179, 180, 183
    FOrdLessThan, FOrdGreaterThan, FOrdLessThanEqual, FOrdGreaterThanEqual = 184, 186, 188, 190
    ShiftRightLogical, ShiftLeftLogical, BitwiseOr, BitwiseXor, BitwiseAnd, Not = 194, 196, 197, 198, 199, 200
    ControlBarrier, MemoryBarrier, AtomicLoad, AtomicStore, AtomicIAdd, AtomicAnd, AtomicOr = 224, 225, 227, 228, 234, 240, 241
    Phi, LoopMerge, SelectionMerge, Label, Branch, BranchConditional, Return, ReturnValue, Unreachable = (
        245, 246, 247, 248, 249, 250, 253, 254, 255)


class Decoration(IntEnum):
    ArrayStride, BuiltIn, Volatile, Coherent, Binding, Offset, NoContraction = 6, 11, 21, 23, 33, 35, 42


class Storage(IntEnum):
    Input, Uniform, Workgroup, Private, Function, PushConstant, StorageBuffer = 1, 2, 4, 6, 7, 9, 12


WORKGROUP_SIZE = 25  # a builtin
_WITHOUT_RESULT = {Op.Store, Op.ControlBarrier, Op.MemoryBarrier, Op.AtomicStore, Op.LoopMerge, Op.SelectionMerge, Op.Branch,
                   Op.BranchConditional, Op.Return, Op.ReturnValue, Op.Unreachable}
_SKIPPED = {3, 4, 8, 10, 11, 14, 17, 317}  # sources, extensions, lines, capabilities, the memory model, nothing


@dataclass(frozen=True, eq=False)
class Type:
    """kind: u16, u32, i32, f32, bool, vector, array, struct, pointer or void."""

    kind: str
    id: int = 0
    element: Type | None = None  # of a vector, array or pointer
    count: int = 0               # of a vector's or array's elements; 0: known at run time
    members: tuple[Type, ...] = ()

    @property
    def scalar(self) -> str:
        """The kind of a scalar, or of a vector's elements."""
        return self.element.kind if self.kind == "vector" and self.element else self.kind

    @property
    def words(self) -> int:
        """Words of shared memory."""
        if self.kind == "struct":
            return sum(member.words for member in self.members)
        return self.count * self.element.words if self.element else 1


@dataclass(frozen=True)
class Instruction:
    op: Op
    type: Type | None
    result: int
    operands: list[int]


@dataclass
class Function:
    type: Type
    parameters: list[tuple[int, Type]] = field(default_factory=list)
    blocks: dict[int, list[Instruction]] = field(default_factory=dict)

    def successors(self, block: int) -> list[int]:
        last = self.blocks[block][-1]
        return last.operands[:1] if last.op == Op.Branch else last.operands[1:3] if last.op == Op.BranchConditional else []

    def ordered(self) -> list[int]:
        """The blocks that can be reached, each construct's side by side: before its merge block, a loop's after its header and
        with the jump back at its end."""
        seen: set[int] = set()
        found: list[int] = []

        def visit(block: int) -> None:
            if block in seen:
                return
            seen.add(block)
            for instruction in self.blocks[block]:
                if instruction.op in (Op.LoopMerge, Op.SelectionMerge):
                    for target in instruction.operands[:2 if instruction.op == Op.LoopMerge else 1]:
                        visit(target)
            for target in self.successors(block):
                visit(target)
            found.append(block)

        first = next(iter(self.blocks))
        visit(first)
        reached, new = {first}, {first}
        while new:
            new = {target for block in new for target in self.successors(block)} - reached
            reached |= new
        return [block for block in reversed(found) if block in reached]


class Module:
    """constants: type and value, by id. variables: type and storage, by id; initial: the ids of their first values."""

    def __init__(self, spirv: bytes) -> None:
        self.names: dict[int, str] = {}
        self.member_names: dict[tuple[int, int], str] = {}
        self.types: dict[int, Type] = {}
        self.constants: dict[int, tuple[Type, object]] = {}
        self.variables: dict[int, tuple[Type, Storage]] = {}
        self.initial: dict[int, int] = {}
        self.decorations: dict[int, dict[int, int]] = {}
        self.member_decorations: dict[tuple[int, int], dict[int, int]] = {}
        self.functions: dict[int, Function] = {}
        self.entry = self.workgroup = 0
        function = block = None
        for op, words in _instructions(spirv):
            if op == Op.Function:
                function = self.functions[words[1]] = Function(self.types[words[0]])
            elif op == Op.FunctionEnd:
                function = None
            elif function is None:
                self._declare(op, words)
            elif op == Op.FunctionParameter:
                function.parameters.append((words[1], self.types[words[0]]))
            elif op == Op.Label:
                block = function.blocks[words[0]] = []
            elif block is not None:
                block.append(Instruction(op, None, 0, words) if op in _WITHOUT_RESULT
                             else Instruction(op, self.types[words[0]], words[1], words[2:]))
        sizes = [id_ for id_, found in self.decorations.items() if found.get(Decoration.BuiltIn) == WORKGROUP_SIZE]
        if sizes:  # by specialization constants
            self.workgroup = self.constants[sizes[0]][1][0][1]  # type: ignore[index]

    def _declare(self, op: Op, words: list[int]) -> None:
        if op == Op.Name:
            self.names[words[0]] = _text(words[1:])
        elif op == Op.MemberName:
            self.member_names[words[0], words[1]] = _text(words[2:])
        elif op == Op.EntryPoint:
            self.entry = words[1]
        elif op == Op.ExecutionMode:
            self.workgroup = words[2]
        elif op == Op.Decorate:
            self.decorations.setdefault(words[0], {})[words[1]] = words[2] if len(words) > 2 else 1
        elif op == Op.MemberDecorate:
            self.member_decorations.setdefault((words[0], words[1]), {})[words[2]] = words[3] if len(words) > 3 else 1
        elif Op.TypeVoid <= op <= Op.TypeFunction:
            self.types[words[0]] = self._type(op, words)
        elif op in (Op.ConstantTrue, Op.ConstantFalse):
            self.constants[words[1]] = self.types[words[0]], op == Op.ConstantTrue
        elif op in (Op.Constant, Op.Undef):
            self.constants[words[1]] = self.types[words[0]], words[2] if op == Op.Constant else 0
        elif op == Op.ConstantComposite:
            self.constants[words[1]] = self.types[words[0]], [self.constants[part] for part in words[2:]]
        elif op == Op.Variable:
            self.variables[words[1]] = self.types[words[0]], Storage(words[2])
            if len(words) > 3:
                self.initial[words[1]] = words[3]

    def _type(self, op: Op, words: list[int]) -> Type:
        if op == Op.TypeInt:
            return Type(f"{'ui'[words[2]]}{words[1]}", words[0])
        if op in (Op.TypeVector, Op.TypeArray):
            count = words[2] if op == Op.TypeVector else self.number(words[2])
            return Type("vector" if op == Op.TypeVector else "array", words[0], self.types[words[1]], count)
        if op == Op.TypeRuntimeArray:
            return Type("array", words[0], self.types[words[1]])
        if op == Op.TypeStruct:
            return Type("struct", words[0], members=tuple(self.types[member] for member in words[1:]))
        if op == Op.TypePointer:
            return Type("pointer", words[0], self.types[words[2]])
        return Type({Op.TypeVoid: "void", Op.TypeBool: "bool", Op.TypeFloat: "f32", Op.TypeFunction: "function"}[op], words[0])

    def number(self, constant: int) -> int:
        """The value of a constant uint."""
        return int(self.constants[constant][1])  # type: ignore[call-overload]

    def name(self, id_: int) -> str:
        return self.names.get(id_) or f"%{id_}"

    def block_members(self, variable: int) -> Iterator[tuple[int, int]]:
        """The struct of a buffer's block, and each member's index."""
        block = self.variables[variable][0].element
        assert block is not None
        for member in range(len(block.members)):
            yield block.id, member

    def is_coherent(self, variable: int) -> bool:
        return any({Decoration.Coherent, Decoration.Volatile} & self.member_decorations.get(key, {}).keys()
                   for key in self.block_members(variable))


def _instructions(spirv: bytes) -> Iterator[tuple[Op, list[int]]]:
    words = np.frombuffer(spirv, "<u4").tolist()
    at = 5
    while at < len(words):
        count, opcode = divmod(words[at], 2**16)
        if opcode not in _SKIPPED:
            yield Op(opcode), words[at + 1:at + count]
        at += count


def _text(words: list[int]) -> str:
    return np.array(words, "<u4").tobytes().split(b"\0")[0].decode()
