"""A graph divided into steps, which of its nodes run where, and the control flow operators whose bodies are such graphs.

The division is made once, when a program is made. Constants are computed then. Nodes that are not recurrent go to onnxruntime
in pieces: as few as possible, given the recurrent nodes between them. An If, Loop or Scan without recurrent nodes is part of a
piece.

Sources: ONNX If 1 to 25, Loop 1 to 25, Scan 9 to 25.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from ...engine.weights import constant
from ...errors import InvalidArgumentError
from ..sessions import open_device
from . import graphs, models
from .assignment import DEVICE, HOST, LOAD, NOWHERE, ONNXRUNTIME, AssignedNode, assigned, within
from .linear import Linear, linear
from .moves import Move, move
from .nodes import attribute_value, is_recurrent
from .runs import DeviceRun, MoveStep, Part
from .steps import Context, Piece, RecurrentStep, RunOptions, Scope, StatefulStep, Step, Values

_PLAIN, _HOLDING, _ON_DEVICE = range(3)  # kinds of nodes; those that hold recurrent nodes in their bodies are the second
_DATA = (0, 5, 6)  # places of X, initial_h and initial_c among a recurrent node's inputs


def _staying(node: NodeProto, found: Move | Linear | None) -> set[str]:
    """The inputs of a node on the device that another node there may make: not weights and lengths."""
    return set(found.inputs if found else [node.input[place] for place in _DATA if place < len(node.input)]) - {""}


class Program:
    """The steps of a graph, in order. The program of a body can use the values of the graphs around it.

    name: the graph's. assigned: where each of its nodes runs, with those of bodies.
    """

    def __init__(self, graph: GraphProto, context: Context, outer: Scope, input_types: Mapping[str, TypeProto]) -> None:
        if graph.sparse_initializer:
            raise InvalidArgumentError(f"graph {graph.name!r}", "sparse_initializer", graph.sparse_initializer[0].values.name,
                                       "none: dense initializers")
        self.name = graph.name
        self.assigned: list[AssignedNode] = []
        self._captured = graphs.captures(graph)
        self._scope = outer.only(self._captured)
        self.inputs = list(input_types)
        self.outputs = [output.name for output in graph.output]
        self._scope.types.update(input_types)
        self._kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
        self._scope.sizes.update({value.name: graphs.sizes(value) for value in (*graph.input, *graph.value_info)})
        self._scope.arrays.update({tensor.name: constant(models.array_of(tensor, graph)) for tensor in graph.initializer})
        nodes = self._fold(graphs.ordered(graph), context)
        self._steps = self._cut(nodes, context)
        self._used = Counter(name for node in nodes for name in (*node.input, *graphs.uses(node) - set(node.input)))

    def _fold(self, nodes: Iterable[NodeProto], context: Context) -> list[NodeProto]:
        """Computes the constants. Returns the other nodes.

        Quantized constants stay so for onnxruntime, which computes with the integers: `_dequantized` are the nodes, by output,
        that each piece has before their users.
        """
        constants, other = graphs.split_constant(nodes, self._scope.arrays)
        plain = set[str]().union(*(graphs.uses(node) for node in other if not graphs.holds_recurrent(node)))
        special = set(self.outputs).union(*(graphs.uses(node) for node in other if graphs.holds_recurrent(node)))
        self._dequantized = {node.output[0]: node for node in constants
                             if node.op_type == "DequantizeLinear" and node.output[0] in plain}
        self.assigned += assigned([node for node in constants if node.output[0] not in self._dequantized], LOAD)
        wanted = graphs.made(constants) & special.union(plain - set(self._dequantized),
                                                        *map(graphs.uses, self._dequantized.values()))
        if wanted:
            values: dict[str, Any] = {}
            Piece(constants, wanted, context, Scope(self._scope.arrays, {})).run(values, None)
            self._scope.arrays.update({name: constant(np.asarray(value)) for name, value in values.items()})
        return other

    def _cut(self, nodes: Sequence[NodeProto], context: Context) -> list[Step]:
        """Divides the nodes by stage: how often what a node needs goes from the device to the host before."""
        moves = self._others_on_device(nodes, context)
        stage_of: dict[str, tuple[int, bool]] = {}  # and whether it is on the device
        stages: defaultdict[int, tuple[list[NodeProto], ...]] = defaultdict(lambda: ([], [], []))  # nodes by kind
        users: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)  # value -> stage and kind of its users
        for node in nodes:
            kind = _ON_DEVICE if is_recurrent(node) or id(node) in moves else int(graphs.holds_recurrent(node))
            used = graphs.uses(node)
            stays = _staying(node, moves.get(id(node))) if kind == _ON_DEVICE else ()
            stage = max((at + (there and name not in stays) for name in used for at, there in [stage_of.get(name, (0, False))]),
                        default=0)
            stages[stage][kind].append(node)
            stage_of.update(dict.fromkeys(node.output, (stage + (kind == _HOLDING), kind == _ON_DEVICE)))
            for name in used:
                users[name].add((stage, kind))
        steps: list[Step] = []
        outputs, unreported = set(self.outputs), set(self._dequantized)

        def wanted(nodes: Sequence[NodeProto], stage: int, kind: int) -> set[str]:
            return {name for name in graphs.made(nodes) if name in outputs or users[name] - {(stage, kind)}}

        for stage, (plain, holding, on_device) in sorted(stages.items()):
            used = set[str]().union(*map(graphs.uses, plain))
            dequantized = {name: node for name, node in self._dequantized.items() if name in used}
            reported = [*(node for name, node in dequantized.items() if name in unreported), *plain]
            unreported -= set(dequantized)
            if found := wanted(plain, stage, _PLAIN):
                steps.append(Piece([*dequantized.values(), *plain], found, context, self._scope))
                self.assigned += assigned(reported, ONNXRUNTIME, next(context.piece_numbers))
            else:
                self.assigned += assigned(reported, NOWHERE)
            steps += [self._holding(node, context) for node in holding]
            parts = [self._part(node, moves.get(id(node)), context) for node in on_device]
            is_run = any(isinstance(part, RecurrentStep) for part in parts)
            steps += [DeviceRun(parts, wanted(on_device, stage, _ON_DEVICE), self._scope)] if is_run else parts
        return steps

    def _others_on_device(self, nodes: Sequence[NodeProto], context: Context) -> dict[int, Move | Linear]:
        """The nodes by which a recurrent node's outputs become a recurrent node's inputs, by their ids."""
        others, made, shapes, needed = dict[int, Move | Linear](), set[str](), set[str](), set[str]()
        is_cpu = open_device(self.name, context.device).info.type == "cpu"
        for node in nodes:
            found = move(node, self._scope.arrays, self._kinds, shapes) or linear(
                node, self._scope.arrays, self._kinds, made, is_cpu)
            if found and not made.isdisjoint(found.inputs):
                others[id(node)] = found
                shapes.update(node.output if found.is_shape else ())
            if is_recurrent(node) or id(node) in others:
                made.update(node.output)
        for node in reversed(nodes):
            if id(node) in others and needed.isdisjoint(node.output):
                del others[id(node)]
            if is_recurrent(node) or id(node) in others:
                needed |= _staying(node, others.get(id(node)))
        return others

    def _part(self, node: NodeProto, found: Move | Linear | None, context: Context) -> Part:
        self.assigned += assigned([node], DEVICE)
        return MoveStep(found, self._scope) if found else RecurrentStep(node, context, self._scope)

    def _holding(self, node: NodeProto, context: Context) -> Step:
        if node.op_type not in CONTROL_FLOW:
            raise InvalidArgumentError(graphs.describe(node), "a body with recurrent nodes", node.op_type,
                                       "one of " + ", ".join(CONTROL_FLOW))
        step = CONTROL_FLOW[node.op_type](node, context, self._scope)
        self.assigned.append(AssignedNode(node.name, node.op_type, node.domain, "", HOST))
        for body in step.bodies:
            self.assigned += within(body.name, body.assigned)
        return step

    @property
    def output_types(self) -> list[TypeProto]:
        return [self._scope.type_of(name) for name in self.outputs]

    def run(self, given: Sequence[Any], run_options: RunOptions, outer: Values | None = None) -> list[Any]:
        """Run the steps and return the outputs. given: the inputs, in order. outer: the values of the graphs around a body."""
        values: Values = {**self._scope.arrays, **dict(zip(self.inputs, given))}
        if outer is not None:
            values.update((name, outer[name]) for name in self._captured if name in outer)
        for step in self._steps:
            step.run(values, run_options)
        return [values[name] for name in self.outputs]

    def on_device(self) -> Iterator[DeviceRun]:
        """The steps with recurrent nodes, those in bodies too."""
        for step in self._steps:
            if isinstance(step, DeviceRun):
                yield step
            elif isinstance(step, IfStep | LoopStep | ScanStep):
                for body in step.bodies:
                    yield from body.on_device()

    def recurrent(self) -> Iterator[RecurrentStep]:
        """The recurrent nodes' steps, those in bodies too."""
        for step in self.on_device():
            yield from step.recurrent

    def streaming(self, carried: Mapping[str, str], wanted: Collection[str]) -> tuple[Program, list[StatefulStep]]:
        """A program that keeps on the device what it can of the inputs that are carried, by output; and the steps that do.

        That is where an output is a recurrent node's last state, an input is its initial state, and nobody else uses either.
        wanted: the outputs that are returned.
        """
        program, streams = copy.copy(self), list[StatefulStep]()
        private = {output: name for output, name in carried.items() if output not in wanted and not self._used[output]
                   and self._used[name] == 1 and name not in self.outputs and self.outputs.count(output) == 1}
        program._steps = []
        steps = (step.parts if isinstance(step, DeviceRun) and any(part.kept(private) for part in step.recurrent) else [step]
                 for step in self._steps)
        for step in chain.from_iterable(steps):
            if isinstance(step, RecurrentStep) and (kept := step.kept(private)):
                streams.append(StatefulStep(step, kept))
                step = streams[-1]
            program._steps.append(step)
        program.outputs = [name for name in self.outputs if name not in chain(*(step.carried for step in streams))]
        return program, streams


