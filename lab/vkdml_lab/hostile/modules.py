"""Parses a kernel's SPIR-V into Python objects. Supports only what the compiler glslang makes of shaders/."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np


class Op(IntEnum):
    """The opcodes that kernels use, by their names in the SPIR-V specification."""

    Name, MemberName, ExtInst, EntryPoint, TypeVoid, TypeBool, TypeInt, TypeFloat, TypeVector = 5, 6, 12, 15, 19, 20, 21, 22, 23
    TypeArray, TypeRuntimeArray, TypeStruct, TypePointer, TypeFunction = 28, 29, 30, 32, 33
    ConstantTrue, ConstantFalse, Constant, ConstantComposite = 41, 42, 43, 44
    Function, FunctionParameter, FunctionEnd, FunctionCall, Variable, Load, Store, AccessChain = 54, 55, 56, 57, 59, 61, 62, 65
    Decorate, MemberDecorate, VectorExtractDynamic, VectorShuffle, CompositeConstruct, CompositeExtract = 71, 72, 77, 79, 80, 81
    ConvertFToU, ConvertFToS, ConvertUToF, UConvert, Bitcast, SNegate, FNegate = 109, 110, 112, 113, 124, 126, 127
    IAdd, FAdd, ISub, FSub, IMul, FMul, UDiv, FDiv, UMod = 128, 129, 130, 131, 132, 133, 134, 136, 137
    VectorTimesScalar, IAddCarry, ISubBorrow, All, IsNan, LogicalOr, LogicalAnd = 142, 149, 150, 155, 156, 166, 167
    LogicalNot, Select, IEqual, INotEqual, UGreaterThan, SGreaterThan, UGreaterThanEqual = 168, 169, 170, 171, 172, 173, 174
    SGreaterThanEqual, ULessThan, SLessThan, ULessThanEqual, FOrdEqual, FUnordNotEqual = 175, 176, 177, 178, 180, 183
    FOrdLessThan, FOrdGreaterThan, FOrdLessThanEqual, FOrdGreaterThanEqual = 184, 186, 188, 190
    ShiftRightLogical, ShiftLeftLogical, BitwiseOr, BitwiseAnd, Not = 194, 196, 197, 199, 200
    ControlBarrier, AtomicLoad, AtomicAnd, AtomicOr, Phi, LoopMerge, SelectionMerge, Label = 224, 227, 240, 241, 245, 246, 247, 248
    Branch, BranchConditional, Return, ReturnValue = 249, 250, 253, 254


class Decoration(IntEnum):
    ArrayStride, BuiltIn, Volatile, Coherent, Binding, Offset, NoContraction = 6, 11, 21, 23, 33, 35, 42


class Storage(IntEnum):
    Input, Uniform, Workgroup, Private, Function, PushConstant, StorageBuffer = 1, 2, 4, 6, 7, 9, 12


COHERENT = {Decoration.Coherent, Decoration.Volatile}
_WORKGROUP_SIZE = 25  # number of the builtin
_WITHOUT_RESULT = {Op.Store, Op.ControlBarrier, Op.LoopMerge, Op.SelectionMerge, Op.Branch, Op.BranchConditional, Op.Return,
                   Op.ReturnValue}
_SKIPPED = {3, 4, 8, 10, 11, 14, 16, 17, 317}  # without effect, such as OpSource, OpLine and OpNop


@dataclass(frozen=True, eq=False)
class Type:
    """A SPIR-V type. kind: u16, u32, i32, f32, bool, vector, array, struct, pointer or void."""

    kind: str
    id: int
    element: Type | None = None  # the elements of a vector or array, or a pointer's target
    count: int = 0  # number of a vector's or array's elements; 0 if only known at run time
    members: tuple[Type, ...] = ()

    @property
    def scalar(self) -> str:
        """The kind of this scalar, or of this vector's elements."""
        return self.element.kind if self.kind == "vector" and self.element else self.kind

    @property
    def words(self) -> int:
        """How many words a value of this type takes in shared memory."""
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
        """Return the reachable blocks, so ordered that a construct's blocks come before its merge block, and that a loop's last
        block is the one that jumps back.
        """
        seen: list[int] = []
        found: list[int] = []

        def visit(block: int) -> None:
            if block in seen:
                return
            seen.append(block)
            for instruction in self.blocks[block]:
                if instruction.op in (Op.LoopMerge, Op.SelectionMerge):  # merge and continue blocks come last
                    for target in instruction.operands[:2 if instruction.op == Op.LoopMerge else 1]:
                        visit(target)
            for target in self.successors(block):
                visit(target)
            found.append(block)

        visit(next(iter(self.blocks)))
        reached = new = {seen[0]}
        while new:
            new = {target for block in new for target in self.successors(block)} - reached
            reached = reached | new
        return [block for block in reversed(found) if block in reached]


