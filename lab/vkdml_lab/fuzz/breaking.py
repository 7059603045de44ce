"""WRONG, a table of functions by kind of argument. Each turns a right value into a wrong one, which every call must refuse.

No wrong value may be right by accident. So the size of the last dimension changes, which must fit another array's, but never T
or B, which may be free. Inputs get one more element and weights two, so that an input and weights that are both broken never
fit each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import vkdml
import vkdml.pydirectml as dml

Wrong = Callable[[Any], Any]


@dataclass(frozen=True)
class Argument:
    """An argument's right value. kind: the key of its wrong values in the table WRONG, or None if it is never broken."""

    value: Any
    kind: str | None


def _longer(array: np.ndarray, axis: int, by: int = 1) -> np.ndarray:
    return np.concatenate([array, array.take([0] * by, axis)], axis)


def _one_more(array: np.ndarray) -> np.ndarray:
    return _longer(array, -1)


def _without_last(array: np.ndarray) -> np.ndarray:
    return array[..., 0]


_ANY_ARRAY: list[Wrong] = [
    lambda array: array[None],
    _without_last,
    _one_more,
    lambda array: array[..., :0],
    lambda array: array.astype(np.complex64),
    lambda array: array.astype(object),
    lambda array: "no array",
    lambda array: [[1.0], [1.0, 2.0]],
    lambda array: {"no": "array"},
]
def _one_more_size(desc: Any) -> Any:
    return replace(desc, Sizes=(*desc.Sizes[:-1], desc.Sizes[-1] + 1))


_TENSOR: list[Wrong] = [
    lambda desc: "no tensor",
    lambda desc: replace(desc, DataType=vkdml.DML_TENSOR_DATA_TYPE.UINT8),
    lambda desc: replace(desc, DataType=99),
    lambda desc: replace(desc, Sizes=desc.Sizes[1:]),
    _one_more_size,
    lambda desc: replace(desc, Sizes=(*desc.Sizes[:-1], 0)),
    lambda desc: replace(desc, Sizes=(*desc.Sizes[:-1], 1.5)),
    lambda desc: replace(desc, Sizes=None),
    lambda desc: replace(desc, Strides=(1,)),
    lambda desc: replace(desc, Strides=(-1, 1, 1, 1)),
    lambda desc: replace(desc, Strides="abcd"),
    lambda desc: replace(desc, Flags=7),
    lambda desc: replace(desc, TotalTensorSizeInBytes=2),
    lambda desc: replace(desc, TotalTensorSizeInBytes=2**40),
    lambda desc: replace(desc, GuaranteedBaseOffsetAlignment=3),
    lambda desc: replace(desc, DimensionCount=3),
]
_EXPRESSION: list[Wrong] = [lambda given: "no expression", lambda given: dml.Expression(), lambda given: np.zeros(4, np.float32),
                            lambda given: 0]


# Tensors of PyTorch's twins
_ANY_TENSOR: list[Wrong] = [
    lambda tensor: tensor[..., :0], lambda tensor: tensor.unsqueeze(0), lambda tensor: tensor.to("meta"),
    lambda tensor: tensor.int(), lambda tensor: tensor.cfloat(), lambda tensor: tensor.to_sparse()]


def _transposed(array: np.ndarray) -> np.ndarray:
    """Return the array with its last two dimensions exchanged, or if they are equal, with one more dimension."""
    return array.swapaxes(-1, -2) if array.shape[-1] != array.shape[-2] else array[None]


def _of_doubles(array: np.ndarray) -> Any:
    """Return the array as a list, which numpy would convert to float64; but if the array is float64, return a complex one."""
    return array.astype(np.complex64) if array.dtype == np.float64 else array.astype(np.float64).tolist()


def _wider(tensor: Any, by: int) -> Any:
    return tensor[..., [*range(tensor.shape[-1]), *[0] * by]]


def _value(wrong: Any) -> Wrong:
    return lambda right: wrong


