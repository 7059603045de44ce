"""What is fed to a session and what it returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, TypeProto, ValueInfoProto, helper

from ...errors import InvalidArgumentError, shown
from ...operators.arguments import as_array
from . import graphs
from .ort_values import array_of


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model, as onnxruntime.NodeArg has it.

    type: such as "tensor(float)". shape: a number, the name of a dynamic dimension or None for each dimension.
    """

    name: str
    type: str
    shape: list[int | str | None]


class Inputs:
    """The inputs that must be fed, as the model declares them."""

    def __init__(self, declared: Sequence[ValueInfoProto]) -> None:
        self._declared = {value.name: value for value in declared}
        self._tensors = {value.name: (helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), graphs.sizes(value))
                         for value in declared if value.type.HasField("tensor_type")}

    @property
    def args(self) -> list[NodeArg]:
        return [node_arg(value, value.type) for value in self._declared.values()]

    def feed(self, input_feed: Mapping[str, Any], others: Mapping[str, Any] = {}) -> list[Any]:
        """The inputs in order; optional ones may be missing. Refuses other types and sizes than the model declares.

        others: values for some inputs, which are not in the feed then.
        """
        if not isinstance(input_feed, Mapping):
            raise InvalidArgumentError("run", "input_feed", type(input_feed).__name__, "a dictionary of arrays by name")
        names = [name for name in self._declared if name not in others]
        expect_names("input_feed", input_feed, names)
        missing = [name for name in names if name not in input_feed and not self._declared[name].type.HasField("optional_type")]
        if missing:
            raise InvalidArgumentError("run", "input_feed", f"nothing for {missing[0]!r}", "all of " + ", ".join(names))
        given = {**dict.fromkeys(self._declared), **input_feed, **others}
        return [self.check(name, given[name]) for name in self._declared]

    def check(self, name: str, value: Any) -> Any:
        """The value for an input, as an array. Refuses other types and sizes than declared; onnxruntime checks sequences."""
        if name not in self._tensors:
            return value
        if isinstance(value, onnxruntime.OrtValue):
            value = _array_of(name, value)
        array = as_array("run", f"input_feed: {name}", value)
        declared, (dtype, sizes) = self._declared[name], self._tensors[name]
        tensor = declared.type.tensor_type
        if isinstance(value, list | int | float):
            array = _converted(name, array, dtype)
        is_text = array.dtype.kind in "OUS" or array.dtype.type is np.void  # void: with what it holds behind a zero byte
        if array.dtype != dtype and not (tensor.elem_type == TensorProto.STRING and is_text):
            raise InvalidArgumentError("run", f"input_feed: {name}", array.dtype, str(dtype))
        fits = array.ndim == len(sizes) and all(size in (None, found) for size, found in zip(sizes, array.shape))
        if tensor.HasField("shape") and not fits:
            raise InvalidArgumentError("run", f"input_feed: {name}", f"the shape {array.shape}",
                                       str(node_arg(declared, declared.type).shape))
        return array

    def zeros(self, name: str) -> np.ndarray:
        """Zeros for an input that is a tensor of numbers. Sizes that the model does not declare are 1."""
        dtype, sizes = self._tensors[name]
        return np.zeros([1 if size is None else size for size in sizes], dtype)


def _converted(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A list or number in the declared type, as onnxruntime converts lists. Refuses numbers that the type does not hold."""
    if array.dtype.kind not in "biuf" or dtype.kind not in "biufV":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype)
    is_kept = np.isfinite(converted.astype(np.float64)) == np.isfinite(array)
    if dtype.kind in "biu":
        is_kept &= converted == array
    if not is_kept.all():
        raise InvalidArgumentError("run", f"input_feed: {name}", array[~is_kept].flat[0], f"numbers that {dtype} holds")
    return converted


def _array_of(name: str, value: onnxruntime.OrtValue) -> np.ndarray:
    try:
        return array_of(value)
    except RuntimeError:
        raise InvalidArgumentError("run", f"input_feed: {name}", f"an OrtValue, {value.data_type()}", "an array") from None


def expect_names(argument: str, names: Collection[str] | None, allowed: Sequence[str]) -> list[str]:
    """Names as a list, empty for None. Raises InvalidArgumentError for others than are allowed."""
    if isinstance(names, str) or not isinstance(names, Sequence | Set | Mapping | None):
        raise InvalidArgumentError("run", argument, shown(names), "a list of names")
    known = set(allowed)
    for name in () if names is None else names:
        if not isinstance(name, str) or name not in known:
            raise InvalidArgumentError("run", argument, shown(name), "one of " + ", ".join(allowed))
    return [] if names is None else list(names)


def own(result: Any, fed: Sequence[Any]) -> Any:
    """The result, copied if it is a constant of the model or an array that was fed, so that the caller may write to it."""
    is_shared = isinstance(result, np.ndarray) and (not result.flags.writeable or any(result is value for value in fed))
    return result.copy() if is_shared else result


def node_arg(value: ValueInfoProto, kind: TypeProto) -> NodeArg:
    """An input or output as callers see it, with the value's shape. kind: its type, which may be inferred."""
    names = [None if dim.dim_param.startswith("unk__") else dim.dim_param or None for dim in graphs.dimensions(value)]
    return NodeArg(value.name, graphs.type_name(kind),
                   [name if size is None else size for name, size in zip(names, graphs.sizes(value))])
