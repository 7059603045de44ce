"""A module becomes Python: each function of the kernel one over arrays with an element for each lane of a wave.

Blocks follow each other in the module's order, each behind `if a7 is not False`, a7 being the mask of the lanes that have
arrived at it: whoever branches there adds its own. So selections, breaks, continues and returns are all the same. A loop is a
`while` around its blocks. Functions that may wait, at a barrier or where another wave may have its turn, are generators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tools.hostile import instructions
from tools.hostile.modules import Function, Instruction, Module, Op, Storage, Type

PREAMBLE = "import numpy as np\nfrom tools.hostile.lanes import *\n"


@dataclass
class Translation:
    """start: begins the kernel in a wave, as a generator if the kernel waits. places: where in the kernel each number is that
    reports have.
    """

    start: Callable[[Any], Any]
    places: list[str]
    source: str


def translate(module: Module, waits: bool) -> Translation:
    """waits: whether other waves may have their turn at whatever they can see of this one."""
    writer = Writer(module, waits)
    for id_, function in module.functions.items():
        FunctionWriter(writer, id_, function).write()
    privates = [f"    wave.privates[{id_}] = [{writer.first_value(id_, type_.element)}]"
                for id_, (type_, storage) in module.variables.items() if storage == Storage.Private]
    lines = [PREAMBLE, *(f"{name} = np.uint32({bits}).view(np.{kind})" for (kind, bits), name in writer.constants.items()),
             *writer.lines, "def start(wave):", *privates, f"    return f{module.entry}(wave, None)"]
    source = "\n".join(lines)
    names: dict[str, Any] = {}
    exec(compile(source, "<kernel>", "exec"), names)
    return Translation(names["start"], writer.places, source)


@dataclass
class Writer:
    """What all functions of a module share. constants: names of numbers, by type and bits."""

    module: Module
    waits: bool
    lines: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    constants: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.blocks = {id_: function.ordered() for id_, function in self.module.functions.items()}
        self.waiting = self._waiting()

    def constant(self, type_: Type, value: Any) -> str:
        if type_.kind == "bool":
            return f"np.{bool(value)}_"
        if isinstance(value, list):
            return instructions.in_tuple(self.constant(*part) for part in value)
        if value == 0 and type_.kind in ("vector", "array", "struct"):
            return f"fill(ZEROS, {shape(type_)})"
        kind = {"u32": "uint32", "i32": "int32", "f32": "float32"}[type_.kind]
        return self.constants.setdefault((kind, value), f"k{len(self.constants)}")

    def first_value(self, variable: int, type_: Type | None) -> str:
        assert type_ is not None
        if variable in self.module.initial:
            return self.constant(*self.module.constants[self.module.initial[variable]])
        return f"fill(wave.pattern, {shape(type_)})"

    def _waiting(self) -> set[int]:
        """The functions that wait, or call one that does."""
        calls = {id_: {instruction.operands[0] for block in blocks for instruction in self.module.functions[id_].blocks[block]
                       if instruction.op == Op.FunctionCall} for id_, blocks in self.blocks.items()}
        found = {id_ for id_, blocks in self.blocks.items() if any(
            self._may_wait(instruction) for block in blocks for instruction in self.module.functions[id_].blocks[block])}
        while more := {id_ for id_, called in calls.items() if called & found} - found:
            found |= more
        return found

    def _may_wait(self, instruction: Instruction) -> bool:
        if instruction.op == Op.ControlBarrier:
            return True
        # A store is in sight of others when its turn comes; access chains to coherent blocks stand for their loads and stores
        return self.waits and (Op.MemoryBarrier <= instruction.op <= Op.AtomicOr or (instruction.op == Op.AccessChain and (
            self.module.variables.get(instruction.operands[0], (None, None))[1] in (Storage.Uniform, Storage.StorageBuffer)
            and self.module.is_coherent(instruction.operands[0]))))


def shape(type_: Type) -> str:
    """A type as `fill` takes it."""
    if type_.kind == "struct":
        return instructions.in_tuple(map(shape, type_.members))
    if type_.element:
        return f"({shape(type_.element)},) * {type_.count}"
    return repr(type_.kind)


class FunctionWriter(instructions.InstructionWriter):
    """Writes the flow of one function."""

    def __init__(self, writer: Writer, id_: int, function: Function) -> None:
        super().__init__(writer, writer.module.name(id_).split("(")[0])
        self.id, self.function, self.order = id_, function, writer.blocks[id_]
        self.sources: dict[int, list[int]] = {block: [] for block in self.order}
        for block in self.order:
            for target in function.successors(block):
                self.sources[target].append(block)
        # Loops by header: the block that jumps back. One that never does so is none
        self.loops = {block: source for block in self.order for source in self.sources[block]
                      if self.order.index(source) >= self.order.index(block)}
        self.returns = [block for block in self.order if function.blocks[block][-1].op in (Op.Return, Op.ReturnValue)]

    def write(self) -> None:
        blocks, is_single = self.function.blocks, len(self.returns) == 1 and not self._around(self.returns[0])
        self._check_loops()
        for id_, type_ in self.function.parameters:
            self.types[id_] = type_
        self.line(f"def f{self.id}(wave, m{''.join(f', x{id_}' for id_, _ in self.function.parameters)}):")
        self.depth = 1
        self.line("arithmetic = wave.arithmetic")
        for block in self.order[1:]:
            self.line(f"a{block} = False")
        for instruction in self._all(Op.Phi):
            assert instruction.type is not None
            self.types[instruction.result] = instruction.type
            self.line(f"x{instruction.result} = fill(ZEROS, {shape(instruction.type)})")
        if not is_single and self.function.type.kind != "void":
            self.line(f"returned = fill(ZEROS, {shape(self.function.type)})")
        guarded, previous = 0, self.order[0]
        for block in self.order:
            is_loop = block in self.loops
            follows = self.sources[block] == [previous] and blocks[previous][-1].op == Op.Branch
            if block != self.order[0] and (is_loop or not follows):
                self.depth -= guarded
                self.line(f"{'while' if is_loop else 'if'} a{block} is not False:")
                self.depth, guarded = self.depth + 1, 0 if is_loop else 1
                self.line(f"m = a{block}; a{block} = False")
            for instruction in blocks[block][:-1]:
                if instruction.op not in (Op.LoopMerge, Op.SelectionMerge, Op.Phi):
                    self.instruction(instruction)
            self._leave(block, blocks[block][-1], is_single)
            if block in self.loops.values():
                self.depth, guarded = self.depth - guarded - 1, 0
            previous = block
        self.depth = 1
        if not is_single and self.function.type.kind != "void":
            self.line("return returned")

    def _all(self, op: Op) -> list[Instruction]:
        return [instruction for block in self.order for instruction in self.function.blocks[block] if instruction.op == op]

    def _check_loops(self) -> None:
        """What a loop computes is not used behind it: later turns would have changed it for lanes that have left."""
        home: dict[int, set[int]] = {}
        for block in self.order:
            around = self._around(block)
            for instruction in self.function.blocks[block]:
                if instruction.op != Op.Phi and any(not home.get(used, around) <= around for used in instruction.operands):
                    raise NotImplementedError(f"{self.name} uses a loop's value behind the loop")
                if instruction.result:
                    home[instruction.result] = around

    def _around(self, block: int) -> set[int]:
        """The loops that a block is in."""
        at = self.order.index
        return {header for header, end in self.loops.items() if at(header) <= at(block) <= at(end)}

    def _leave(self, block: int, last: Instruction, is_single: bool) -> None:
        if last.op == Op.Branch:
            self._go(block, last.operands[0], "m")
        elif last.op == Op.BranchConditional:
            self.line(f"t, e = split(m, {self.value(last.operands[0])})")
            for target, mask in zip(last.operands[1:3], "te"):
                self._go(block, target, mask)
        elif last.op == Op.ReturnValue:
            value = self.value(last.operands[0])
            self.line(f"return {value}" if is_single else f"returned = merge(m, {value}, returned)")

    def _go(self, block: int, target: int, mask: str) -> None:
        for instruction in self.function.blocks[target]:
            if instruction.op == Op.Phi:
                values = dict(zip(instruction.operands[1::2], instruction.operands[::2]))
                name = f"x{instruction.result}"
                self.line(f"if {mask} is not False: {name} = merge({mask}, {self.value(values[block])}, {name})")
        if len(self.sources[target]) > 1 or self._around(block) - self._around(target):  # of other turns too
            self.line(f"a{target} = join(a{target}, {mask})")
        elif mask != "m" or self.order.index(target) != self.order.index(block) + 1:
            self.line(f"a{target} = {mask}")
