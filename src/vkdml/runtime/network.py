"""Operators on one device that hand tensors to each other there: what the numpy functions, PyTorch's modules and PyDirectML's
graphs run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..planning.options import Options
from ..spec.arrays import flat
from ..spec.problem import Problem
from ..spec.verification import SEQUENCE, with_sequence
from .carried import Carried
from .commands import Commands
from .compiled import choose_within
from .device import Buffer
from .layout import Layout
from .operator import Device, Operator
from .scratch import Place, Scratch, buffer_at
from .store import Lease
from .values import check_values_before
from .verification import verify
from .weights import Snapshot, WeightKeeper


@dataclass(frozen=True)
class Node:
    """An operator in a network (DML_OPERATOR_GRAPH_NODE_DESC), and the network's name for each of its tensors, by field.

    Tensors of one name are one buffer.
    """

    operator: Operator
    names: Mapping[str, str]


class Network:
    """Nodes in the order of their execution, compiled for a device.

    A name that is no node's output is an input. A node's weights are packed when they change, or, where a node computes one of
    them, at each execution. Pipelines, packed weights and buffers are those of all networks of the device: a network has only
    its recorded commands for itself.

    keeper: of networks with the same nodes, but for T and B. carried: inputs by the names of outputs that they become: what an
    execution leaves there the next one begins with. At first they are zeros. carrier: a network that carries the same tensors:
    both go on where either ended.
    """

    def __init__(self, device: Device, nodes: Sequence[Node], outputs: Iterable[str], options: Options = Options(),
                 keeper: WeightKeeper | None = None, carried: Mapping[str, str] = {},
                 carrier: Network | None = None) -> None:
        self.device = device
        if device.verify:
            nodes = [_verifiable(index, node) for index, node in enumerate(nodes)]
        self._nodes = [(device.compile_operator(node.operator, options=options), node.names) for node in nodes]
        self._gpu = self._nodes[0][0].gpu
        self._name = self._nodes[0][0].problem.operator  # in errors
        self._keeper = keeper or WeightKeeper()
        self._lease = Lease(self._gpu.store, self._let_go)
        computed = {names[field] for compiled, names in self._nodes for field in compiled.output_fields if field in names}
        weights = {index: {field: names[field] for field in compiled.weight_fields}
                   for index, (compiled, names) in enumerate(self._nodes)}
        self._given = {index: fields for index, fields in weights.items() if fields and computed.isdisjoint(fields.values())}
        self._weight_names = {name for fields in self._given.values() for name in fields.values()}
        self._sizes = self._buffer_sizes()
        self._inputs = sorted(self._sizes.keys() - computed - set(carried.values()))
        # By the host, after each execution: where calls are checked, all
        self._read = sorted(self._sizes.keys() - set(self._inputs)) if device.verify else list(outputs)
        self._carried: Carried = carrier._carried if carrier else Carried(device, carried, self._sizes)
        self._let_go()

    def _let_go(self) -> None:
        """Of what is in the store."""
        self._layout: Layout | None = None
        self._buffers: dict[str, Buffer] = {}
        self._packed: dict[int, _Packed] = {}
        self._commands: dict[int, Commands] = {}  # by the turn of what is carried

    def _buffer_sizes(self) -> dict[str, int]:
        """Bytes by name. Weights that are packed before have a buffer meanwhile only."""
        sizes: dict[str, int] = {}
        for index, (compiled, names) in enumerate(self._nodes):
            before = self._given.get(index, {})
            for field, name in names.items():
                if field not in before:
                    sizes[name] = max(sizes.get(name, 0), compiled.problem.tensor(field).size_in_bytes)
        return sizes

    def run(self, values: Mapping[str, np.ndarray], results: Mapping[str, tuple[Sequence[int], Any]]) -> dict[str, np.ndarray]:
        """Execute on arrays by name: of the inputs and the weights, each contiguous or with its descriptor's strides.

        Weights are taken to be unchanged where a node's are left out. results: shapes and dtypes of the outputs to return.

        Raises InvalidArgumentError for sequence lengths above T, and for more than the device has room for, before anything is
        made; DriverError when the driver fails; and VerificationError where the call is checked and the results are wrong.
        """
        with self.device.lock:
            commands = self._prepared(values)
            for name in self._inputs:
                self._buffers[name].write(flat(values[name]))
            commands.execute()
            if self.device.share.has_next():
                self._verify()
            self._carried.advance()
            return {name: self._buffers[name].read(shape, dtype) for name, (shape, dtype) in results.items()}

    def prepare(self, weights: Mapping[str, np.ndarray]) -> None:
        """Pack the weights, by name, and make all that a run with them needs."""
        with self.device.lock:
            for _ in range(self._carried.turns):
                self._prepared(weights).prepare()
                self._carried.advance()

    def write(self, name: str, array: np.ndarray) -> None:
        """Of a carried tensor, either name. Raises what Buffer.upload raises."""
        self._carried.current(name).upload(array)

    def read(self, name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Of a carried tensor, either name. Raises what Buffer.download raises."""
        return self._carried.current(name).download(shape, dtype)

    def _prepared(self, values: Mapping[str, np.ndarray]) -> Commands:
        """The commands, with the weights in `values` packed."""
        if not self._commands:  # what is made to choose may take the place of what this network has
            self._layout = self._chosen_layout()
        self._lease.renew()
        turn = self._carried.turn
        if turn not in self._commands or not self._weight_names.isdisjoint(values):
            for index in self._given:
                self._pack(index, values)
        if turn not in self._commands:
            self._commands[turn] = self._record()
        return self._commands[turn]

    # Memory

    def _chosen_layout(self) -> Layout:
        """Decides on the plans. Raises InvalidArgumentError, before anything is made, for more than the device has room for."""
        choose_within(self._gpu, [compiled for compiled, _ in self._nodes], lambda: self._laid_out().sizes(self._gpu))
        layout = self._laid_out()
        self._gpu.memory.expect_room(self._name, layout.sizes(self._gpu))
        return layout

    def _laid_out(self) -> Layout:
        """By the plans of now."""
        on_host, carried = {*self._inputs, *self._read}, self._carried.buffers()
        scratch = Scratch(self._gpu.info.max_storage_buffer_range)
        tensors = {name: scratch.place(size, name in on_host) for name, size in self._sizes.items() if name not in carried}
        own, packing, kept = [], {}, Counter[str]()
        for index, (compiled, _) in enumerate(self._nodes):
            packed, needed = compiled.plan.packed, dict(compiled.plan.scratch)
            if compiled.flagged:
                kept[compiled.flagged] += self._gpu.bytes_of(needed.pop(compiled.flagged), True)
            if index in self._given:
                kept.update(packed)
                meanwhile = Scratch(self._gpu.info.max_storage_buffer_range)
                packing[index] = {field: meanwhile.place(compiled.problem.tensor(field).size_in_bytes)
                                  for field in self._given[index]}
            else:
                needed |= packed
            beside = scratch.beside()
            own.append({name: beside.place(size, False) for name, size in needed.items()})
        return Layout(tensors, own, packing, kept)

    def _buffer(self, place: Place) -> Buffer:
        return buffer_at(self._gpu, place, self._lease)

    def _verify(self) -> None:
        """Each node's results by its inputs, both as they are on the device."""
        buffers = {**self._buffers, **self._carried.buffers()}
        for index, (compiled, names) in enumerate(self._nodes):
            memory = {field: buffers[name].read((compiled.problem.tensor(field).size_in_bytes,), np.uint8)
                      for field, name in names.items() if name in buffers}
            if index in self._packed:
                memory |= {field: flat(array).view(np.uint8) for field, array in self._packed[index].snapshot.arrays.items()}
            verify(self._gpu, compiled.problem, compiled.plan, memory)

    # Weights

    def _pack(self, index: int, values: Mapping[str, np.ndarray]) -> None:
        """A node's, unless they are packed already, by whomever."""
        assert self._layout is not None
        compiled = self._nodes[index][0]
        snapshot = self._keeper.snapshot(
            index, {field: values[name] for field, name in self._given[index].items() if name in values})
        if index in self._packed:
            if self._packed[index].snapshot is snapshot:
                return
            self._gpu.memory.expect_room(self._name, self._layout.sizes(self._gpu))
            self._commands = {}  # and what it has of these, so that they can make room for the new ones
            key = self._packed.pop(index).key
            if all(packed.key != key for packed in self._packed.values()):
                self._lease.give_back(key)
        key = ("packed weights", compiled.packing_key, snapshot.digest)
        packed = self._gpu.keep(key, lambda: self._packed_now(index, snapshot), sum(compiled.plan.packed.values()), self._lease)
        self._packed[index] = _Packed(snapshot, key, packed)

    def _packed_now(self, index: int, snapshot: Snapshot) -> Mapping[str, Buffer]:
        assert self._layout is not None
        compiled = self._nodes[index][0]
        packed = {name: Buffer(self._gpu, size, has_copy=False) for name, size in compiled.plan.packed.items()}
        buffers = {field: self._buffer(place) for field, place in self._layout.packing[index].items()}
        commands = Commands(self._gpu)
        for field, buffer in buffers.items():
            buffer.write(flat(snapshot.arrays[field]))
            commands.upload(buffer)
        compiled.record_packing(commands, buffers, packed, self._lease)
        commands.execute()
        return packed

    # Commands

    def _record(self) -> Commands:
        """Upload the inputs, run all nodes, and read back what `_read` names."""
        assert self._layout is not None
        carried = self._carried.buffers()
        self._buffers = {name: self._buffer(place) for name, place in self._layout.tensors.items()}
        commands = Commands(self._gpu)
        for name in self._inputs:
            commands.upload(self._buffers[name])
        for index in range(len(self._nodes)):
            own = {name: self._buffer(place) for name, place in self._layout.own[index].items()}
            self._record_node(commands, index, {**self._buffers, **carried}, own)
        for name in self._read:
            commands.readback(self._buffers.get(name) or carried[name])
        return commands

    def _record_node(self, commands: Commands, index: int, tensors: Mapping[str, Buffer], own: Mapping[str, Buffer]) -> None:
        """tensors: by name. own: what is the node's alone, by the plan's names; other nodes may have it after the node."""
        compiled, names = self._nodes[index]
        buffers = {field: tensors[name] for field, name in names.items() if name in tensors}
        check_values_before(commands, compiled.problem, buffers)
        if index in self._packed:
            own = {**own, **self._packed[index].buffers}
        elif compiled.weight_fields:
            compiled.record_packing(commands, buffers, own, self._lease)
        if compiled.flagged:
            own = {**own, compiled.flagged: Buffer(self._gpu, compiled.plan.scratch[compiled.flagged])}
        compiled.record_loop(commands, {**buffers, **own}, self._lease)


def _verifiable(index: int, node: Node) -> Node:
    """With all outputs that a check needs."""
    problem = node.operator.problem
    if not isinstance(problem, Problem) or problem.has(SEQUENCE):
        return node
    return Node(Operator(with_sequence(problem)), {**node.names, SEQUENCE: f"{SEQUENCE} of node {index}"})


@dataclass(frozen=True)
class _Packed:
    """A node's packed weights: of which contents, and where in the store."""

    snapshot: Snapshot
    key: Hashable
    buffers: Mapping[str, Buffer]
