"""What each instruction becomes in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tools.hostile.modules import Decoration, Instruction, Op, Storage, Type

if TYPE_CHECKING:
    from tools.hostile.translating import Writer

NUMPY = {"u16": "np.uint16", "u32": "np.uint32", "i32": "np.int32", "f32": "np.float32", "bool": "np.bool_"}
FLOATS = {Op.FAdd: "add", Op.FSub: "sub", Op.FMul: "mul", Op.FDiv: "div", Op.FOrdEqual: "eq", Op.FUnordNotEqual: "ne",
          Op.FOrdLessThan: "lt", Op.FOrdGreaterThan: "gt", Op.FOrdLessThanEqual: "le", Op.FOrdGreaterThanEqual: "ge"}
WHOLE = {Op.IAdd: "+", Op.ISub: "-", Op.IMul: "*", Op.BitwiseOr: "|", Op.BitwiseXor: "^", Op.BitwiseAnd: "&", Op.IEqual: "==",
         Op.INotEqual: "!=", Op.UGreaterThan: ">", Op.UGreaterThanEqual: ">=", Op.ULessThan: "<", Op.ULessThanEqual: "<="}
SIGNED = {Op.SGreaterThan: ">", Op.SGreaterThanEqual: ">=", Op.SLessThan: "<", Op.SLessThanEqual: "<="}
LOGICAL = {Op.LogicalOr: "|", Op.LogicalAnd: "&"}
REPORTING = {Op.UDiv: "udiv", Op.UMod: "umod", Op.ShiftLeftLogical: "shift_left", Op.ShiftRightLogical: "shift_right"}
CALLS = {Op.IsNan: "arithmetic.isnan({})", Op.FNegate: "-{}", Op.SNegate: "-{}", Op.LogicalNot: "~{}", Op.Not: "~{}",
         Op.ConvertSToF: "{}.astype(np.float32)", Op.ConvertUToF: "{}.astype(np.float32)", Op.UConvert: "{}.astype(np.uint16)",
         Op.ConvertFToU: "to_whole(wave, {}, 'u32')", Op.ConvertFToS: "to_whole(wave, {}, 'i32')"}
# Of GLSL.std.450: RoundEven, FAbs, UMin, UMax, Exp, Log, Fma, UClamp
EXTENDED = {2: "np.rint({})", 4: "np.abs({})", 38: "np.minimum({}, {})", 41: "np.maximum({}, {})", 27: "arithmetic.exp({})",
            28: "arithmetic.log({})", 50: "arithmetic.fma({}, {}, {})", 44: "np.minimum(np.maximum({}, {}), {})"}
UNPACK_HALF = 62
ATOMICS = {Op.AtomicLoad: "load", Op.AtomicStore: "store", Op.AtomicIAdd: "add", Op.AtomicAnd: "and", Op.AtomicOr: "or"}


def in_tuple(parts: Iterable[str]) -> str:
    return f"({''.join(f'{part}, ' for part in parts)})"


@dataclass(frozen=True)
class Pointer:
    """A part of `base`: of a value of the function's own by path, or of memory by an offset in its units.

    is_coherent: whether others may see it or be seen, so that each load looks anew.
    """

    base: str
    type: Type
    in_memory: bool = False
    path: tuple[str, ...] = ()
    offset: str = "0"
    is_coherent: bool = False
    label: str = ""


class InstructionWriter:
    """Writes the instructions of one function."""

    def __init__(self, writer: Writer, name: str) -> None:
        self.writer, self.module, self.name, self.depth = writer, writer.module, name, 0
        self.types: dict[int, Type] = {}
        self.pointers: dict[int, Pointer] = {}
        self.products: dict[int, Instruction] = {}  # that may be contracted

    def line(self, text: str) -> None:
        self.writer.lines.append(" " * self.depth + text)

    def place(self, what: str) -> int:
        """The number of a place for reports."""
        self.writer.places.append(f"{what} in {self.name}")
        return len(self.writer.places) - 1

    def value(self, id_: int) -> str:
        return self.writer.constant(*self.module.constants[id_]) if id_ in self.module.constants else f"x{id_}"

    def type_of(self, id_: int) -> Type:
        return self.module.constants[id_][0] if id_ in self.module.constants else self.types[id_]

    def component(self, id_: int, at: str, kind: str | None = None) -> str:
        """A scalar, or a vector's component at `[n]`, as another kind of the same size."""
        found, type_ = self.value(id_), self.type_of(id_)
        found += at if type_.kind == "vector" else ""
        return found if kind in (None, type_.scalar) else f"{found}.view({NUMPY[kind or '']})"

    def each(self, type_: Type, write: Callable[[str], str]) -> str:
        """What is written for each component of a type."""
        return in_tuple(write(f"[{n}]") for n in range(type_.count)) if type_.kind == "vector" else write("")

    def instruction(self, instruction: Instruction) -> None:
        op, operands = instruction.op, instruction.operands
        if instruction.type is not None:
            self.types[instruction.result] = instruction.type
        if op == Op.Variable:
            assert instruction.type is not None
            self.line(f"x{instruction.result} = [{self.writer.first_value(instruction.result, instruction.type.element)}]")
        elif op == Op.AccessChain:
            self.pointers[instruction.result] = self._chain(self.pointer(operands[0]), operands[1:])
        elif op == Op.Store:
            self._store(self.pointer(operands[0]), operands[1])
        elif op == Op.ControlBarrier:
            scopes = ", ".join(str(self.module.number(operand)) for operand in operands)
            self.line(f"yield ({self.place('barrier')}, m, {scopes})")
        elif op == Op.MemoryBarrier:
            self.line(f"wave.fence(m, {self.module.number(operands[0])}, {self.module.number(operands[1])})")
            self.wait()
        elif op in ATOMICS:
            self._atomic(instruction)
        else:
            self.line(f"x{instruction.result} = {self._computed(instruction)}")
            if op == Op.FMul and Decoration.NoContraction not in self.module.decorations.get(instruction.result, {}):
                self.products[instruction.result] = instruction

    def wait(self) -> None:
        if self.writer.waits:
            self.line("yield None")

    def _computed(self, instruction: Instruction) -> str:
        op, operands, type_ = instruction.op, instruction.operands, instruction.type
        assert type_ is not None
        value, kind = self.value, type_.scalar
        if op == Op.Load:
            return self._load(self.pointer(operands[0]), type_)
        if op == Op.FunctionCall:
            call = f"f{operands[0]}(wave, m{''.join(f', {self._argument(operand)}' for operand in operands[1:])})"
            return f"yield from {call}" if operands[0] in self.writer.waiting else call
        if op in FLOATS:
            return self.each(type_, lambda at: self._float(instruction, at))
        if op in WHOLE or op in SIGNED or op in LOGICAL:
            as_kind = "i32" if op in SIGNED else None if op in LOGICAL else kind if kind != "bool" else "u32"
            sign = {**WHOLE, **SIGNED, **LOGICAL}[op]
            return self.each(type_, lambda at: " ".join((self.component(operands[0], at, as_kind), sign,
                                                         self.component(operands[1], at, as_kind))))
        if op in REPORTING:
            place = self.place(REPORTING[op])
            return self.each(type_, lambda at: (f"{REPORTING[op]}(wave, {self.component(operands[0], at, 'u32')}, "
                                                f"{self.component(operands[1], at, 'u32')}, m, {place}).view({NUMPY[kind]})"))
        if op in CALLS:
            return self.each(type_, lambda at: CALLS[op].format(self.component(operands[0], at)))
        if op == Op.ExtInst:
            if operands[1] == UNPACK_HALF:
                return f"arithmetic.unpack_half({value(operands[2])})"
            return self.each(type_, lambda at: EXTENDED[operands[1]].format(*(self.component(x, at) for x in operands[2:])))
        if op == Op.VectorTimesScalar:
            return self.each(type_, lambda at: f"arithmetic.mul({value(operands[0])}{at}, {value(operands[1])})")
        if op == Op.Bitcast:
            return self.each(type_, lambda at: self.component(operands[0], at, kind))
        if op == Op.Select:
            if self.type_of(operands[0]).kind == "vector":
                return self.each(type_, lambda at: f"choose({', '.join(self.component(x, at) for x in operands)})")
            return f"choose({', '.join(map(value, operands))})"
        if op == Op.CompositeConstruct:
            return in_tuple(f"*{value(x)}" if type_.kind == self.type_of(x).kind == "vector" else value(x) for x in operands)
        if op == Op.CompositeExtract:
            return value(operands[0]) + "".join(f"[{index}]" for index in operands[1:])
        if op == Op.VectorShuffle:
            first = self.type_of(operands[0]).count
            return in_tuple(f"{value(operands[n >= first])}[{n % first if n < first else n - first}]" for n in operands[2:])
        if op == Op.VectorExtractDynamic:
            return f"pick(wave, {value(operands[0])}, {self.component(operands[1], '', 'u32')}, m, {self.place('a component')})"
        if op == Op.All:
            return " & ".join(f"{value(operands[0])}[{n}]" for n in range(self.type_of(operands[0]).count))
        if op in (Op.IAddCarry, Op.ISubBorrow):
            return f"{'add_carry' if op == Op.IAddCarry else 'sub_borrow'}({value(operands[0])}, {value(operands[1])})"
        raise NotImplementedError(f"{op.name} in {self.name}")

    def _float(self, instruction: Instruction, at: str) -> str:
        """A sum of a product may be one operation, if the device chooses so at this place."""
        function, (a, b) = FLOATS[instruction.op], instruction.operands
        plain = f"arithmetic.{function}({self.component(a, at)}, {self.component(b, at)})"
        product, other = (self.products.get(a), b) if a in self.products else (self.products.get(b), a)
        decorations = self.module.decorations.get(instruction.result, {})
        if instruction.op not in (Op.FAdd, Op.FSub) or product is None or Decoration.NoContraction in decorations:
            return plain
        x, y = (self.component(operand, at) for operand in product.operands)
        added = self.component(other, at)
        if instruction.op == Op.FSub:
            x, added = (x, f"-{added}") if other == b else (f"-{x}", added)
        place = self.place("a product and a sum")
        return f"(arithmetic.fused({x}, {y}, {added}) if arithmetic.contracts({place}) else {plain})"

    # Pointers

    def pointer(self, id_: int) -> Pointer:
        if id_ in self.pointers:
            return self.pointers[id_]
        if id_ not in self.module.variables:
            element = self.types[id_].element
            assert element is not None
            return Pointer(f"x{id_}", element)
        type_, storage = self.module.variables[id_]
        assert type_.element is not None
        base = {Storage.Private: f"wave.privates[{id_}]", Storage.PushConstant: "wave.push",
                Storage.Input: f"wave.inputs[{self.module.decorations.get(id_, {}).get(Decoration.BuiltIn)}]"}.get(storage)
        return Pointer(base or f"wave.memories[{id_}]", type_.element, in_memory=base is None,
                       label=self.module.name(id_) if storage == Storage.Workgroup else "")

    def _argument(self, id_: int) -> str:
        pointed = id_ in self.module.variables or (id_ in self.types and self.types[id_].kind == "pointer")
        return self.pointer(id_).base if pointed else self.value(id_)

    def _chain(self, pointer: Pointer, indices: list[int]) -> Pointer:
        for index in indices:
            type_ = pointer.type
            number = self.module.number(index) if index in self.module.constants else None
            inner = type_.members[number or 0] if type_.kind == "struct" else type_.element
            assert inner is not None
            if not pointer.in_memory:
                text = str(number) if number is not None else self.component(index, "", "u32")
                pointer = replace(pointer, type=inner, path=(*pointer.path, text))
                continue
            if type_.kind == "struct":
                has = self.module.member_decorations.get((type_.id, number or 0), {})
                if Decoration.Offset in has:  # of a buffer's block
                    pointer = replace(pointer, is_coherent=bool({Decoration.Volatile, Decoration.Coherent} & {*has}),
                                      label=self.module.member_names[type_.id, number or 0])
                step = has.get(Decoration.Offset, sum(4 * member.words for member in type_.members[:number])) // 4
                pointer = replace(pointer, type=inner, offset=f"{pointer.offset} + {step}" if step else pointer.offset)
                continue
            stride = self.module.decorations.get(type_.id, {}).get(Decoration.ArrayStride, 4 * inner.words)
            step = 1 if inner.kind == "u16" else stride // 4  # in units
            text = str(number * step) if number is not None else f"{self.component(index, '', 'u32')}.astype(np.int64)" + (
                f" * {step}" if step > 1 else "")
            pointer = replace(pointer, type=inner, offset=text if pointer.offset == "0" else f"{pointer.offset} + {text}")
        return pointer

    def _load(self, pointer: Pointer, type_: Type) -> str:
        if not pointer.in_memory:
            return self._own(pointer)
        if pointer.is_coherent:
            self.wait()
        count = type_.count if type_.kind == "vector" else 1
        place = self.place(f"load of {pointer.label}")
        self.line(f"w = {pointer.base}.load(wave, {pointer.offset}, {count}, m, {place}, {pointer.is_coherent})")
        convert = " != 0" if type_.scalar == "bool" else f".view({NUMPY[type_.scalar]})"
        parts = [f"w[{n}]{convert if type_.scalar not in ('u32', 'u16') else ''}" for n in range(count)]
        return in_tuple(parts) if type_.kind == "vector" else parts[0]

    def _own(self, pointer: Pointer) -> str:
        found = pointer.base if pointer.base.startswith(("wave.push", "wave.inputs")) else f"{pointer.base}[0]"
        for index in pointer.path:
            place = self.place("an element")
            found = f"{found}[{index}]" if index.isdigit() else f"pick(wave, {found}, {index}, m, {place})"
        return found

    def _store(self, pointer: Pointer, value: int) -> None:
        if not pointer.in_memory:
            cell, new = f"{pointer.base}[0]", self.value(value)
            path = in_tuple(pointer.path)
            self.line(f"{cell} = put(wave, {cell}, {path}, {new}, m, {self.place('an element')})" if pointer.path
                      else f"{cell} = merge(m, {new}, {cell})")
            return
        if pointer.is_coherent:
            self.wait()
        kind, place = pointer.type.scalar, self.place(f"store to {pointer.label}")
        convert = {"u16": "", "u32": "", "bool": ".astype(np.uint32)"}.get(kind, ".view(np.uint32)")
        count = pointer.type.count if pointer.type.kind == "vector" else 1
        parts = [self.component(value, f"[{n}]") + convert for n in range(count)]
        self.line(f"{pointer.base}.store(wave, {pointer.offset}, {in_tuple(parts)}, m, {place})")

    def _atomic(self, instruction: Instruction) -> None:
        pointer, (_, semantics, *value) = self.pointer(instruction.operands[0]), instruction.operands[1:]
        self.wait()
        if self.module.number(semantics):
            raise NotImplementedError("an atomic that orders others")
        name, place = ATOMICS[instruction.op], self.place(f"atomic {ATOMICS[instruction.op]} of {pointer.label}")
        target, operand = f"x{instruction.result} = " if instruction.result else "", self.value(value[0]) if value else None
        self.line(f"{target}{pointer.base}.atomic(wave, '{name}', {pointer.offset}, {operand}, m, {place})")
