"""Runs a plan on the hostile device: all its dispatches, and the plan's fallback if workgroups gave up waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vkdml_lab.hostile.lanes import DTYPES
from vkdml_lab.hostile.machine import ALL, Behaviour, Machine
from vkdml_lab.hostile.memory import Buffer, Memory
from vkdml_lab.hostile.modules import Decoration, Module, Storage, Type
from vkdml_lab.hostile.ordering import BUFFERS, SHARED, Accesses, Order
from vkdml_lab.hostile.translating import Translation, translate
from vkdml_lab.hostile.weak import Clock, WeakMemory
from vkdml_lab.internals import STATE, Dispatch, PlainProblem, Plan, Problem, load_kernel, of_spirv

# Buffers that workgroups wait for word by word. A word that arrived is its own flag, and no fence orders these words, so their
# accesses count as atomics and not as races.
FLAGS = (STATE,)

_SPINS = "SPINS"  # the constant of a kernel with the polls before a wait gives up
_FIRST_WORDS = (None, 0x7FC12345, 0xFFFFFFFF, 0)  # contents of unwritten memory: noise, a NaN, all bits set, or 0


@dataclass(frozen=True)
class Outcome:
    """The results of a plan. outputs: bytes by field. gave_up: the fallback ran. unwritten: outputs with unwritten elements."""

    outputs: dict[str, np.ndarray]
    gave_up: bool
    unwritten: tuple[str, ...]


@lru_cache(512)
def _translated(kernel: str, values: tuple[int, ...], waits: bool, edited: bytes | None) -> tuple[Any, Module, Translation]:
    loaded = of_spirv(kernel, edited) if edited else load_kernel(kernel)
    module = Module(loaded.specialize(dict(zip(loaded.interface.constant_ids, values))))
    return loaded, module, translate(module, waits)


class Device:
    """A hostile device that runs plans. edits: SPIR-V by kernel, in place of vkdml's own. kernels: names of those that ran."""

    def __init__(self, behaviour: Behaviour, edits: Mapping[str, bytes] = {}) -> None:
        self.behaviour, self.edits = behaviour, edits
        self.random = np.random.default_rng(behaviour.seed)
        self.word = _FIRST_WORDS[self.random.integers(len(_FIRST_WORDS))]
        word = np.uint32(self.random.integers(2**32) if self.word is None else self.word)
        small = {"u16": word.astype(np.uint16), "bool": np.bool_(word & 1)}
        self.pattern = {kind: small[kind] if kind in small else word.view(dtype) for kind, dtype in DTYPES.items()}
        self.kernels: set[str] = set()

    def run(self, problem: Problem | PlainProblem, plan: Plan, arrays: Mapping[str, np.ndarray]) -> Outcome:
        buffers = {}
        for field, tensor in problem.tensors.items():
            if tensor is not None and problem.has(field):
                buffers[field] = Buffer(self._words(-(-tensor.size_in_bytes // 4)))
                if field in arrays:
                    buffers[field].put(arrays[field])
        buffers |= {name: Buffer(self._words(-(-size // 4))) for name, size in plan.buffers.items()}
        flags = buffers[plan.timed_out].words if plan.timed_out else np.zeros(1, np.uint32)
        if plan.timed_out:
            flags[:] = 0
            buffers[plan.timed_out].written[:] = True
        for dispatch in plan.initialize + plan.execute:
            self._dispatch(dispatch, plan, buffers)
        gave_up = bool(flags[0])
        if gave_up:
            flags[:] = 0
            for dispatch in plan.fallback:
                self._dispatch(dispatch, plan, buffers)
        outputs = [field for field in problem.outputs if problem.has(field)]
        return Outcome({field: buffers[field].words.view(np.uint8) for field in outputs}, gave_up,
                       tuple(field for field in outputs if self.behaviour.watches
                             and not self._is_whole(problem, field, buffers[field])))

    @staticmethod
    def _is_whole(problem: Any, field: str, buffer: Buffer) -> bool:
        """Whether all elements of an output were written. Looks only at the first byte of each element."""
        tensor = problem.tensor(field)
        return bool(tensor.view(np.repeat(buffer.written, 2)[::problem.element.itemsize].copy()).all())

    def _words(self, count: int) -> np.ndarray:
        if self.word is None:
            return self.random.integers(0, 2**32, count, np.uint32)
        return np.full(count, self.word, np.uint32)

    def _dispatch(self, dispatch: Dispatch, plan: Plan, buffers: Mapping[str, Buffer]) -> None:
        behaviour = self.behaviour
        self.kernels.add(dispatch.kernel)
        edited = self.edits.get(dispatch.kernel)
        loaded = of_spirv(dispatch.kernel, edited) if edited else load_kernel(dispatch.kernel)
        constants = dispatch.constants | ({_SPINS: behaviour.spins} if dispatch.constants.get(_SPINS) else {})
        values = loaded.values(constants)
        _, module, _ = _translated(dispatch.kernel, values, False, edited)
        names_in_order = loaded.order(dispatch.buffers, "")
        in_buffers = {id_: names_in_order[found[Decoration.Binding]] for id_ in module.variables
                      if Decoration.Binding in (found := module.decorations.get(id_, {}))}
        coherent = {in_buffers[id_] for id_ in in_buffers if module.is_coherent(id_)}
        waits = plan.timed_out in coherent
        flags = FLAGS if waits else ()
        count = int(np.prod(dispatch.groups))
        invocations = count * module.workgroup
        watches = behaviour.watches and not (waits and behaviour.weak)
        order = Order(count, module.workgroup) if watches else None
        clock = Clock(invocations, behaviour.seed) if waits and behaviour.weak else None

        def memory(name: str) -> Memory:
            buffer = buffers.get(name) or Buffer(self._words(4))
            half = any(_has_halves(module.variables[id_][0]) for id_, of_id in in_buffers.items() if of_id == name)
            found = Memory(name, buffer, np.uint16 if half else np.uint32, is_flags=name in flags,
                           may_store=name in dispatch.writes)
            found.accesses = Accesses(order, BUFFERS, len(found.data)) if order else None
            found.weak = WeakMemory(found.data, clock) if clock and name in coherent else None
            return found

        of_name = {name: memory(name) for name in {*in_buffers.values()}}
        memories = {id_: of_name[name] for id_, name in in_buffers.items()}
        for id_, (type_, storage) in module.variables.items():
            if storage == Storage.Workgroup and type_.element:
                units = type_.element.words
                accesses = Accesses(order, SHARED, units * count) if order else None
                memories[id_] = Memory(module.names[id_], Buffer(self._words(units * count)), units=units, accesses=accesses)
        push = tuple(map(np.uint32, loaded.push_words(dispatch.push)))
        machine = Machine(dispatch.kernel, _translated(dispatch.kernel, values, waits, edited)[2], behaviour, memories, push,
                          dispatch.groups, module.workgroup, self.pattern, order, clock)
        machine.run(behaviour.wave or (module.workgroup if waits else ALL))


def _has_halves(type_: Type) -> bool:
    return type_.kind == "u16" or any(map(_has_halves, type_.members)) or bool(type_.element and _has_halves(type_.element))
