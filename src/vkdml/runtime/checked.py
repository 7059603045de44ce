"""Executions of DirectML's operators with a check of what they compute, for the recorders of a Device(verify=...)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .buffers import Bound
from .commands import Commands
from .compiled import CompiledOperator, Recordable
from .verification import verify


def record_checked(commands: Commands, node: Recordable) -> None:
    """As CompiledOperator.record. Outputs may be in place of inputs, and what comes later may write to both: so the inputs are
    kept before, and the check follows at once.
    """
    compiled, bound = node.compiled, node.bound
    problem = compiled.computed
    before: dict[str, np.ndarray] = {}
    inputs = {field: bound[field] for field in problem.inputs if field in bound}
    commands.call(lambda: before.update(_memory(compiled, inputs)))
    memory = {**compiled.record(commands, bound, node.temporary, node.persistent), **bound}
    outputs = {field: memory[field] for field in problem.outputs if problem.has(field)}
    owned = compiled.packed_within(node.persistent).owned

    def check() -> None:
        verify(compiled.gpu, problem, compiled.plan, {**owned, **before, **_memory(compiled, outputs)})

    commands.call(check)


def record_initialization_checked(commands: Commands, node: Recordable) -> None:
    """As CompiledOperator.record_initialization. What it packs is kept, as no execution binds it."""
    given = {field: node.bound[field] for field in node.compiled.problem.initialized}
    for packed in node.compiled.record_initialization(commands, given, node.persistent):
        commands.call(lambda owned=packed.owned: owned.update(_memory(node.compiled, given)))  # type: ignore[misc]


def _memory(compiled: CompiledOperator, bound: Mapping[str, Bound]) -> dict[str, np.ndarray]:
    """The bytes of tensors that the device has."""
    return {field: part.buffer.download((compiled.computed.tensor(field).size_in_bytes,), np.uint8, part.offset)
            for field, part in bound.items()}
