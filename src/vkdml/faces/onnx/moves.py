"""Nodes that only say where elements are, and those that compute with shapes for them: a table of what each does to arrays.

Sources: the ONNX operators of these names, in all versions that have the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .graph_nodes import GraphNode, refusing

Array = np.ndarray

_TO_THE_END = (2**31 - 1, 2**63 - 1)  # as the end of a Slice


class MovingNode:
    """A node that only moves elements. inputs, outputs: names. is_shape: it computes with shapes alone, before a run.

    known: the inputs whose elements say what moves, or are computed with; of others the shapes alone matter.
    """

    def __init__(self, node: GraphNode, is_shape: bool) -> None:
        self._function, data = MOVES[node.op_type]
        self.node, self.is_shape = node, is_shape
        self.inputs, self.outputs = list(filter(None, node.inputs)), node.outputs
        self.known = self.inputs if is_shape and node.op_type != "Shape" else list(filter(None, node.inputs[data:]))

    def run(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name: views, where numpy needs no copy. Raises InvalidArgumentError for what the node cannot take."""
        arrays = [values[name] if name else None for name in self.node.inputs]
        with refusing(self.node, arrays):
            return {name: array for name, array in zip(self.outputs, self._function(self.node, *arrays)) if name}


def move(node: GraphNode, constants: Mapping[str, Array | None], kinds: Mapping[str, int], shapes: Collection[str]
         ) -> MovingNode | None:
    """The node as a MovingNode; None for one that computes, or whose parameters are known only in a run.

    constants: arrays by name, None for large ones. kinds: ONNX's types of values. shapes: values computed with shapes alone.
    """
    if node.domain or node.op_type not in MOVES:
        return None
    is_known = [not name or name in constants or name in shapes for name in node.inputs]
    data = MOVES[node.op_type][1]
    is_shape = node.op_type == "Shape" or all(is_known[:data])
    does_more = {"Cast": node.attributes.get("to") != kinds.get(node.inputs[0]), "Dropout": _drops(node, constants),
                 **dict.fromkeys(_OF_SHAPES, not is_shape)}
    return MovingNode(node, is_shape) if all(is_known[data:]) and not does_more.get(node.op_type) else None


def _drops(node: GraphNode, constants: Mapping[str, Array | None]) -> bool:
    """Whether a Dropout drops anything, or tells what."""
    training = constants.get(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1)
    return any(node.outputs[1:]) or "is_test" in node.attributes or training is None or bool(training.any())


def _numbers(node: GraphNode, name: str, array: Array | None) -> list[int] | None:
    """A parameter that was an attribute in old versions and is an input since."""
    return node.attributes.get(name) if array is None else [int(number) for number in array.reshape(-1)]


def _squeeze(node: GraphNode, array: Array, axes: Array | None = None) -> Sequence[Array]:
    found = _numbers(node, "axes", axes)
    return [array.squeeze(tuple(found) if found else None)]


def _unsqueeze(node: GraphNode, array: Array, axes: Array | None = None) -> Sequence[Array]:
    return [np.expand_dims(array, tuple(_numbers(node, "axes", axes) or ()))]


def _reshape(node: GraphNode, array: Array, shape: Array | None = None) -> Sequence[Array]:
    sizes, keeps_zero = _numbers(node, "shape", shape) or [], node.attributes.get("allowzero", 0)
    return [array.reshape([array.shape[place] if size == 0 and not keeps_zero else size for place, size in enumerate(sizes)])]


def _flatten(node: GraphNode, array: Array) -> Sequence[Array]:
    axis = node.attributes.get("axis", 1)
    return [array.reshape(int(np.prod(array.shape[:axis])), int(np.prod(array.shape[axis:])))]


def _slice(node: GraphNode, array: Array, *given: Array | None) -> Sequence[Array]:
    names = "starts", "ends", "axes", "steps"
    starts, ends, axes, steps = map(_numbers, [node] * 4, names, (*given, *[None] * (4 - len(given))))
    if starts is None:
        raise ValueError("no starts")
    places = [slice(None)] * array.ndim
    each = zip(axes or range(len(starts)), starts, ends or (), steps or [1] * len(starts), strict=True)
    for axis, start, end, step in each:
        size = array.shape[axis]
        if step < 0:  # as onnxruntime reads it; numpy takes nothing here
            start, end = max(start, -size), -size - 1 if end in _TO_THE_END else end
        places[axis] = slice(start, end, step)
    return [array[tuple(places)]]


def _split(node: GraphNode, array: Array, split: Array | None = None) -> Sequence[Array]:
    axis, count, lengths = node.attributes.get("axis", 0), len(node.outputs), _numbers(node, "split", split)
    size = array.shape[axis]
    most = -(-size // count)
    parts = lengths or [min(most, size - most * place) for place in range(count)]
    if sum(parts) != size or min(parts) < 0 or not (lengths or size % count == 0 or "num_outputs" in node.attributes):
        raise ValueError(f"parts of {parts}")
    return np.split(array, np.cumsum(parts)[:-1], axis)


def _gather(node: GraphNode, array: Array, indices: Array) -> Sequence[Array]:
    axis = node.attributes.get("axis", 0)
    before = (slice(None),) * (axis % array.ndim)
    if indices.ndim == 0:
        return [array[(*before, int(indices))]]
    steps = set(np.diff(indices).tolist()) if indices.ndim == 1 and indices.size else {0}
    if len(steps) > 1 or min(steps, default=1) < 1 or indices[0] < 0 or indices[-1] >= array.shape[axis]:
        return [array.take(indices, axis)]
    return [array[(*before, slice(int(indices[0]), int(indices[-1]) + 1, min(steps, default=1)))]]


def _shape(node: GraphNode, array: Array) -> Sequence[Array]:
    return [np.array(array.shape[node.attributes.get("start", 0):node.attributes.get("end")], np.int64)]


def _pairwise(function: Callable[..., Any]) -> tuple[Callable[..., Sequence[Array]], int]:
    return lambda _, a, b: [np.asarray(function(a, b))], 2


def _same(node: GraphNode, array: Array, *_: Array | None) -> Sequence[Array]:
    return [array]


_OF_SHAPES = {"Add": _pairwise(np.add), "Mul": _pairwise(np.multiply), "Sub": _pairwise(np.subtract)}
# What a node makes of its inputs, of which so many are no parameters
MOVES: dict[str, tuple[Callable[..., Sequence[Array]], int]] = {
    "Cast": (_same, 1), "Dropout": (_same, 1), "Identity": (_same, 1), "Flatten": (_flatten, 1), "Gather": (_gather, 1),
    "Concat": (lambda node, *arrays: [np.concatenate(arrays, node.attributes.get("axis", 1))], 1 << 31),
    "Reshape": (_reshape, 1), "Shape": (_shape, 1), "Slice": (_slice, 1), "Split": (_split, 1), "Squeeze": (_squeeze, 1),
    "Transpose": (lambda node, array: [array.transpose(node.attributes.get("perm"))], 1), "Unsqueeze": (_unsqueeze, 1),
    **_OF_SHAPES}
