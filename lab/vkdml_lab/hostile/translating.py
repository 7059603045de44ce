"""Translates a SPIR-V module to Python. A function of the kernel becomes one over arrays with an element for each lane of a
wave.

Blocks follow in the order of Function.ordered. Block 7 is behind `if a7 is not False`, where a7 is the mask of the lanes that
have arrived: each branch to the block adds its lanes. So selections, breaks, continues and returns all work alike. A loop is a
`while` around its blocks. Functions that may wait (at a barrier, or where another wave may run) are generators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vkdml_lab.hostile.instructions import InstructionWriter, Writer, shape
from vkdml_lab.hostile.modules import Function, Instruction, Module, Op, Storage


@dataclass(frozen=True)
class Translation:
    """A translated kernel. start: takes a wave, and returns an iterator that runs it. places: names of places in the code."""

    start: Callable[[Any], Any]
    places: list[str]


def translate(module: Module, waits: bool) -> Translation:
    """Translate a kernel to Python. waits: whether other waves may run at each access to memory that waves share."""
    writer = Writer(module, waits)
    for id_, function in module.functions.items():
        FunctionWriter(writer, id_, function).write()
    privates = [f" wave.privates[{id_}] = [{writer.first_value(id_, type_.element)}]"
                for id_, (type_, storage) in module.variables.items() if storage == Storage.Private]
    run = f"{'yield from ' if module.entry in writer.waiting else ''}f{module.entry}(wave, None)"
    lines = ["import numpy as np", "from vkdml_lab.hostile.lanes import *",
             *(f"{name} = np.uint32({bits}).view(np.{kind})" for (kind, bits), name in writer.constants.items()),
             *writer.lines, "def start(wave):", *privates, f" {run}", " yield from ()"]
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<kernel>", "exec"), names)
    return Translation(names["start"], writer.places)


class FunctionWriter(InstructionWriter):
    """Writes a function, with its control flow, as Python. loops: the last block of each loop, by the loop's first block."""

    def __init__(self, writer: Writer, id_: int, function: Function) -> None:
        super().__init__(writer, writer.module.names[id_].split("(")[0])
        self.id, self.function, self.order = id_, function, writer.blocks[id_]
        self.at = {block: number for number, block in enumerate(self.order)}
        at = self.at
        self.sources = {to: [block for block in self.order if to in function.successors(block)] for to in self.order}
        self.loops = {block: source for block in self.order for source in self.sources[block] if at[source] >= at[block]}
        self.around = {block: {header for header, end in self.loops.items() if at[header] <= at[block] <= at[end]}
                       for block in self.order}

    def write(self) -> None:
        blocks = self.function.blocks
        returns = [block for block in self.order if blocks[block][-1].op in (Op.Return, Op.ReturnValue)]
        is_single = len(returns) == 1 and not self.around[returns[0]]
        self.types.update(self.function.parameters)
        self.line(f"def f{self.id}(wave, m{''.join(f', x{id_}' for id_, _ in self.function.parameters)}):")
        self.depth = 1
        self.line(" = ".join(["arithmetic, entered = wave.arithmetic, m; a", *(f"a{block}" for block in self.order[1:]), "False"]))
        for instruction in (one for block in self.order for one in blocks[block] if one.op == Op.Phi and one.type):
            self.types[instruction.result] = instruction.type  # type: ignore[assignment]
            self.line(f"x{instruction.result} = fill(ZEROS, {shape(self.types[instruction.result])})")
        if self.function.type.kind != "void":
            self.line(f"returned = fill(ZEROS, {shape(self.function.type)})")
        guarded, previous, home = 0, 0, dict[int, set[int]]()
        for block in self.order:
            follows = self.sources[block] == [previous] and blocks[previous][-1].op == Op.Branch
            if previous and not follows:
                self.depth -= guarded
                guarded = int(block not in self.loops)
                self.line(f"{'if' if guarded else 'while'} a{block} is not False:")
                self.depth += 1
                self.line(f"m = a{block}; a{block} = False")
            self.products.clear()
            for instruction in blocks[block][:-1]:
                # Lanes that left the loop earlier would see a value of a later iteration
                behind = any(home.get(used, set()) - self.around[block] for used in instruction.operands)
                if behind and instruction.op != Op.Phi:
                    raise NotImplementedError(f"{self.name} uses a loop's value behind the loop")
                if instruction.result:
                    home[instruction.result] = self.around[block]
                if instruction.op not in (Op.LoopMerge, Op.SelectionMerge, Op.Phi):
                    self.instruction(instruction)
            self._leave(block, blocks[block][-1], is_single)
            if block in self.loops.values():
                self.depth, guarded = self.depth - guarded - 1, 0
            previous = block
        self.depth = 1
        self.line("return returned" if self.function.type.kind != "void" and not is_single else "return")

    def _leave(self, block: int, last: Instruction, is_single: bool) -> None:
        if last.op == Op.Branch:
            self._go(block, last.operands[0], "m")
        elif last.op == Op.BranchConditional:
            self.line(f"t, e = split(m, {self.value(last.operands[0])})")
            for target, mask in zip(last.operands[1:3], ("t", "e")):
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
        if len(self.sources[target]) > 1 or self.around[block] - self.around[target]:  # keep lanes of earlier iterations
            self.line(f"a{target} = join(a{target}, {mask})")
        elif mask != "m" or self.at[target] != self.at[block] + 1:
            self.line(f"a{target} = {mask}")
