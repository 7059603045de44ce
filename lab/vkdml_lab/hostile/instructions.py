"""Translates SPIR-V instructions to lines of Python. An "expression" is the text of a Python expression."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from vkdml_lab.hostile.modules import COHERENT, Decoration, Instruction, Module, Op, Storage, Type

NUMPY = {"u16": "np.uint16", "u32": "np.uint32", "i32": "np.int32", "f32": "np.float32", "bool": "np.bool_"}
# Python by instruction, computed for each component; {0}, {1} and {2} are the operands. The second text is the type that
# operands are viewed as; "": their own
_FLOATS = {Op.FAdd: "add", Op.FSub: "sub", Op.FMul: "mul", Op.FDiv: "div", Op.FOrdEqual: "eq", Op.FUnordNotEqual: "ne",
           Op.FOrdLessThan: "lt", Op.FOrdGreaterThan: "gt", Op.FOrdLessThanEqual: "le", Op.FOrdGreaterThanEqual: "ge",
           Op.VectorTimesScalar: "mul"}
_WHOLE = {Op.IAdd: "+", Op.ISub: "-", Op.IMul: "*", Op.BitwiseOr: "|", Op.BitwiseAnd: "&", Op.IEqual: "==", Op.INotEqual: "!=",
          Op.UGreaterThan: ">", Op.UGreaterThanEqual: ">=", Op.ULessThan: "<", Op.ULessThanEqual: "<="}
_SIGNED = {Op.SGreaterThan: ">", Op.SGreaterThanEqual: ">=", Op.SLessThan: "<"}
_REPORTING = {Op.UDiv: "udiv", Op.UMod: "umod", Op.ShiftLeftLogical: "shift_left", Op.ShiftRightLogical: "shift_right"}
_FORMS = {**{op: (f"arithmetic.{name}({{0}}, {{1}})", "") for op, name in _FLOATS.items()},
          **{op: (f"{{0}} {sign} {{1}}", "u32") for op, sign in _WHOLE.items()},
          **{op: (f"{{0}} {sign} {{1}}", "i32") for op, sign in _SIGNED.items()},
          **{op: (f"{name}(wave, {{0}}, {{1}}, m, {{place}})", "u32") for op, name in _REPORTING.items()},
          Op.LogicalOr: ("{0} | {1}", ""), Op.LogicalAnd: ("{0} & {1}", ""), Op.LogicalNot: ("~{0}", ""), Op.Not: ("~{0}", ""),
          Op.FNegate: ("-{0}", ""), Op.SNegate: ("-{0}", ""), Op.Select: ("choose({0}, {1}, {2})", ""),
          Op.ConvertUToF: ("{0}.astype(np.float32)", ""), Op.UConvert: ("{0}.astype(np.uint16)", ""),
          Op.ConvertFToU: ("to_whole(wave, {0}, 'u32')", ""), Op.ConvertFToS: ("to_whole(wave, {0}, 'i32')", ""),
          Op.IsNan: ("arithmetic.ne({0}, {0})", "")}
# Instructions of GLSL.std.450: RoundEven, FAbs, UMin, UMax, UClamp, Exp, Log, Fma
_EXTENDED = {2: "np.rint({})", 4: "np.abs({})", 38: "np.minimum({}, {})", 41: "np.maximum({}, {})",
             44: "np.minimum(np.maximum({}, {}), {})", 27: "arithmetic.exp({})", 28: "arithmetic.log({})",
             50: "arithmetic.fma({}, {}, {})"}
_UNPACK_HALF, _POINTER = 62, Type("pointer", 0)
_ATOMICS = {Op.AtomicLoad: "load", Op.AtomicAnd: "and", Op.AtomicOr: "or"}


def in_tuple(parts: Iterable[str]) -> str:
    return f"({''.join(f'{part}, ' for part in parts)})"


@dataclass(frozen=True)
class Pointer:
    """A SPIR-V pointer. base: the variable, in Python. in_memory: whether that is in a buffer or shared memory. If so, offset
    is an expression for the place there, in units (words or halves); else path has expressions of indices into its value.
    is_coherent: other waves may change or see the memory, so that each load reads it again. label: its name in reports.
    """

    base: str
    type: Type
    in_memory: bool = False
    path: tuple[str, ...] = ()
    offset: str = "0"
    is_coherent: bool = False
    label: str = ""


def shape(type_: Type) -> str:
    """Return a Python expression for a type's shape, from which `fill` makes a value: a scalar's kind, or a tuple of shapes."""
    if type_.kind == "struct":
        return in_tuple(map(shape, type_.members))
    return f"({shape(type_.element)},) * {type_.count}" if type_.element else repr(type_.kind)


@dataclass
class Writer:
    """State that the writers of a module's functions share. waits: other waves may run at accesses. constants: Python names by
    type and bits. blocks: each function's blocks in order. waiting: the functions in which other waves may run.
    """

    module: Module
    waits: bool
    lines: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    constants: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.blocks = {id_: function.ordered() for id_, function in self.module.functions.items()}
        alive = {id_: [instruction for block in self.blocks[id_] for instruction in function.blocks[block]]
                 for id_, function in self.module.functions.items()}
        self.waiting = {id_ for id_, found in alive.items() if any(map(self._may_wait, found))}
        while more := {id_ for id_, found in alive.items() for one in found
                       if one.op == Op.FunctionCall and one.operands[0] in self.waiting} - self.waiting:
            self.waiting |= more

    def _may_wait(self, instruction: Instruction) -> bool:
        """Whether other waves may run at this instruction. Computing an address in a coherent buffer counts as an access."""
        op, pointer = instruction.op, instruction.operands[0] if instruction.operands else 0
        return op == Op.ControlBarrier or (self.waits and (
            Op.AtomicLoad <= op <= Op.AtomicOr or (op == Op.AccessChain and self.module.is_coherent(pointer))))

    def constant(self, type_: Type, value: Any) -> str:
        if isinstance(value, list):
            return in_tuple(self.constant(*part) for part in value)
        kind = {"u32": "uint32", "i32": "int32", "f32": "float32"}.get(type_.kind)
        return self.constants.setdefault((kind, value), f"k{len(self.constants)}") if kind else f"np.{bool(value)}_"

    def first_value(self, variable: int, type_: Type | None) -> str:
        assert type_ is not None
        initial = self.module.initial.get(variable)
        return self.constant(*self.module.constants[initial]) if initial else f"fill(wave.pattern, {shape(type_)})"


class InstructionWriter:
    """Writes the instructions of one function as Python."""

    def __init__(self, writer: Writer, name: str) -> None:
        self.writer, self.module, self.name, self.depth = writer, writer.module, name, 0
        self.types: dict[int, Type] = {}
        self.pointers: dict[int, Pointer] = {}
        # Products that may be contracted with a sum, by the id that has their value. A variable's hold until the block ends
        self.products: dict[int, Instruction | None] = {}

    def line(self, text: str) -> None:
        self.writer.lines.append(" " * self.depth + text)

    def place(self, what: str) -> int:
        """Record a place in the code, so that reports can name it. Returns the place's number. what: its description."""
        self.writer.places.append(f"{what} in {self.name}")
        return len(self.writer.places) - 1

    def value(self, id_: int) -> str:
        return self.writer.constant(*self.module.constants[id_]) if id_ in self.module.constants else f"x{id_}"

    def type_of(self, id_: int) -> Type:
        return self.module.constants[id_][0] if id_ in self.module.constants else self.types[id_]

    def component(self, id_: int, at: str, kind: str = "") -> str:
        """Return a Python expression for a scalar or a vector's component. at: "[n]". kind: the type to view it as."""
        type_ = self.type_of(id_)
        found = self.value(id_) + (at if type_.kind == "vector" else "")
        return found if kind in ("", type_.scalar) else f"{found}.view({NUMPY[kind]})"

    def each(self, type_: Type, write: Callable[[str], str]) -> str:
        """Return a Python expression for a value of a type. write: makes a component's from "[n]", or a scalar's from ""."""
        return in_tuple(write(f"[{n}]") for n in range(type_.count)) if type_.kind == "vector" else write("")

    def wait(self, is_seen: bool = True) -> None:
        if self.writer.waits and is_seen:
            self.line("yield None")

    def instruction(self, instruction: Instruction) -> None:
        op, result, operands = instruction.op, instruction.result, instruction.operands
        if instruction.type is not None:
            self.types[result] = instruction.type
        if op == Op.AccessChain:
            self.pointers[result] = self._chain(self.pointer(operands[0]), operands[1:])
        elif op == Op.Store:
            self._store(self.pointer(operands[0]), operands[1])
            self.products[operands[0]] = self.products.get(operands[1])
        elif op == Op.ControlBarrier:
            scopes = ", ".join(str(self.module.number(operand)) for operand in operands)
            self.line(f"yield ({self.place('barrier')}, m, {scopes})")
        else:
            self.line(f"x{result} = {self._computed(instruction)}")
            if op == Op.FMul and Decoration.NoContraction not in self.module.decorations.get(result, ()):
                self.products[result] = instruction
            elif op == Op.Load:
                self.products[result] = self.products.get(operands[0])

    def _computed(self, instruction: Instruction) -> str:
        op, operands, type_ = instruction.op, instruction.operands, instruction.type
        assert type_ is not None
        value = self.value
        if op == Op.Variable:
            return f"[{self.writer.first_value(instruction.result, type_.element)}]"
        if op == Op.Load:
            return self._load(self.pointer(operands[0]), type_)
        if op in _ATOMICS:
            return self._atomic(_ATOMICS[op], self.pointer(operands[0]), *operands[2:])
        if op == Op.FunctionCall:
            is_value = [x in self.module.constants or self.types.get(x, _POINTER).kind != "pointer" for x in operands[1:]]
            given = [value(x) if known else self.pointer(x).base for x, known in zip(operands[1:], is_value)]
            call = f"f{operands[0]}({', '.join(['wave', 'm', *given])})"
            return f"yield from {call}" if operands[0] in self.writer.waiting else call
        if op in (Op.FAdd, Op.FSub) and Decoration.NoContraction not in self.module.decorations.get(instruction.result, ()):
            return self.each(type_, lambda at: self._sum(instruction, at))
        if op in _FORMS:
            form, kind = _FORMS[op]
            place = self.place(op.name) if "{place}" in form else None
            back = f".view({NUMPY['i32']})" if (kind, type_.scalar) == ("u32", "i32") else ""
            return self.each(type_, lambda at: f"({form}){back}".format(
                *(self.component(operand, at, kind) for operand in operands), place=place))
        if op == Op.ExtInst and operands[1] == _UNPACK_HALF:
            return f"arithmetic.unpack_half({value(operands[2])})"
        if op == Op.ExtInst:
            return self.each(type_, lambda at: _EXTENDED[operands[1]].format(*(self.component(x, at) for x in operands[2:])))
        if op == Op.Bitcast:
            return self.each(type_, lambda at: self.component(operands[0], at, type_.scalar))
        if op == Op.CompositeConstruct:
            return in_tuple(f"*{value(x)}" if type_.kind == self.type_of(x).kind == "vector" else value(x) for x in operands)
        if op == Op.CompositeExtract:
            return value(operands[0]) + "".join(f"[{index}]" for index in operands[1:])
        if op == Op.VectorShuffle:
            both = f"(*{value(operands[0])}, *{value(operands[1])})"
            return in_tuple(f"{both}[{n}]" for n in operands[2:])
        if op == Op.VectorExtractDynamic:
            return f"pick(wave, {value(operands[0])}, {self.component(operands[1], '', 'u32')}, m, {self.place('a component')})"
        if op == Op.All:
            return " & ".join(f"{value(operands[0])}[{n}]" for n in range(self.type_of(operands[0]).count))
        if op in (Op.IAddCarry, Op.ISubBorrow):
            return f"{'add_carry' if op == Op.IAddCarry else 'sub_borrow'}({value(operands[0])}, {value(operands[1])})"
        raise NotImplementedError(f"{op.name} in {self.name}")

    def _sum(self, instruction: Instruction, at: str) -> str:
        """Return a Python expression for a sum or difference. If an operand is a product, the device may fuse the two."""
        a, b = instruction.operands
        plain = _FORMS[instruction.op][0].format(self.component(a, at), self.component(b, at))
        product, other = (self.products[a], b) if self.products.get(a) else (self.products.get(b), a)
        if product is None:
            return plain
        (x, y), added = (self.component(operand, at) for operand in product.operands), self.component(other, at)
        if instruction.op == Op.FSub:
            x, added = (x, f"-{added}") if other == b else (f"-{x}", added)
        place = self.place("a product and a sum")
        return f"(arithmetic.fused({x}, {y}, {added}) if arithmetic.contracts({place}) else {plain})"

    # Pointers

    def pointer(self, id_: int) -> Pointer:
        if id_ in self.pointers:
            return self.pointers[id_]
        type_, storage = self.module.variables.get(id_) or (self.types[id_], Storage.Function)
        assert type_.element is not None
        base = {Storage.Private: f"wave.privates[{id_}]", Storage.PushConstant: "wave.push", Storage.Function: f"x{id_}",
                Storage.Input: f"wave.inputs[{self.module.decorations.get(id_, {}).get(Decoration.BuiltIn)}]"}.get(storage)
        return Pointer(base or f"wave.memories[{id_}]", type_.element, base is None, label=self.module.names.get(id_, ""))

    def _chain(self, pointer: Pointer, indices: list[int]) -> Pointer:
        for index in indices:
            type_, text = pointer.type, ""
            number = self.module.number(index) if index in self.module.constants else 0
            inner = type_.members[number] if type_.kind == "struct" else type_.element
            assert inner is not None
            if not pointer.in_memory:
                text = str(number) if index in self.module.constants else self.component(index, "", "u32")
                pointer = replace(pointer, type=inner, path=(*pointer.path, text))
                continue
            if type_.kind == "struct":
                has = self.module.decorations.get((type_.id, number), {})
                if Decoration.Offset in has:  # the struct of a buffer's block
                    pointer = replace(pointer, is_coherent=bool(COHERENT & {*has}), label=self.module.names[type_.id, number])
                text = str(has.get(Decoration.Offset, sum(4 * member.words for member in type_.members[:number])) // 4)
            else:
                stride = self.module.decorations.get(type_.id, {}).get(Decoration.ArrayStride, 4 * inner.words)
                step = 1 if inner.kind == "u16" else stride // 4  # units of memory, which are words or halves
                dynamic = f"{self.component(index, '', 'u32')}.astype(np.int64) * {step}"
                text = str(number * step) if index in self.module.constants else dynamic.removesuffix(" * 1")
            parts = [part for part in (pointer.offset, text) if part != "0"]
            pointer = replace(pointer, type=inner, offset=" + ".join(parts) or "0")
        return pointer

    def _load(self, pointer: Pointer, type_: Type) -> str:
        if not pointer.in_memory:
            found = pointer.base if pointer.base.startswith(("wave.push", "wave.inputs")) else f"{pointer.base}[0]"
            for index in pointer.path:
                place = self.place("an element")
                found = f"{found}[{index}]" if index.isdigit() else f"pick(wave, {found}, {index}, m, {place})"
            return found
        self.wait(pointer.is_coherent)
        place = self.place(f"load of {pointer.label}")
        self.line(f"w = {pointer.base}.load(wave, {pointer.offset}, {type_.count or 1}, m, {place}, {pointer.is_coherent})")
        convert = {"bool": " != 0", "u16": "", "u32": ""}.get(type_.scalar, f".view({NUMPY[type_.scalar]})")
        return self.each(type_, lambda at: f"w{at or '[0]'}{convert}")

    def _store(self, pointer: Pointer, value: int) -> None:
        if not pointer.in_memory:
            cell = f"{pointer.base}[0]"
            place, mask = self.place("an element"), "m"
            if pointer.base.startswith("x") and not pointer.path:  # once written, lanes outside the mask never read it
                mask = "None" if pointer.label == "param" else "(None if m is entered else m)"
            self.line(f"{cell} = put(wave, {cell}, {in_tuple(pointer.path)}, {self.value(value)}, {mask}, {place})")
            return
        self.wait(pointer.is_coherent)
        convert = {"u16": "", "u32": "", "bool": ".astype(np.uint32)"}.get(pointer.type.scalar, ".view(np.uint32)")
        parts = [self.component(value, f"[{n}]") + convert for n in range(pointer.type.count or 1)]
        place = self.place(f"store to {pointer.label}")
        self.line(f"{pointer.base}.store(wave, {pointer.offset}, {in_tuple(parts)}, m, {place})")

    def _atomic(self, name: str, pointer: Pointer, semantics: int, value: int | None = None) -> str:
        self.wait()
        if self.module.number(semantics):
            raise NotImplementedError("an atomic that orders others")
        place, operand = self.place(f"atomic {name} of {pointer.label}"), None if value is None else self.value(value)
        return f"{pointer.base}.atomic(wave, '{name}', {pointer.offset}, {operand}, m, {place})"