class IfStep:
    """If: runs one of two bodies."""

    def __init__(self, node: NodeProto, context: Context, scope: Scope) -> None:
        self._node = node
        bodies = [graphs.body(node, attribute) for attribute in ("then_branch", "else_branch")]
        for body in bodies:
            _check_count(node, "outputs of a branch", len(body.output), len(node.output))
        yes, no = (Program(body, context, scope, {}) for body in bodies)
        self.bodies = [no, yes]  # by the condition
        scope.types.update(_named(node, yes.output_types))

    def run(self, values: Values, run_options: RunOptions) -> None:
        condition = bool(_scalar(self._node, "cond", values[self._node.input[0]]))
        values.update(_named(self._node, self.bodies[condition].run([], run_options, values)))


class LoopStep:
    """Loop: runs a body while a count and a condition allow it. The body carries values over; its other outputs are stacked."""

    def __init__(self, node: NodeProto, context: Context, scope: Scope) -> None:
        self._node = node
        body = graphs.body(node, "body")
        _check_count(node, "inputs of the body", len(body.input), len(node.input))
        _check_count(node, "outputs of the body", len(body.output), 1 + len(node.output))
        types = [graphs.tensor_type(TensorProto.INT64), graphs.tensor_type(TensorProto.BOOL),
                 *(graphs.without_shape(scope.type_of(name)) for name in node.input[2:])]
        self._program = Program(body, context, scope, dict(zip((value.name for value in body.input), types)))
        self.bodies = [self._program]
        self._ranks = [len(value.type.tensor_type.shape.dim) for value in body.input[:2]]  # 0; some exporters write 1
        self._carried = len(node.input) - 2
        types = self._program.output_types[1:]
        self._stacks = [_Stack(node, output, kind) for output, kind in zip(body.output[1:], types)][self._carried:]
        scope.types.update(_named(node, types[:self._carried] + [stack.type for stack in self._stacks]))

    def run(self, values: Values, run_options: RunOptions) -> None:
        count, condition, *state = [values[name] if name else None for name in self._node.input]
        most = None if count is None else _scalar(self._node, "M", count)
        going = condition is None or bool(_scalar(self._node, "cond", condition))
        rows: list[list[np.ndarray]] = []
        while going and (most is None or len(rows) < most):
            counters = [np.full((1,) * rank, value) for rank, value in zip(self._ranks, (len(rows), True))]
            again, *outputs = self._program.run([*counters, *state], run_options, values)
            going = bool(_scalar(self._node, "the body's condition", again))
            state = outputs[:self._carried]
            rows.append(outputs[self._carried:])
        values.update(_named(self._node, [*state, *_joined(self._stacks, rows)]))


