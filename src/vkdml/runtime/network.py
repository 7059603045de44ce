"""Operators on one device that hand tensors to each other there: what the numpy functions, PyTorch's modules and PyDirectML's
graphs run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..planning.options import Options
from ..spec.arrays import flat
from .device import Buffer, Gpu
from .operator import CommandRecorder, CompiledOperator, Device, Dispatchable, Operator
from .resources import Resources


@dataclass(frozen=True)
class Step:
    """An operator, and the name of the value that each of its tensors is. What has one name is one buffer."""

    operator: Operator
    names: Mapping[str, str]


class Weights:
    """A step's weights, packed when they change."""

    def __init__(self, device: Device, compiled: CompiledOperator) -> None:
        self.packed = compiled.packed
        self._buffers = {field: device.create_buffer(compiled.problem.tensor(field).size_in_bytes)
                         for field in _initialized(compiled)}
        self._contents: dict[str, np.ndarray] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._recorder = device.create_command_recorder()
        for buffer in self._buffers.values():
            self._recorder.record_upload(buffer)
        _record(device, self._recorder, compiled, device.create_operator_initializer(compiled), self._buffers)

    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Pack arrays by field, unless these very weights are packed already."""
        if self._contents and all(self._is_packed(field, arrays[field]) for field in self._buffers):
            return
        for field, buffer in self._buffers.items():
            buffer.write(flat(arrays[field]))
        self._contents = {}  # stays so if the driver fails
        self._recorder.execute()
        self._contents = {field: _words(arrays[field]).copy() for field in self._buffers}
        self._arrays = {field: arrays[field] for field in self._buffers}

    def _is_packed(self, field: str, array: np.ndarray) -> bool:
        if array is self._arrays[field] and _is_frozen(array):
            return True
        return bool((_words(array) == self._contents[field]).all())


class Shared:
    """What networks that differ in T and B only have in common: packed weights, and buffers and kernels for use in turn."""

    def __init__(self) -> None:
        self._weights: WeakValueDictionary[Any, Weights] = WeakValueDictionary()
        self._resources: dict[tuple[Gpu, int], Resources] = {}

    def weights(self, device: Device, k: int, compiled: CompiledOperator) -> Weights:
        """Of step k, whose operator gets its share of everything."""
        key = (device, k, repr(compiled.plan.initialize))
        weights = self._weights.get(key) or Weights(device, compiled)
        self._weights[key] = weights
        compiled.share(weights.packed, self._of(compiled.gpu, k))
        return weights

    def buffer(self, gpu: Gpu, name: str, size: int) -> Buffer:
        """Of a value between the steps."""
        return self._of(gpu, -1).buffer(name, size)

    def _of(self, gpu: Gpu, k: int) -> Resources:
        return self._resources.setdefault((gpu, k), Resources(gpu))

    def __len__(self) -> int:
        return len(self._weights)


class Network:
    """Compiled steps in the order of their execution, with buffers for all values and recorded commands.

    A value that no step makes is an input. A step's weights are packed when they change, or, where a step makes one of them,
    at each execution.

    shared: of networks with the same steps and equal weights, but for T and B.
    """

    def __init__(self, device: Device, steps: Sequence[Step], outputs: Iterable[str], options: Options = Options(),
                 shared: Shared | None = None) -> None:
        self.device = device
        self._outputs = tuple(outputs)
        self._steps = [(device.compile_operator(step.operator, options=options), step.names) for step in steps]
        made = {names[field] for compiled, names in self._steps for field in compiled.output_fields if field in names}
        self._weights: dict[int, tuple[Weights, dict[str, str]]] = {}  # of a step, with its names of them
        sizes: dict[str, int] = {}
        for k, (compiled, names) in enumerate(self._steps):
            given = {field: names[field] for field in _initialized(compiled)}
            if given and made.isdisjoint(given.values()):
                weights = Weights(device, compiled) if shared is None else shared.weights(device, k, compiled)
                self._weights[k] = weights, given
                names = {field: name for field, name in names.items() if field not in given}
            for field, name in names.items():
                sizes[name] = max(sizes.get(name, 0), compiled.problem.tensor(field).size_in_bytes)
        gpu = self._steps[0][0].gpu
        self._buffers = {name: device.create_buffer(size) if shared is None else shared.buffer(gpu, name, size)
                         for name, size in sizes.items()}
        self._inputs = sorted(sizes.keys() - made)
        self._execute: CommandRecorder | None = None

    def run(self, values: Mapping[str, np.ndarray], results: Mapping[str, tuple[Sequence[int], Any]]) -> dict[str, np.ndarray]:
        """Execute on the inputs' arrays, each contiguous or with its descriptor's strides.

        Weights that nobody can write to, and that were given before, are taken to be unchanged. results: shapes and dtypes of
        the outputs to return.

        Raises DriverError when the driver fails.
        """
        with self.device.lock:
            for weights, names in self._weights.values():
                weights.update({field: values[name] for field, name in names.items()})
            for name in self._inputs:
                self._buffers[name].write(flat(values[name]))
            self._execute = self._execute or self._record_execution()
            self._execute.execute()
            return {name: self._buffers[name].read(shape, dtype) for name, (shape, dtype) in results.items()}

    def _record_execution(self) -> CommandRecorder:
        """Upload the inputs, run all steps, and read back the outputs."""
        recorder = self.device.create_command_recorder()
        for name in self._inputs:
            recorder.record_upload(self._buffers[name])
        for k, (compiled, names) in enumerate(self._steps):
            buffers = {field: self._buffers[name] for field, name in names.items() if name in self._buffers}
            if _initialized(compiled) and k not in self._weights:
                _record(self.device, recorder, compiled, self.device.create_operator_initializer(compiled), buffers)
            _record(self.device, recorder, compiled, compiled, buffers)
        for name in self._outputs:
            recorder.record_readback(self._buffers[name])
        return recorder


def _initialized(compiled: CompiledOperator) -> list[str]:
    return [field for field in compiled.problem.initialized if compiled.problem.has(field)]


def _record(device: Device, recorder: CommandRecorder, compiled: CompiledOperator, dispatchable: Dispatchable,
            buffers: Mapping[str, Buffer]) -> None:
    """A dispatch with what it takes of the buffers by field."""
    table = device.create_binding_table(dispatchable)
    bound = {field: buffers[field] for field in table.missing()}
    table.bind_inputs([bound.get(field) for field in compiled.input_fields])
    table.bind_outputs([bound.get(field) for field in compiled.output_fields])
    recorder.record_dispatch(dispatchable, table)


def _is_frozen(array: Any) -> bool:
    """Whether nobody can write to an array, nor to one whose memory it shows."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None


def _words(array: np.ndarray) -> np.ndarray:
    """An array's memory as whole numbers, by which NaN equals NaN."""
    array = flat(array)
    return array.view(f"u{array.itemsize}")
