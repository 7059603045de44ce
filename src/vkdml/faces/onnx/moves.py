"""Nodes that only say where elements are, and those that compute with shapes for them: a table of what each does to arrays.

Sources: the ONNX operators of these names, in all versions that have the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from ...errors import InvalidArgumentError
from . import graphs
from .nodes import attribute_value

# What a node makes of arrays: views of them, where numpy needs no copy
Function = Callable[..., Sequence[np.ndarray]]


class Parameters:
    """What a node says beside its data. constants: arrays by name. dtypes: of values, as far as they are known."""

    def __init__(self, node: NodeProto, constants: Mapping[str, np.ndarray], kinds: Mapping[str, int]) -> None:
        self.node, self._constants, self._kinds = node, constants, kinds
        self._attributes = {entry.name: attribute_value(graphs.describe(node), entry) for entry in node.attribute}

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self._attributes.get(name, default)

    def array(self, name: str, place: int) -> np.ndarray | None:
        """A parameter that was an attribute in old versions and is an input since. Raises _NotAMoveError for a computed one."""
        given = list(self.node.input)[place:place + 1]
        if not given or not given[0]:
            value = self.get(name)
            return None if value is None else np.asarray(value)
        if given[0] not in self._constants:
            raise _NotAMoveError
        return self._constants[given[0]]

    def numbers(self, name: str, place: int) -> list[int] | None:
        array = self.array(name, place)
        return None if array is None else [int(number) for number in array.reshape(-1)]

    @property
    def kind(self) -> int | None:
        """The type of the first input."""
        return self._kinds.get(self.node.input[0])


class _NotAMoveError(Exception):
    """A parameter is not known before a run, or the node does more than move elements."""


class Move:
    """A node that only moves elements. inputs, outputs: names. is_shape: it computes with shapes alone, before a run.
    kind: ONNX's type of the outputs, where it is another than the input's.
    """

    def __init__(self, node: NodeProto, inputs: Sequence[str], function: Function, is_shape: bool) -> None:
        self.node, self.is_shape, self.kind = node, is_shape, TensorProto.INT64 if is_shape else None
        self.inputs, self.outputs = list(inputs), list(node.output)
        self._function = function

    def of(self, *arrays: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs by name. Raises InvalidArgumentError for arrays that the node cannot take."""
        with refusing(self.node, arrays):
            return {name: array for name, array in zip(self.outputs, self._function(*arrays), strict=True) if name}