class ScanStep:
    """Scan: runs a body for each slice of its inputs along an axis."""

    def __init__(self, node: NodeProto, context: Context, scope: Scope) -> None:
        if context.opset_version < 9:
            raise InvalidArgumentError(graphs.describe(node), "opset_version", context.opset_version, "9 or newer")
        self._node = node
        body = graphs.body(node, "body")
        _check_count(node, "inputs of the body", len(body.input), len(node.input))
        _check_count(node, "outputs of the body", len(body.output), len(node.output))
        attributes = {entry.name: attribute_value(graphs.describe(node), entry) for entry in node.attribute}
        scanned = attributes["num_scan_inputs"]
        self._states = len(node.input) - scanned
        self._axes = attributes.get("scan_input_axes") or [0] * scanned
        self._backward = attributes.get("scan_input_directions") or [0] * scanned
        types = [scope.type_of(name) for name in node.input]
        types[self._states:] = [graphs.tensor_type(kind.tensor_type.elem_type) for kind in types[self._states:]]
        self._program = Program(body, context, scope, dict(zip((value.name for value in body.input), types)))
        self.bodies = [self._program]
        types = self._program.output_types
        made = len(types) - self._states
        self._stacks = [_Stack(node, output, kind, axis, backward) for output, kind, axis, backward in zip(
            body.output[self._states:], types[self._states:], attributes.get("scan_output_axes") or [0] * made,
            attributes.get("scan_output_directions") or [0] * made)]
        scope.types.update(_named(node, types[:self._states] + [stack.type for stack in self._stacks]))

    def run(self, values: Values, run_options: RunOptions) -> None:
        given = [values[name] for name in self._node.input]
        state = given[:self._states]
        scanned = [_moved(self._node, array, axis, 0)[::-1 if backward else 1]
                   for array, axis, backward in zip(given[self._states:], self._axes, self._backward)]
        lengths = [len(array) for array in scanned]
        if len(set(lengths)) > 1:
            raise InvalidArgumentError(graphs.describe(self._node), "scanned inputs", f"lengths of {lengths}", "equal lengths")
        rows: list[list[np.ndarray]] = []
        for slices in zip(*scanned):
            outputs = self._program.run([*state, *map(np.ascontiguousarray, slices)], run_options, values)
            state = outputs[:self._states]
            rows.append(outputs[self._states:])
        values.update(_named(self._node, [*state, *_joined(self._stacks, rows)]))


