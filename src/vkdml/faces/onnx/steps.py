"""Steps of a program: pieces that onnxruntime runs on the CPU, and recurrent nodes on the Vulkan device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from ...errors import OnnxRuntimeError
from ...operators.cells import STATES
from ...operators.problem import WEIGHTS, Problem
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import Session, StatefulSession
from . import graphs
from .nodes import RecurrentNode
from .ort_sessions import OrtSessions
from .ort_values import WITHOUT_ARRAYS, feedable, of_onnxruntime

Values = dict[str, Any]
RunOptions: TypeAlias = onnxruntime.RunOptions | None


@dataclass(frozen=True)
class Context:
    """What all parts of a model share. device: a Device, or what Device() takes. piece_numbers: the next pieces', from 1."""

    opset_imports: Sequence[onnx.OperatorSetIdProto]
    ir_version: int
    device: Device | int | str | None
    options: Options
    ort: OrtSessions
    piece_numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def opset_version(self) -> int:
        return graphs.opset_version(self.opset_imports)


@dataclass(frozen=True)
class Scope:
    """The names that a graph can use. arrays: the constants, read-only. types: the types of all other values. sizes: the
    dimensions that the model declares, None for those that may vary.
    """

    arrays: dict[str, np.ndarray]
    types: dict[str, TypeProto]
    sizes: dict[str, list[int | None]] = field(default_factory=dict)

    def only(self, names: Collection[str]) -> Scope:
        """The scope of a body that uses these names from around it."""
        return Scope({name: self.arrays[name] for name in names if name in self.arrays},
                     {name: self.types[name] for name in names if name in self.types},
                     {name: self.sizes[name] for name in names if name in self.sizes})

    def type_of(self, name: str) -> TypeProto:
        if name in self.arrays:
            return graphs.tensor_type(helper.np_dtype_to_tensor_dtype(self.arrays[name].dtype))
        return self.types[name]


class Step(Protocol):
    """Reads values by name, and adds its results to them. run_options: onnxruntime's, for what onnxruntime runs."""

    def run(self, values: Values, run_options: RunOptions) -> None: ...


class Piece:
    """Nodes that onnxruntime runs together. Adds its outputs' types to the scope."""

    def __init__(self, nodes: Sequence[NodeProto], outputs: Iterable[str], context: Context, scope: Scope) -> None:
        used = set().union(*map(graphs.uses, nodes)) - graphs.made(nodes)
        self.inputs = sorted(name for name in used if name not in scope.arrays)
        self.outputs = sorted(outputs)
        graph = helper.make_graph(
            nodes, "piece", [helper.make_value_info(name, scope.types[name]) for name in self.inputs],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            [numpy_helper.from_array(scope.arrays[name], name) for name in sorted(used) if name in scope.arrays])
        model = helper.make_model(graph, opset_imports=context.opset_imports, ir_version=context.ir_version)
        session = context.ort.open(model.SerializeToString())
        types = {output.name: graphs.parse_type(output.type) for output in session.get_outputs()}
        kinds = {name: types[name].tensor_type.elem_type for name in self.outputs}
        self._cast = {name: WITHOUT_ARRAYS[kind] for name, kind in kinds.items() if kind in WITHOUT_ARRAYS}
        self._without_arrays = [name for name in self.inputs if scope.types[name].tensor_type.elem_type in WITHOUT_ARRAYS]
        self._names = [f"{name}/float32" if name in self._cast else name for name in self.outputs]
        if self._cast:
            for output, name in zip(graph.output, self._names):
                if name != output.name:
                    graph.node.append(helper.make_node("Cast", [output.name], [name], to=TensorProto.FLOAT))
                    output.name = name
            model.graph.CopyFrom(graph)
            session = context.ort.open(model.SerializeToString())
        self._session = session
        scope.types.update(types)

    def run(self, values: Values, run_options: RunOptions) -> None:
        given = {name: values[name] for name in self.inputs}
        for name in self._without_arrays:
            given[name] = feedable(given[name])
        results = of_onnxruntime(self._session.run, self._names, given, run_options)
        for name, result in zip(self.outputs, results):
            values[name] = result.astype(self._cast[name]) if name in self._cast else result


