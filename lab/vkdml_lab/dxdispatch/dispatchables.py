"""The dispatchables of DxDispatch's models: operators and graphs of them, first checked, then compiled for a device.

Sources: DxDispatch's guide, "Dispatchable: DirectML Operator" and "Timing Dispatchables"; its models dml_gemm_graph.json and
dml_graph_quadratic.json.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkdml import DML_EXECUTION_FLAGS, DML_GRAPH_DESC, DML_TENSOR_DESC, DML_TENSOR_FLAGS, CommandRecorder, Device, Operator
from vkdml_lab.internals import (
    CELLS,
    ITEMSIZES,
    CheckedOperator,
    Compiled,
    Contents,
    Dispatchable,
    PlainProblem,
    Problem,
    Snapshot,
    check_graph,
    from_any_desc,
    nodes_of,
)

from .reader import flags, graph, members, operator, placed, refusal, show


@dataclass(frozen=True)
class OperatorDispatchable:
    """A checked operator, and the flags to compile it with.

    owned: the inputs that are OWNED_BY_DML, and so may be bound once. initial: what the model binds to them, not yet read.
    """

    checked: Problem | PlainProblem
    flags: DML_EXECUTION_FLAGS
    owned: Collection[str]
    initial: Mapping[str, Any]

    def compiled(self, device: Device) -> Compiled:
        return device.compile_operator(Operator(self.checked), self.flags)


@dataclass(frozen=True)
class GraphDispatchable:
    """A checked graph, and the flags to compile it with."""

    checked: CheckedOperator
    desc: DML_GRAPH_DESC
    flags: DML_EXECUTION_FLAGS

    def compiled(self, device: Device) -> Compiled:
        return device.compile_graph(self.desc, self.flags)


Checked = OperatorDispatchable | GraphDispatchable


def dispatchables(place: str, value: object) -> dict[str, Checked]:
    """Read and check dispatchables: operators, then the graphs of them.

    Raises InvalidArgumentError, which names the place in the model.
    """
    given = members(place, value)
    graphs = {name for name, member in given.items()
              if isinstance(member, dict) and "DML_GRAPH_DESC" in (member.get("type"), member.get("Type"))}
    operators = {name: _operator(f"{place}.{name}", member) for name, member in given.items() if name not in graphs}
    return {**operators, **{name: _graph(operators, f"{place}.{name}", given[name]) for name in given if name in graphs}}


def _operator(place: str, value: object) -> OperatorDispatchable:
    at, desc = operator(place, value, ("executionFlags", "dmlCompileType", "bindings"))
    given = members(place, value)
    if given.get("dmlCompileType", "DmlCompileOp") not in ("DmlCompileOp", "DmlCompileGraph"):
        raise refusal(f"{place}.dmlCompileType", show(given["dmlCompileType"]), "DmlCompileOp or DmlCompileGraph")
    owned = {name: tensor.Desc for name, tensor in vars(desc).items()
             if isinstance(tensor, DML_TENSOR_DESC) and tensor.Desc.Flags == DML_TENSOR_FLAGS.OWNED_BY_DML}
    if type(desc) not in CELLS:  # they pack nothing: what is bound once is an input like others
        for name in owned.keys() - {"OutputTensor"}:
            owned[name].Flags = DML_TENSOR_FLAGS.NONE
    with placed(f"{at}."):
        checked = from_any_desc(desc)
    initial = members(f"{place}.bindings", given.get("bindings", {}))
    for name in initial.keys() - owned.keys():
        raise refusal(f"{place}.bindings.{name}", "no tensor that is OWNED_BY_DML", " or ".join(owned) or "no bindings here")
    return OperatorDispatchable(checked, _flags(place, value), tuple(owned), initial)


def _flags(place: str, value: object) -> DML_EXECUTION_FLAGS:
    found: DML_EXECUTION_FLAGS = flags(DML_EXECUTION_FLAGS)(
        f"{place}.executionFlags", members(place, value).get("executionFlags", "NONE"))
    return found


def _graph(operators: Mapping[str, OperatorDispatchable], place: str, value: object) -> GraphDispatchable:
    at, desc = graph(place, value, ("executionFlags",))
    with placed(f"{at}."):
        nodes = nodes_of(desc)
    for i, node in enumerate(nodes):
        # Microsoft's model has had the operator's name in both places
        member, name = ("Name", node.Name or "") if node.Operator is None else ("Operator", node.Operator)
        if name not in operators:
            raise refusal(f"{at}.Nodes[{i}].{member}", show(name), "one of " + ", ".join(operators))
        node.Operator, node.Name = Operator(operators[name].checked), node.Name or name
    with placed(f"{at}."):
        checked = check_graph(desc, [node.Operator.problem for node in nodes]).problem
    return GraphDispatchable(checked, desc, _flags(place, value))


class ReadyOperator:
    """An operator or graph compiled for a device. Each tensor has a buffer of its own, as a resource may be bound to several.

    initial: by field, the bytes that are bound to it for all executions.
    """

    def __init__(self, device: Device, dispatchable: Checked, initial: Mapping[str, np.ndarray] | None = None) -> None:
        self._device = device
        self._checked = dispatchable.checked
        self._initial = initial or {}
        self._compiled = dispatchable.compiled(device)
        self._buffers = {field: device.create_buffer(tensor.size_in_bytes)
                         for field, tensor in self._checked.tensors.items() if tensor}
        self._contents = Contents()
        self._uploaded: dict[str, Snapshot] = {}

    def run(self, bound: Mapping[str, np.ndarray], iterations: int) -> list[float]:
        """Execute the operator. Returns the milliseconds of each iteration.

        bound: by field, the resource's bytes from the tensor's first element on. OWNED_BY_DML tensors are uploaded once. The
        other inputs are uploaded before each iteration, where they have changed, and the outputs downloaded after it, so that
        an iteration can read what the last one wrote. Only the execution is timed.
        """
        bound = {**self._initial, **bound}
        owned = [field for field in self._checked.initialized if field in bound]
        inputs = [field for field in self._checked.inputs if field in bound and field not in owned]
        outputs = [field for field in self._checked.outputs if field in bound]
        self._upload(bound, owned)
        self._record(self._device.create_operator_initializer(self._compiled), owned).execute()
        recorder = self._record(self._compiled, [*inputs, *outputs])
        milliseconds = []
        for _ in range(iterations):
            self._upload(bound, inputs)
            started = time.perf_counter()
            recorder.execute()
            milliseconds.append((time.perf_counter() - started) * 1e3)
            self._download(bound, outputs)
        return milliseconds

    def _record(self, dispatchable: Dispatchable, given: Collection[str]) -> CommandRecorder:
        table = self._device.create_binding_table(dispatchable)
        table.bind_inputs([self._buffers[field] if field in given else None for field in self._checked.inputs])
        outputs = [self._buffers[field] if field in given else None for field in self._checked.outputs]
        if any(outputs):  # no initializer writes them
            table.bind_outputs(outputs)
        recorder = self._device.create_command_recorder()
        recorder.record_dispatch(dispatchable, table)
        return recorder

    def _upload(self, bound: Mapping[str, np.ndarray], given: Iterable[str]) -> None:
        """Upload what has changed; the rest stays, so that weights stay packed."""
        for field in given:
            content = bound[field][:self._buffers[field].size_in_bytes]
            self._contents.look(field, {field: field}, {field: content})
            snapshot = self._contents.snapshot(field)
            if snapshot is not self._uploaded.get(field):
                self._buffers[field].upload(content)
                self._uploaded[field] = snapshot

    def _download(self, bound: Mapping[str, np.ndarray], outputs: Iterable[str]) -> None:
        """Writes only the tensors' elements. The bytes between and behind them keep their values."""
        for field in outputs:
            tensor = self._checked.tensor(field)
            dtype = np.dtype(f"u{ITEMSIZES[tensor.data_type]}")
            count = tensor.size_of_elements
            target = bound[field][:count * dtype.itemsize].view(dtype)
            tensor.view(target)[...] = tensor.view(self._buffers[field].download((count,), dtype))
