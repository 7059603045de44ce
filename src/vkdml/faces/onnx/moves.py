"""Nodes that only say where elements are, and those that compute with shapes for them: a table of what each does to arrays.

Sources: the ONNX operators of these names, in all versions that have the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...errors import InvalidArgumentError
from .nodes import GraphNode

INT64 = 7  # ONNX's number of the type

# What a node makes of arrays: views of them, where numpy needs no copy
Function = Callable[..., Sequence[np.ndarray]]


class Parameters:
    """What a node says beside its data. constants: arrays by name. kinds: ONNX's types of values."""

    def __init__(self, node: GraphNode, constants: Mapping[str, np.ndarray], kinds: Mapping[str, int]) -> None:
        self.node, self._constants, self._kinds = node, constants, kinds

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.node.attributes.get(name, default)

    def array(self, name: str, place: int) -> np.ndarray | None:
        """A parameter that was an attribute in old versions and is an input since. Raises _NotAMoveError for a computed one."""
        given = self.node.inputs[place:place + 1]
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
        return self._kinds.get(self.node.inputs[0])


class _NotAMoveError(Exception):
    """A parameter is not known before a run, or the node does more than move elements."""


class Move:
    """A node that only moves elements. inputs, outputs: names. is_shape: it computes with shapes alone, before a run."""

    def __init__(self, node: GraphNode, inputs: Sequence[str], function: Function, is_shape: bool) -> None:
        self.node, self.is_shape = node, is_shape
        self.inputs, self.outputs = list(inputs), node.outputs
        self._function = function

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs by name. Raises InvalidArgumentError for arrays that the node cannot take."""
        arrays = [values[name] for name in self.inputs]
        with refusing(self.node, arrays):
            return {name: array for name, array in zip(self.outputs, self._function(*arrays), strict=True) if name}


@contextmanager
def refusing(node: GraphNode, arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """What numpy raises for arrays that a node cannot take becomes an InvalidArgumentError."""
    try:
        yield
    except InvalidArgumentError:
        raise
    except (IndexError, MemoryError, OverflowError, TypeError, ValueError) as error:  # numpy's AxisError is two of them
        found = " and ".join(f"the shape {array.shape}" for array in arrays)
        raise InvalidArgumentError(str(node), "input", f"{found} ({error})", "what the node takes") from None


def move(node: GraphNode, constants: Mapping[str, np.ndarray], kinds: Mapping[str, int], shapes: Collection[str]
         ) -> Move | None:
    """The node as a Move; None for one that computes, or whose parameters are not constants.

    constants: arrays by name. kinds: ONNX's types of values. shapes: values that are computed with shapes alone.
    """
    make = _FUNCTIONS.get(node.op_type) if not node.domain else None
    if make is None:
        return None
    data = node.inputs[:_DATA.get(node.op_type, 1)]
    is_shape = node.op_type == "Shape" or all(name in constants or name in shapes for name in data)
    if node.op_type in _OF_SHAPES and not is_shape:
        return None
    if node.op_type == "Reshape" and node.inputs[1:] and node.inputs[1] in shapes:
        keeps_zero = node.attributes.get("allowzero", 0)
        return Move(node, node.inputs, lambda array, sizes: _reshaped(array, sizes, keeps_zero), is_shape)
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


def _reshaped(array: np.ndarray, sizes: np.ndarray, keeps_zero: int) -> list[np.ndarray]:
    return [array.reshape([array.shape[place] if size == 0 and not keeps_zero else size for place, size in enumerate(sizes)])]


def _flatten(given: Parameters) -> Function:
    def flattened(array: np.ndarray) -> list[np.ndarray]:
        axis = given.get("axis", 1)
        rows = int(np.prod(array.shape[:axis]))
        return [array.reshape(rows, array.size // rows if rows else int(np.prod(array.shape[axis:])))]
    return flattened


def _dropout(given: Parameters) -> Function:
    training = given.array("training_mode", 2)
    if any(given.node.outputs[1:]) or (training is not None and training.any()) or given.get("is_test") is not None:
        raise _NotAMoveError
    return _same


def _cast(given: Parameters) -> Function:
    if given.get("to") != given.kind:
        raise _NotAMoveError
    return _same


def _same(array: np.ndarray) -> list[np.ndarray]:
    return [array]


def _slice(given: Parameters) -> Function:
    starts, ends, axes, steps = (given.numbers(name, place) for place, name in enumerate(("starts", "ends", "axes", "steps"), 1))
    if starts is None or ends is None:
        raise _NotAMoveError
    slices = [slice(*parts) for parts in zip(starts, ends, steps or [1] * len(starts), strict=True)]

    def sliced(array: np.ndarray) -> list[np.ndarray]:
        places = [slice(None)] * array.ndim
        for axis, part in zip(axes or range(len(slices)), slices, strict=True):
            places[axis] = part
        return [array[tuple(places)]]
    return sliced


def _split(given: Parameters) -> Function:
    lengths = given.numbers("split", 1)
    count = len(given.node.outputs)

    def split(array: np.ndarray) -> list[np.ndarray]:
        axis = given.get("axis", 0)
        size = array.shape[axis]
        most = -(-size // count)
        parts = lengths or [min(most, size - most * place) for place in range(count)]
        if sum(parts) != size or min(parts) < 0 or not (lengths or size % count == 0 or given.get("num_outputs")):
            raise ValueError(f"parts of {parts}")
        return np.split(array, np.cumsum(parts)[:-1], axis)
    return split


def _gather(given: Parameters) -> Function:
    indices = given.array("indices", 1)
    axis = given.get("axis", 0)
    if indices is None:
        raise _NotAMoveError
    gaps = set(np.diff(indices).tolist()) if indices.ndim == 1 else set()
    if indices.ndim == 0:
        index = int(indices)
        return lambda array: [array[(slice(None),) * (axis % array.ndim) + (index,)]]
    if len(gaps) > 1 or min(gaps, default=1) < 1 or indices.ndim != 1 or indices.size == 0 or indices[0] < 0:
        return lambda array: [array.take(indices, axis)]
    first, last, step = int(indices[0]), int(indices[-1]), min(gaps, default=1)

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
    return lambda _: lambda a, b: [np.asarray(function(a, b))]


_OF_SHAPES = {"Add": _pairwise(np.add), "Mul": _pairwise(np.multiply), "Sub": _pairwise(np.subtract)}
_DATA = {"Concat": None, **dict.fromkeys(_OF_SHAPES, 2)}  # how many inputs are no parameters, if not one; None: all
_FUNCTIONS: dict[str, Callable[[Parameters], Function]] = {
    "Cast": _cast, "Concat": _concat, "Dropout": _dropout, "Flatten": _flatten, "Gather": _gather, "Identity": lambda _: _same,
    "Reshape": _reshape, "Slice": _slice, "Split": _split, "Squeeze": _squeeze, "Transpose": _transpose,
    "Shape": _shape, "Unsqueeze": _unsqueeze, **_OF_SHAPES}