def expect_going(operator: str, run_options: RunOptions) -> None:
    """Raises OnnxRuntimeError where the terminate flag is set, which may be while the model runs."""
    if run_options is not None and run_options.terminate:
        raise OnnxRuntimeError(f"{operator}: the terminate flag of run_options is set")


class RecurrentStep:
    """A recurrent node, and what was compiled for it."""

    def __init__(self, node: NodeProto, context: Context, scope: Scope) -> None:
        self.node = RecurrentNode(node, context.opset_version, Session(), context.device, context.options)
        self.proto = node
        self.context = context
        self.inputs, self.outputs = ([name for name in names if name] for names in (node.input, node.output))
        self.others: Callable[[], list[Problem]] = list  # problems of runs together with other nodes
        self._weights = {name: scope.arrays[name] for name in node.input if name in scope.arrays}
        self._declared = scope.sizes.get(node.input[0], [])[:2]
        scope.types.update(dict.fromkeys(
            self.outputs, graphs.tensor_type(scope.type_of(node.input[0]).tensor_type.elem_type)))

    def run(self, values: Values, run_options: RunOptions) -> None:
        expect_going(self.node.operator, run_options)
        with self.context.ort.timed(self.proto):
            values.update(zip(self.outputs, self.node.run(values)))

    def warm_up(self, t: int, b: int) -> None:
        """Make all that a run with these sizes needs, unless the node's weights are computed or fed."""
        if self._has_weights:
            self.node.warm_up(self._weights, t, b)

    def examples(self, t: int, b: int) -> dict[str, np.ndarray]:
        """Inputs of a run with these sizes, by name; none if the node's weights are computed or fed."""
        return self.node.examples(self._weights, t, b) if self._has_weights else {}

    def problems(self) -> list[Problem]:
        """Problems of the last runs, each of the last few sizes once."""
        return self.node.problems() + self.others()

    def problem(self, t: int | None, b: int | None) -> Problem | None:
        """The problem of a run, None if its weights are computed or fed. t, b: if None, what the model declares, or else 1."""
        if not self._has_weights:
            return None
        declared = [size or 1 for size in self._declared] or [1, 1]
        steps, rows = reversed(declared) if self.node.is_batch_first else declared
        t, b = t or steps, b or rows
        return self.node.problem(self._weights, t, b)

    @property
    def _has_weights(self) -> bool:
        return all(name in self._weights for field, name in self.node.fields.items() if field in WEIGHTS)

    def kept(self, carried: Mapping[str, str]) -> dict[str, str]:
        """Last state -> initial state of this node, for those that are carried. carried: output -> input."""
        fields = self.node.fields
        return {fields[output]: fields[state] for output, state in STATES.items()
                if output in fields and state in fields and carried.get(fields[output]) == fields[state]}


class StatefulStep:
    """A recurrent node whose last states are the initial states of its next run, and stay on the device.

    carried: output -> input that it becomes, by the graph's names.
    """

    def __init__(self, step: RecurrentStep, carried: Mapping[str, str]) -> None:
        self.carried = carried
        self._step = step
        self._node = step.node
        self._fields = {name: field for field, name in step.node.fields.items() if name in carried.values()}
        self._outputs = [name for name in step.outputs if name not in carried]
        self._session: StatefulSession | None = None
        self._state: dict[str, np.ndarray] = {}

    def write(self, state: Mapping[str, np.ndarray]) -> None:
        """Set what the next run begins with, for every carried input."""
        self._state = {field: state[name] for name, field in self._fields.items()}
        self._session = None

    def read(self) -> dict[str, np.ndarray]:
        """What the next run begins with, by input."""
        state = self._session.read() if self._session else self._state
        return {name: state[field] for name, field in self._fields.items()}

    def run(self, values: Values, run_options: RunOptions) -> None:
        """Run the node. Carried inputs in `values` are only templates of types: what was written last counts."""
        checked, _ = self._node.convert(values)
        if self._session is None:
            self._session = StatefulSession(self._node.operator, self._node.settings, self._state)
        others = {field: array for field, array in checked.items() if field not in self._state}
        with self._step.context.ort.timed(self._step.proto):
            values.update(zip(self._outputs, self._session.run(self._node.operator, self._node.settings, others)))
