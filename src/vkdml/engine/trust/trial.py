"""A problem that is run for what comes of it, on buffers of its own: to time plans, and to test them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...operators.plain_problem import PlainProblem
from ...operators.problem import Problem
from ...planning.plan import Plan
from ..commands import Commands
from ..recording import Attempts, record_dispatches, record_execution
from ..vulkan.gpu import Buffer, Gpu


class Trial:
    """A problem's tensors. arrays: of inputs, by field; the others are zeros, and lengths T. Tensors have no gaps."""

    def __init__(self, gpu: Gpu, problem: Problem | PlainProblem, arrays: Mapping[str, np.ndarray] = {}) -> None:
        self.gpu, self.problem = gpu, problem
        inputs, outputs = ([field for field in fields if problem.has(field)] for fields in (problem.inputs, problem.outputs))
        gpu.memory.free(sum(gpu.bytes_of(problem.tensor(field).size_in_bytes, True) for field in (*inputs, *outputs)))
        self.buffers = {field: Buffer(gpu, problem.tensor(field).size_in_bytes) for field in (*inputs, *outputs)}
        if isinstance(problem, Problem) and problem.has("SequenceLengthsTensor"):
            self.buffers["SequenceLengthsTensor"].write(np.full(problem.batch, problem.steps, np.uint32))
        uploads = Commands(gpu)
        for field in inputs:
            if field in arrays:
                self.buffers[field].write(arrays[field])
            uploads.upload(self.buffers[field])
        uploads.execute()
        self._readbacks = Commands(gpu)
        for field in outputs:
            self._readbacks.readback(self.buffers[field])

    def outputs(self) -> dict[str, np.ndarray]:
        """The bytes of each, by field."""
        self._readbacks.execute()
        return {field: self.buffers[field].read((self.buffers[field].size_in_bytes,), np.uint8)
                for field in self.problem.outputs if field in self.buffers}


class Run:
    """A plan that runs a trial's problem, as often as it is executed. Its weights are packed once."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        flagged = plan.timed_out[0] if plan.timed_out else None
        trial.gpu.memory.free(sum(trial.gpu.bytes_of(size, name == flagged) for name, size in plan.internal.items()))
        own = {name: Buffer(trial.gpu, size, name == flagged) for name, size in plan.internal.items()}
        buffers = {**trial.buffers, **own}
        packing = Commands(trial.gpu)
        record_dispatches(trial.gpu, packing, plan.initialize, buffers)
        packing.execute()
        self._attempts = Attempts()
        self._commands = Commands(trial.gpu)
        record_execution(trial.gpu, self._commands, plan, buffers, self._attempts)

    def execute(self) -> None:
        """Raises DriverError when the driver fails."""
        self._commands.execute()

    @property
    def timeouts(self) -> int:
        """How often."""
        return self._attempts.timeouts

    @property
    def timed_out(self) -> bool:
        """Ever."""
        return self.timeouts > 0
