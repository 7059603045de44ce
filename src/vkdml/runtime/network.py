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
from .shared import Pool


@dataclass(frozen=True)
class Node:
    """An operator in a network (DML_OPERATOR_GRAPH_NODE_DESC), and the network's name for each of its tensors, by field.

    Tensors of one name are one buffer.
    """

    operator: Operator
    names: Mapping[str, str]


class WeightPacker:
    """Packs the weights of a compiled operator, again when they have changed."""

    def __init__(self, device: Device, compiled: CompiledOperator) -> None:
        self.packed = compiled.packed
        self._buffers = {field: device.create_buffer(compiled.problem.tensor(field).size_in_bytes)
                         for field in _weight_fields(compiled)}
        self._contents: dict[str, np.ndarray] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._recorder = device.create_command_recorder()
        for buffer in self._buffers.values():
            self._recorder.record_upload(buffer)
        _record(device, self._recorder, device.create_operator_initializer(compiled), self._buffers)

    def update(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Pack the arrays, by field, unless their contents are packed already."""
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
        return np.array_equal(_words(array), self._contents[field])


class NetworkCache:
    """What networks that differ in T and B only have in common: packed weights, and pools of buffers and kernels."""

    def __init__(self) -> None:
        self._packers: WeakValueDictionary[Any, WeightPacker] = WeakValueDictionary()
        self._pools: dict[tuple[Gpu, int | None], Pool] = {}

    def packer(self, device: Device, index: int, compiled: CompiledOperator) -> WeightPacker:
        """Of the node with this index, whose compiled operator gets its share of everything."""
        key = (device, index, repr(compiled.plan.initialize))
        packer = self._packers.get(key) or WeightPacker(device, compiled)
        self._packers[key] = packer
        compiled.share(packer.packed, self._pool(compiled.gpu, index))
        return packer

    def buffer(self, gpu: Gpu, name: str, size: int) -> Buffer:
        """For the tensors of a name."""
        return self._pool(gpu, None).buffer(name, size)

    def _pool(self, gpu: Gpu, index: int | None) -> Pool:
        """The node's, or for None the network's own."""
        return self._pools.setdefault((gpu, index), Pool(gpu))

    def __len__(self) -> int:
        """Sets of packed weights that are in use."""
        return len(self._packers)


class Network:
    """Nodes in the order of their execution, compiled, with a buffer for each name and recorded commands.

    A name that is no node's output is an input. A node's weights are packed when they change, or, where a node computes one of
    them, at each execution.

    cache: of networks with the same nodes and equal weights, but for T and B.
    """

    def __init__(self, device: Device, nodes: Sequence[Node], outputs: Iterable[str], options: Options = Options(),
                 cache: NetworkCache | None = None) -> None:
        self.device = device
        self._outputs = tuple(outputs)
        self._nodes = [(device.compile_operator(node.operator, options=options), node.names) for node in nodes]
        computed = {names[field] for compiled, names in self._nodes for field in compiled.output_fields if field in names}
        self._packers = self._make_packers(computed, cache)
        sizes = self._buffer_sizes()
        gpu = self._nodes[0][0].gpu
        self._buffers = {name: device.create_buffer(size) if cache is None else cache.buffer(gpu, name, size)
                         for name, size in sizes.items()}
        self._inputs = sorted(sizes.keys() - computed)
        self._execution: CommandRecorder | None = None

    def _make_packers(self, computed: set[str], cache: NetworkCache | None) -> dict[int, WeightPacker]:
        """By the index of each node that has weights, none of them computed."""
        packers = {}
        for index, (compiled, names) in enumerate(self._nodes):
            weights = {names[field] for field in _weight_fields(compiled)}
            if weights and computed.isdisjoint(weights):
                packers[index] = (WeightPacker(self.device, compiled) if cache is None
                                  else cache.packer(self.device, index, compiled))
        return packers

    def _buffer_sizes(self) -> dict[str, int]:
        """Bytes by name. What a packer takes has a buffer there."""
        sizes: dict[str, int] = {}
        for index, (compiled, names) in enumerate(self._nodes):
            in_packer = _weight_fields(compiled) if index in self._packers else []
            for field, name in names.items():
                if field not in in_packer:
                    sizes[name] = max(sizes.get(name, 0), compiled.problem.tensor(field).size_in_bytes)
        return sizes

    def run(self, values: Mapping[str, np.ndarray], results: Mapping[str, tuple[Sequence[int], Any]]) -> dict[str, np.ndarray]:
        """Execute on arrays by name: of the inputs and the weights, each contiguous or with its descriptor's strides.

        Weights are taken to be unchanged where the array is the one of the last call and nobody can write to it. results:
        shapes and dtypes of the outputs to return.

        Raises InvalidArgumentError for sequence lengths above T, and DriverError when the driver fails.
        """
        with self.device.lock:
            for index, packer in self._packers.items():
                compiled, names = self._nodes[index]
                packer.update({field: values[names[field]] for field in _weight_fields(compiled)})
            for name in self._inputs:
                self._buffers[name].write(flat(values[name]))
            if self._execution is None:
                self._execution = self._record_execution()
            self._execution.execute()
            return {name: self._buffers[name].read(shape, dtype) for name, (shape, dtype) in results.items()}

    def _record_execution(self) -> CommandRecorder:
        """Upload the inputs, run all nodes, and read back the outputs."""
        recorder = self.device.create_command_recorder()
        for name in self._inputs:
            recorder.record_upload(self._buffers[name])
        for index, (compiled, names) in enumerate(self._nodes):
            buffers = {field: self._buffers[name] for field, name in names.items() if name in self._buffers}
            if _weight_fields(compiled) and index not in self._packers:
                _record(self.device, recorder, self.device.create_operator_initializer(compiled), buffers)
            _record(self.device, recorder, compiled, buffers)
        for name in self._outputs:
            recorder.record_readback(self._buffers[name])
        return recorder


def _weight_fields(compiled: CompiledOperator) -> list[str]:
    """The inputs that an initializer takes."""
    return [field for field in compiled.problem.initialized if compiled.problem.has(field)]


def _record(device: Device, recorder: CommandRecorder, dispatchable: Dispatchable, buffers: Mapping[str, Buffer]) -> None:
    """Record a dispatch with what it takes of the buffers, which are by field."""
    table = device.create_binding_table(dispatchable)
    bound = {field: buffers[field] for field in table.missing()}
    table.bind_inputs([bound.get(field) for field in table.compiled.input_fields])
    table.bind_outputs([bound.get(field) for field in table.compiled.output_fields])
    recorder.record_dispatch(dispatchable, table)


def _is_frozen(array: Any) -> bool:
    """Whether nobody can write to an array, nor to one that it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None


def _words(array: np.ndarray) -> np.ndarray:
    """An array's memory as whole numbers, so that NaN equals NaN and 0 does not equal -0."""
    array = flat(array)
    return array.view(f"u{array.itemsize}")