WRONG: dict[str, list[Wrong]] = {
    "array": _ANY_ARRAY,
    "required array": [*_ANY_ARRAY, _value(None), _of_doubles],
    # if T or B equals I, a stream may take an array without its last dimension as the B x I input of one step
    "stream's input": [*(wrong for wrong in _ANY_ARRAY if wrong is not _without_last), _value(None), _of_doubles],
    "weights": [*(wrong for wrong in _ANY_ARRAY if wrong is not _one_more), lambda array: _longer(array, -1, 2), _value(None),
                lambda array: _longer(array, 0), lambda array: _longer(array, 1), _transposed],
    "lengths": [lambda array: array[None], lambda array: _longer(array, -1), lambda array: array + 1000, lambda array: array - 1000,
                lambda array: array.astype(np.float32), lambda array: array.astype(np.complex64), _value("no lengths"), _value(3)],
    "direction": [*map(_value, ["sideways", "", 3, None, ["forward"], b"forward", 1.5])],
    "activations": [_value("Tanh"), _value(5), _value([]), lambda given: [*given, "Tanh", "Tanh"], lambda given: ["Nonsense"] * len(given),
                    lambda given: [None] * len(given), lambda given: [1.5] * len(given),
                    lambda given: [vkdml.DML_GRU_OPERATOR_DESC] * len(given)],
    "numbers": [*map(_value, ["abc", [None], 5, ["1"], [1j], {}])],
    "clip": [*map(_value, [-1.0, float("nan"), float("inf"), "1", 1e39, [1.0], 1j, {}])],
    "BOOL": [*map(_value, ["yes", None, 0.5, [], np.float32(1)])],
    "layout": [*map(_value, [2, -1, "0", None, 1.5, []])],
    "options": [*map(_value, ["fast", None, {}, 3])],
    "device": [*map(_value, ["no such device", 3.5, [], 999, b"x"])],
    "batch": [*map(_value, [0, -1, "1", None, 1.5, []])],
    "state": [_value(None), _value({}), _value("no state"), lambda state: {**state, "no_such": np.zeros(1)},
              lambda state: {name: array[..., :0] for name, array in state.items()},
              lambda state: {name: _longer(array, -1) for name, array in state.items()},
              lambda state: dict.fromkeys(state), lambda state: dict.fromkeys(state, "no array")],
    "tensor": _TENSOR,
    "required tensor": [*_TENSOR, _value(None)],
    "weights tensor": [*(wrong for wrong in _TENSOR if wrong is not _one_more_size), _value(None),
                       lambda desc: replace(desc, Sizes=(*desc.Sizes[:-1], desc.Sizes[-1] + 2))],
    "output tensor": [*_TENSOR, lambda desc: replace(desc, Strides=(0,) * 4, Sizes=(*desc.Sizes[:-1], desc.Sizes[-1] + 1))],
    "fused": [_value(None), _value([]), _value("Tanh"), lambda given: [*given, given[0]], lambda given: [None] * len(given),
              lambda given: ["Tanh"] * len(given), lambda given: [vkdml.DML_ACTIVATION_ELU_OPERATOR_DESC(Alpha=float("nan"))] * len(given),
              lambda given: [vkdml.DML_ACTIVATION_SOFTPLUS_OPERATOR_DESC(Steepness=0)] * len(given)],
    "direction number": [*map(_value, [3, -1, "forward", None, 1.5, []])],
    "buffer": [*map(_value, [None, "no buffer", 17]), lambda buffer: np.zeros(buffer.size_in_bytes // 4, np.float32)],
    "clip attribute": [*map(_value, ["1", [1.0], -1.0, float("nan")])],
    "activations attribute": [*map(_value, ["Tanh", 5, [1.5], ["Nonsense"], ["Tanh"] * 9])],
    "numbers attribute": [*map(_value, ["abc", 5, ["1"]])],
    "direction attribute": [*map(_value, ["sideways", 3, ["forward"], 1.5])],
    "flag attribute": [*map(_value, ["yes", 0.5, [1]])],
    "layout attribute": [*map(_value, [2, -1, "yes", 0.5, [1]])],
    "hidden size": [lambda size: size + 1, *map(_value, ["8", 0, -1, 1.5, [8]])],
    "no attribute": [*map(_value, [1, 1.5, "text", [1]])],
    "opset": [*map(_value, [0, -3, "14", 1.5, []])],
    "feed": [*_ANY_ARRAY, lambda array: array.astype(np.int8)],
    "names": [*map(_value, [["no such"], "y", [3], [None]])],
    "expression": _EXPRESSION,
    "required expression": [*_EXPRESSION, _value(None)],
    "fused activations": [*map(_value, [None, [], "Tanh", [None], ["Tanh"], 3])],
    "enumeration": [*map(_value, [None, 17, "FORWARD", []])],
    "data": [lambda array: array.reshape(-1)[:-1], lambda array: _longer(array, 0), _value("no data"), _value(None),
             lambda array: array.astype(np.complex64), _value([[1.0], [1.0, 2.0]])],
    "module's parameter": [*_ANY_TENSOR, lambda tensor: _wider(tensor, 2)],
    "module's input": [*_ANY_TENSOR, lambda tensor: _wider(tensor, 1), lambda tensor: tensor.numpy,
                       *map(_value, [None, "no tensor", 3, []])],
    "module's states": [lambda states: states[:-1], lambda states: (*states, states[0]),
                        lambda states: tuple(tensor.int() for tensor in states),
                        lambda states: tuple(_wider(tensor, 1) for tensor in states),
                        lambda states: tuple(tensor[:0] for tensor in states), lambda states: tuple(tensor[0, 0] for tensor in states),
                        lambda states: tuple(tensor[:, :-1] for tensor in states),
                        lambda states: tuple(tensor.to("meta") for tensor in states), *map(_value, ["no states", 3, [None, None], [[1.0]]])],
    "training": [_value(True)],
}


def broken(arguments: Mapping[str, Argument], breaks: tuple[tuple[int, int], ...]) -> tuple[dict[str, Any], set[str]]:
    """Return the arguments' values, some made wrong, and the names of these. breaks: index pairs (argument, wrong value)."""
    values, wrong_ones = {name: argument.value for name, argument in arguments.items()}, set()
    names = [name for name, argument in arguments.items() if argument.kind]
    for which, how in breaks:
        name = names[which % len(names)]
        wrong = WRONG[str(arguments[name].kind)]
        values[name] = wrong[how % len(wrong)](arguments[name].value)
        wrong_ones.add(name)
    return values, wrong_ones
