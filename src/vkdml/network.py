"""Operators on one device that hand tensors to each other there: what the numpy functions, PyTorch's modules and PyDirectML's
graphs run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arguments import flat
from .operator import CommandRecorder, CompiledOperator, Device, Dispatchable, Operator
from .schedule import Options


@dataclass(frozen=True)
class Step:
    """An operator, and the name of the value that each of its tensors is. What has one name is one buffer."""

    operator: Operator
    names: Mapping[str, str]


class Network:
    """Compiled steps in the order of their execution, with buffers for all values, the packed weights and recorded commands.

    A value that no step makes is an input. Weights that are inputs are packed when they change, and others, which a step
    makes, at each execution.
    """

    def __init__(self, device: Device, steps: Sequence[Step], outputs: Iterable[str], options: Options = Options()) -> None:
        self.device = device
        self._steps = [(device.compile_operator(step.operator, options=options), step.names) for step in steps]
        tensors = [(compiled, field, name) for compiled, names in self._steps for field, name in names.items()]
        sizes: dict[str, int] = {}
        for compiled, field, name in tensors:
            sizes[name] = max(sizes.get(name, 0), compiled.problem.tensor(field).size_in_bytes)
        self._buffers = {name: device.create_buffer(size) for name, size in sizes.items()}
        made = {name for compiled, field, name in tensors if field in compiled.output_fields}
        weights = {name for compiled, field, name in tensors if field in compiled.problem.initialized}
        taken = {name for compiled, field, name in tensors
                 if field in compiled.input_fields and field not in compiled.problem.initialized}
        self._packs_anew = not made.isdisjoint(weights)
        self._weights = weights - made
        self._inputs = (taken | weights if self._packs_anew else taken) - made
        self._outputs = tuple(outputs)
        self._packed: dict[str, np.ndarray] = {}
        self._given: dict[str, np.ndarray] = {}
        self._initialize = self._record_initialization()
        self._execute: CommandRecorder | None = None

    def run(self, values: Mapping[str, np.ndarray], results: Mapping[str, tuple[Sequence[int], Any]]) -> dict[str, np.ndarray]:
        """Execute on the inputs' arrays, each contiguous or with its descriptor's strides.

        A read-only array that was given before is taken to be unchanged. results: shapes and dtypes of the outputs to return.

        Raises DriverError when the driver fails.
        """
        with self.device.lock:
            if not self._packs_anew:
                self._pack({name: values[name] for name in self._weights})
            for name in self._inputs:
                self._buffers[name].write(flat(values[name]))
            self._execute = self._execute or self._record_execution()
            self._execute.execute()
            return {name: self._buffers[name].read(shape, dtype) for name, (shape, dtype) in results.items()}

    def _pack(self, weights: dict[str, np.ndarray]) -> None:
        """Initialize the operators, unless these very weights are packed already."""
        if self._packed and all((array is self._given[name] and not array.flags.writeable)
                                or np.array_equal(_words(array), self._packed[name]) for name, array in weights.items()):
            return
        for name, array in weights.items():
            self._buffers[name].write(flat(array))
        self._packed = {}  # stays so if the driver fails
        self._initialize.execute()
        self._packed = {name: _words(array).copy() for name, array in weights.items()}
        self._given = weights

    def _record_initialization(self) -> CommandRecorder:
        recorder = self.device.create_command_recorder()
        for name in sorted(self._weights):
            recorder.record_upload(self._buffers[name])
        if not self._packs_anew:
            for compiled, names in self._steps:
                self._dispatch(recorder, compiled, self.device.create_operator_initializer(compiled), names)
        return recorder

    def _record_execution(self) -> CommandRecorder:
        """Upload the inputs, run all steps, and read back the outputs."""
        recorder = self.device.create_command_recorder()
        for name in sorted(self._inputs):
            recorder.record_upload(self._buffers[name])
        for compiled, names in self._steps:
            if self._packs_anew:
                self._dispatch(recorder, compiled, self.device.create_operator_initializer(compiled), names)
            self._dispatch(recorder, compiled, compiled, names)
        for name in self._outputs:
            recorder.record_readback(self._buffers[name])
        return recorder

    def _dispatch(self, recorder: CommandRecorder, compiled: CompiledOperator, dispatchable: Dispatchable,
                  names: Mapping[str, str]) -> None:
        table = self.device.create_binding_table(dispatchable)
        bound = {field: self._buffers[names[field]] for field in table.missing()}
        table.bind_inputs([bound.get(field) for field in compiled.input_fields])
        table.bind_outputs([bound.get(field) for field in compiled.output_fields])
        recorder.record_dispatch(dispatchable, table)


def _words(array: np.ndarray) -> np.ndarray:
    """An array's memory as whole numbers, by which NaN equals NaN."""
    array = flat(array)
    return array.view(f"u{array.itemsize}")