class Module:
    """A parsed kernel. names, decorations: by id, or by a struct's id and a member's number. constants: type and value by id.
    variables: type and storage class by id. initial: the id of a variable's initializer.
    """

    def __init__(self, spirv: bytes) -> None:
        self.names: dict[object, str] = {}
        self.decorations: dict[object, dict[int, int]] = {}
        self.types: dict[int, Type] = {}
        self.constants: dict[int, tuple[Type, object]] = {}
        self.variables: dict[int, tuple[Type, Storage]] = {}
        self.initial: dict[int, int] = {}
        self.functions: dict[int, Function] = {}
        self.entry = 0
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
        size, = (id_ for id_, found in self.decorations.items() if found.get(Decoration.BuiltIn) == _WORKGROUP_SIZE)
        self.workgroup: int = self.constants[size][1][0][1]  # type: ignore[index]

    def _declare(self, op: Op, words: list[int]) -> None:
        members = op in (Op.MemberName, Op.MemberDecorate)
        target, rest = ((words[0], words[1]), words[2:]) if members else (words[0], words[1:])
        if op in (Op.Name, Op.MemberName):
            self.names[target] = np.array(rest, "<u4").tobytes().split(b"\0")[0].decode()
        elif op in (Op.Decorate, Op.MemberDecorate):
            self.decorations.setdefault(target, {})[rest[0]] = rest[1] if len(rest) > 1 else 1
        elif op == Op.EntryPoint:
            self.entry = words[1]
        elif Op.TypeVoid <= op <= Op.TypeFunction:
            self.types[words[0]] = self._type(op, words[0], *words[1:])
        elif op == Op.Variable:
            self.variables[words[1]] = self.types[words[0]], Storage(words[2])
            if len(words) > 3:
                self.initial[words[1]] = words[3]
        else:
            value = {Op.ConstantTrue: True, Op.ConstantFalse: False}.get(op) if op < Op.Constant else words[2]
            self.constants[words[1]] = self.types[words[0]], (
                [self.constants[part] for part in words[2:]] if op == Op.ConstantComposite else value)

    def _type(self, op: Op, id_: int, *words: int) -> Type:
        if op == Op.TypeInt:
            return Type(f"{'ui'[words[1]]}{words[0]}", id_)
        if op in (Op.TypeVector, Op.TypeArray):
            count = words[1] if op == Op.TypeVector else self.number(words[1])
            return Type("vector" if op == Op.TypeVector else "array", id_, self.types[words[0]], count)
        if op in (Op.TypeRuntimeArray, Op.TypePointer):
            return Type("pointer" if op == Op.TypePointer else "array", id_, self.types[words[-1]])
        members = tuple(self.types[member] for member in words) if op == Op.TypeStruct else ()
        return Type({Op.TypeVoid: "void", Op.TypeBool: "bool", Op.TypeFloat: "f32"}.get(op, "struct"), id_, members=members)

    def number(self, constant: int) -> int:
        """Return the value of the uint constant with this id."""
        return int(self.constants[constant][1])  # type: ignore[call-overload]

    def is_coherent(self, variable: int) -> bool:
        """Whether the variable with this id is a buffer with a coherent or volatile member."""
        block = self.variables[variable][0].element if variable in self.variables else None
        members = range(len(block.members)) if block else ()
        return block is not None and any(COHERENT & {*self.decorations.get((block.id, n), ())} for n in members)


def _instructions(spirv: bytes) -> Iterator[tuple[Op, list[int]]]:
    words = np.frombuffer(spirv, "<u4").tolist()
    at = 5
    while at < len(words):
        count, opcode = divmod(words[at], 2**16)
        if opcode not in _SKIPPED:
            yield Op(opcode), words[at + 1:at + count]
        at += count
