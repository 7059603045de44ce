"""Which nodes of a graph run on the device, and in which groups.

Recurrent nodes, and what stands between them. Each node gets a stage: how often what it needs comes back from the device
before. A stage's nodes on the device are a group, so no path leads out of a group and back into it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ...errors import InvalidArgumentError
from ...operators.arguments import onnx_shape
from ...operators.problem import WEIGHTS
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import Session
from .exchange import PROVIDER
from .graph_nodes import RECURRENT, GraphNode
from .linear import ATTRIBUTES, Linear, linear
from .moves import MOVES, MovingNode, move
from .nodes import RecurrentNode
from .quantized import QUANTIZED_LSTM, has_constant_weights, lstm, lstm_shapes

# By ONNX's number of the type
DTYPES: list[Any] = [name and np.dtype(name) for name in (
    None, "f4", "u1", "i1", "u2", "i2", "i4", "i8", None, "?", "f2", "f8", "u4", "u8", None, None, ml_dtypes.bfloat16)]

RECURRENT_NODES = {*(("", name) for name in RECURRENT), QUANTIZED_LSTM}  # domains and operators
OPERATORS = {*(name for _, name in RECURRENT_NODES), *MOVES, *ATTRIBUTES}  # of which there may be nodes on the device

_DATA = (0, 5, 6)  # places of X, initial_h and initial_c among a recurrent node's inputs
_FIRST = f"{{}} stands before {PROVIDER} in the session's providers and takes it"
_MOST = 256  # nodes of a group: what recording takes is bounded


class NodeGraph:
    """Nodes in an order in which each comes after those whose values it uses, with ONNX's types and the sizes of all values,
    and the arrays of the constants among them, as far as they are known.
    """

    def __init__(self, nodes: Sequence[Any], values: Mapping[str, tuple[int, Sequence[int], bool, Any]]) -> None:
        self.nodes = [GraphNode(*node) for node in nodes]
        self.kinds = {name: kind for name, (kind, *_) in values.items()}
        self.shapes = {name: shape for name, (_, shape, *_) in values.items()}
        self.constants = {name: shape for name, (_, shape, is_constant, _) in values.items() if is_constant}
        self.arrays = {name: array for name, (*_, array) in values.items() if array is not None}
        self.known = {name: self.arrays.get(name) for name in self.constants}

    def between(self, recurrent: Collection[int], is_cpu: bool) -> dict[int, MovingNode | Linear]:
        """The nodes, by place, that lead from recurrent nodes on the device, whose places are given, to others of these."""
        others, made, shapes, needed = dict[int, MovingNode | Linear](), set[str](), set[str](), set[str]()
        for place, node in enumerate(self.nodes):
            if place in recurrent:
                made.update(filter(None, node.outputs))
                continue
            found = move(node, self.known, self.kinds, shapes) or linear(node, self.constants, self.kinds, made, is_cpu)
            if found and not node.provider and not made.isdisjoint(found.inputs):
                others[place] = found
                shapes.update(node.outputs if found.is_shape else ())
                made.update(node.outputs)
        for place, node in reversed(list(enumerate(self.nodes))):
            if place in others and needed.isdisjoint(node.outputs):
                del others[place]
            if place in recurrent or place in others:
                needed |= staying(node, others.get(place))
        return others


def staying(node: GraphNode, found: MovingNode | Linear | None) -> set[str]:
    """The inputs of a node on the device that another node there may make: not weights and lengths."""
    return set(found.inputs if found else [node.inputs[place] for place in _DATA if place < len(node.inputs)]) - {""}


def groups(graph: NodeGraph, device: Device, options: Options) -> tuple[list[list[int]], dict[int, str]]:
    """The places of the nodes of each group, and of recurrent nodes that are in none, with the reason."""
    is_cpu = device.info.type == "cpu"
    found = {place: node for place, node in enumerate(graph.nodes) if (node.domain, node.op_type) in RECURRENT_NODES}
    reasons = {place: reason for place, node in found.items() if (
        reason := _why_not(node, graph, device, options, is_cpu) or (node.provider and _FIRST.format(node.provider)))}
    recurrent = found.keys() - reasons.keys()
    if not recurrent:
        return [], reasons
    others = graph.between(recurrent, is_cpu)
    stage_of: dict[str, tuple[int, bool]] = {}  # by value, and whether it is on the device
    stages: defaultdict[int, list[int]] = defaultdict(list)
    for place, node in enumerate(graph.nodes):
        on_device = place in others or place in recurrent
        stays = staying(node, others.get(place)) if on_device else ()
        stage = max((at + (there and name not in stays) for name in (*node.inputs, *node.captured)
                     for at, there in [stage_of.get(name, (0, False))]), default=0)
        stage_of.update({name: (stage, on_device) for name in node.outputs if name})
        if on_device:
            stages[stage].append(place)
    cut = (places[start:start + _MOST] for places in stages.values() for start in range(0, len(places), _MOST))
    return [group for group in cut if not recurrent.isdisjoint(group)], reasons


def _why_not(node: GraphNode, graph: NodeGraph, device: Device, options: Options, is_cpu: bool) -> str:
    """Why a recurrent node cannot run on the device, or should not; "" if it should."""
    constants: Mapping[str, Sequence[int]] = graph.constants
    if node.domain:
        if is_cpu:
            return "onnxruntime is faster at it on a CPU"
        if not has_constant_weights(node, constants):
            return "its weights are not all constants"
        constants = {**constants, **lstm_shapes(node, constants)}
        node = lstm(node)
    try:
        made = RecurrentNode(node, Session(), device, options)
        names, arrays, kind = made.fields, {}, graph.kinds.get(node.inputs[0], 0)
        w, r = (constants.get(names.get(field, ""), ()) for field in ("WeightTensor", "RecurrenceTensor"))
        hidden = r[-1] if r else made.hidden_size or (w[1] // len(made.cell.gates) if len(w) == 3 else 1)
        sizes = {"T": 1, "B": 1, "I": w[-1] if w else 1, "H": max(hidden, 1), "D": made.directions}
        for field in made.cell.inputs:
            if field in names:
                name, own = names[field], graph.kinds.get(names[field], kind)
                shape = constants.get(name) if field in WEIGHTS else None
                shape = onnx_shape(made.cell, field, int(made.is_batch_first), sizes) if shape is None else shape
                dtype = np.dtype((own < len(DTYPES) and DTYPES[own]) or object)
                size, most = math.prod(shape) * dtype.itemsize, device.info.max_storage_buffer_range
                if size > most:
                    return f"{name!r} has {size} bytes, of at most {most}"
                arrays[name] = np.empty(shape, dtype)
        made.settings.problem(made.operator, made.convert(arrays))
    except InvalidArgumentError as error:
        return str(error)
    return ""