@contextmanager
def refusing(node: NodeProto, arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """What numpy raises for arrays that a node cannot take is an InvalidArgumentError."""
    try:
        yield
    except (IndexError, ValueError) as error:  # numpy's AxisError is both
        found = " and ".join(f"the shape {array.shape}" for array in arrays)
        raise InvalidArgumentError(graphs.describe(node), "input", f"{found} ({error})", "what the node takes") from None


def move(node: NodeProto, constants: Mapping[str, np.ndarray], kinds: Mapping[str, int], shapes: Collection[str]
         ) -> Move | None:
    """The node as a Move; None for one that computes, or whose parameters are not constants.

    kinds: ONNX's types of values, as far as they are known. shapes: values that are computed with shapes alone.
    """
    make = _FUNCTIONS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if make is None:
        return None
    data = list(node.input[:_DATA.get(node.op_type, 1)])
    is_shape = node.op_type == "Shape" or all(name in constants or name in shapes for name in data)
    if node.op_type in _OF_SHAPES and not is_shape:
        return None
    if node.op_type == "Reshape" and node.input[1:] and node.input[1] in shapes:
        return Move(node, node.input, _reshaped, is_shape)
    try:
        return Move(node, data, make(Parameters(node, constants, kinds)), is_shape)
    except _NotAMoveError:
        return None


def _squeeze(given: Parameters) -> Function:
    axes = given.numbers("axes", 1)
    return lambda array: [array.squeeze(tuple(axes) if axes else None)]


def _unsqueeze(given: Parameters) -> Function:
    axes = given.numbers("axes", 1) or []
    return lambda array: [np.expand_dims(array, tuple(axes))]


def _transpose(given: Parameters) -> Function:
    return lambda array: [array.transpose(given.get("perm"))]


def _reshape(given: Parameters) -> Function:
    sizes, keeps_zero = given.array("shape", 1), given.get("allowzero", 0)
    if sizes is None:
        raise _NotAMoveError
    return lambda array: _reshaped(array, sizes, keeps_zero)


def _reshaped(array: np.ndarray, sizes: np.ndarray, keeps_zero: int = 0) -> list[np.ndarray]:
    return [array.reshape([array.shape[place] if size == 0 and not keeps_zero else size for place, size in enumerate(sizes)])]


def _flatten(given: Parameters) -> Function:
    def flattened(array: np.ndarray) -> list[np.ndarray]:
        axis = given.get("axis", 1)
        rows = int(np.prod(array.shape[:axis]))
        return [array.reshape(rows, array.size // rows if rows else 0)]
    return flattened


def _dropout(given: Parameters) -> Function:
    training = given.array("is_training", 2)
    if len(given.node.output) > 1 or (training is not None and training.any()) or given.get("is_test") is not None:
        raise _NotAMoveError
    return _same


def _cast(given: Parameters) -> Function:
    if given.get("to") != given.kind:
        raise _NotAMoveError
    return _same


def _same(array: np.ndarray) -> list[np.ndarray]:
    return [array]


def _slice(given: Parameters) -> Function:
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (given.numbers(name, place) for place, name in enumerate(names, 1))
    if starts is None or ends is None or (steps and min(steps) < 1):
        raise _NotAMoveError
    slices = [slice(*ends) for ends in zip(starts, ends, steps or [1] * len(starts), strict=True)]

    def sliced(array: np.ndarray) -> list[np.ndarray]:
        places = [slice(None)] * array.ndim
        for axis, part in zip(axes or range(len(slices)), slices, strict=True):
            places[axis] = part
        return [array[tuple(places)]]
    return sliced


def _split(given: Parameters) -> Function:
    lengths = given.numbers("split", 1)
    count = len(given.node.output)

    def split(array: np.ndarray) -> list[np.ndarray]:
        axis = given.get("axis", 0)
        size = array.shape[axis]
        most = -(-size // count)
        parts = lengths or [min(most, size - most * place) for place in range(count)]
        if sum(parts) != size:
            raise ValueError(f"parts of {parts}")
        return np.split(array, np.cumsum(parts)[:-1], axis)
    return split


def _gather(given: Parameters) -> Function:
    indices = given.array("indices", 1)
    axis = given.get("axis", 0)
    if indices is None or indices.ndim > 1 or indices.size == 0:
        raise _NotAMoveError
    if indices.ndim == 0:
        index = int(indices)
        return lambda array: [array[(slice(None),) * (axis % array.ndim) + (index,)]]
    first, step = int(indices[0]), int(indices[1] - indices[0]) if indices.size > 1 else 1
    last = first + step * (indices.size - 1)
    if step < 1 or first < 0 or (indices != np.arange(first, last + 1, step)).any():
        raise _NotAMoveError

    def gathered(array: np.ndarray) -> list[np.ndarray]:
        if last >= array.shape[axis]:
            raise IndexError(f"index {last}")
        return [array[(slice(None),) * (axis % array.ndim) + (slice(first, last + 1, step),)]]
    return gathered


def _concat(given: Parameters) -> Function:
    return lambda *arrays: [np.concatenate(arrays, given.get("axis", 1))]


def _shape(given: Parameters) -> Function:
    return lambda array: [np.array(array.shape[given.get("start", 0):given.get("end")], np.int64)]


def _pairwise(function: Callable[..., np.ndarray]) -> Callable[[Parameters], Function]:
    return lambda _: lambda a, b: [function(a, b)]


_OF_SHAPES = {"Add": _pairwise(np.add), "Mul": _pairwise(np.multiply), "Sub": _pairwise(np.subtract)}
_DATA = {"Concat": None, **dict.fromkeys(_OF_SHAPES, 2)}  # how many inputs are no parameters, if not one; None: all
_FUNCTIONS: dict[str, Callable[[Parameters], Function]] = {
    "Cast": _cast, "Concat": _concat, "Dropout": _dropout, "Flatten": _flatten, "Gather": _gather, "Identity": lambda _: _same,
    "Reshape": _reshape, "Slice": _slice, "Split": _split, "Squeeze": _squeeze, "Transpose": _transpose,
    "Shape": _shape, "Unsqueeze": _unsqueeze, **_OF_SHAPES}
