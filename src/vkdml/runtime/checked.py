"""Executions of DirectML's operators with a check of what they compute, for the recorders of a Device(verify=...)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .buffers import Buffer
from .commands import Commands
from .compiled import CompiledOperator
from .verification import verify


def record_checked(commands: Commands, compiled: CompiledOperator, bound: Mapping[str, Buffer]) -> None:
    """As `compiled.record`. Outputs may be in place of inputs, and what comes later may write to both: so the inputs are kept
    before, and the check follows at once.
    """
    problem = compiled.computed
    before: dict[str, np.ndarray] = {}
    inputs = {field: bound[field] for field in problem.inputs if field in bound}
    commands.call(lambda: before.update(_memory(compiled, inputs)))
    compiled.record(commands, bound)
    buffers = {**compiled.scratch_buffers(), **bound}
    outputs = {field: buffers[field] for field in problem.outputs if problem.has(field)}

    def check() -> None:
        verify(compiled.gpu, problem, compiled.plan, {**compiled.owned, **before, **_memory(compiled, outputs)})

    commands.call(check)


def record_owned(commands: Commands, compiled: CompiledOperator, bound: Mapping[str, Buffer]) -> None:
    """Keep what an initializer packs, as no execution binds it."""
    given = dict(bound)
    commands.call(lambda: compiled.owned.update(_memory(compiled, given)))


def _memory(compiled: CompiledOperator, buffers: Mapping[str, Buffer]) -> dict[str, np.ndarray]:
    """The bytes of tensors that the device has. The host's copies stay as they are."""
    memory = {}
    for field, buffer in buffers.items():
        size = (compiled.computed.tensor(field).size_in_bytes,)
        of_host = buffer.read(size, np.uint8)
        memory[field] = buffer.download(size, np.uint8)
        if not compiled.gpu.host_memory:
            buffer.write(of_host)
    return memory