class _Stack:
    """Stacks a body's output of all iterations to an output of its loop."""

    def __init__(self, node: NodeProto, output: ValueInfoProto, kind: TypeProto, axis: int = 0, backward: int = 0) -> None:
        self._node = node
        self._declared = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
        self.type = graphs.tensor_type(kind.tensor_type.elem_type)
        self._axis, self._backward = axis, backward

    def join(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Stacks along a new dimension. Without arrays, a size that the model does not declare is 0, as in onnxruntime."""
        if shapes := {array.shape for array in arrays}:
            if len(shapes) > 1:
                raise InvalidArgumentError(graphs.describe(self._node), "scan output", f"shapes {sorted(shapes)}", "one shape")
            joined = np.stack(arrays[::-1] if self._backward else arrays)
        else:
            joined = np.zeros((0, *self._declared), helper.tensor_dtype_to_np_dtype(self.type.tensor_type.elem_type))
        return np.ascontiguousarray(_moved(self._node, joined, 0, self._axis))


def _moved(node: NodeProto, array: np.ndarray, source: int, target: int) -> np.ndarray:
    """An array with an axis moved to another place."""
    try:
        return np.moveaxis(array, source, target)
    except np.exceptions.AxisError as error:
        raise InvalidArgumentError(graphs.describe(node), "axes", str(error), "axes that the arrays have") from None


def _joined(stacks: Sequence[_Stack], rows: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Outputs of a loop. rows: those of each iteration."""
    return [stack.join([row[index] for row in rows]) for index, stack in enumerate(stacks)]


def _check_count(node: NodeProto, field: str, found: int, expected: int) -> None:
    """Refuses other numbers of inputs and outputs, as onnxruntime does, but for a body without any."""
    if found != expected:
        raise InvalidArgumentError(graphs.describe(node), field, found, f"{expected}, as the node has")


def _scalar(node: NodeProto, field: str, value: Any) -> Any:
    array = np.asarray(value)
    if array.size != 1:
        raise InvalidArgumentError(graphs.describe(node), field, f"the shape {array.shape}", "a single value")
    return array.item()


def _named(node: NodeProto, outputs: Sequence[Any]) -> dict[str, Any]:
    return {name: output for name, output in zip(node.output, outputs) if name}


CONTROL_FLOW: dict[str, Callable[[NodeProto, Context, Scope], IfStep | LoopStep | ScanStep]] = {
    "If": IfStep, "Loop": LoopStep, "Scan": ScanStep}
