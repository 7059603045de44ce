"""onnxruntime's values, made of numpy's and read as numpy's, its errors and its options."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state

from ...engine.vulkan.driver import calls
from ...engine.vulkan.system import Lock
from ...errors import InvalidArgumentError, OnnxRuntimeError

# onnxruntime's exceptions have no common base class
_ONNXRUNTIME_ERRORS: tuple[type[Exception], ...] = (RuntimeError, ValueError, TypeError, *(
    cls for cls in vars(onnxruntime_pybind11_state).values() if isinstance(cls, type) and issubclass(cls, Exception)))

# Types of which onnxruntime neither takes nor returns numpy arrays
WITHOUT_ARRAYS: dict[int, np.dtype] = {kind: helper.tensor_dtype_to_np_dtype(kind) for kind in (
    TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ)}
_KINDS = {dtype: kind for kind, dtype in WITHOUT_ARRAYS.items()}
_switched = Lock()


def of_onnxruntime(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call onnxruntime; its exceptions become OnnxRuntimeErrors, which are of their classes, too: scripts catch those."""
    try:
        with calls:
            return call(*arguments, **keywords)
    except _ONNXRUNTIME_ERRORS as error:
        raise _error_class(type(error))(f"onnxruntime: {error}") from error  # type: ignore[arg-type]  # classes are hashable


@contextmanager
def switched(options: onnxruntime.SessionOptions, **values: Any) -> Iterator[None]:
    """The caller's options with other values while a session is opened: they cannot be copied with their custom operators."""
    with _switched:
        before = {name: getattr(options, name) for name in values}
        try:
            for name, value in values.items():
                setattr(options, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(options, name, value)


@cache
def _error_class(theirs: type[Exception]) -> type[OnnxRuntimeError]:
    if issubclass(OnnxRuntimeError, theirs):
        return OnnxRuntimeError
    return type("OnnxRuntimeError", (OnnxRuntimeError, theirs), {
        "__module__": OnnxRuntimeError.__module__, "__reduce__": lambda self: (OnnxRuntimeError, self.args)})


def feedable(value: Any) -> Any:
    """What onnxruntime's sessions take for an array."""
    return ort_value(value) if _kind(value) else value


def ort_value(value: Any) -> onnxruntime.OrtValue:
    """An OrtValue with memory of its own: what its numpy() returns can outlive the OrtValue, but not an array beneath it.

    value: an array or a sparse tensor. Raises OnnxRuntimeError for what has none, such as a sequence.
    """
    if isinstance(value, onnxruntime_pybind11_state.SparseTensor):
        return onnxruntime.OrtValue.ort_value_from_sparse_tensor(onnxruntime.SparseTensor(value))
    owning = onnxruntime.OrtValue.ortvalue_from_shape_and_type(value.shape, view(value).element_type())
    owning.update_inplace(_raw(value))
    return owning


def view(array: np.ndarray) -> onnxruntime.OrtValue:
    """An OrtValue in an array's memory."""
    kind = _kind(array)
    if kind:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(_raw(array), kind)
    return of_onnxruntime(onnxruntime.OrtValue.ortvalue_from_numpy, array)


def write(call: str, name: str, target: onnxruntime.OrtValue, result: Any) -> None:
    """Write a result to an OrtValue. Raises InvalidArgumentError for one of another shape or type."""
    made = ort_value(result)
    if (target.data_type(), target.shape()) != (made.data_type(), made.shape()):
        raise InvalidArgumentError(call, name, f"bound as {target.data_type()} {target.shape()}",
                                   f"{made.data_type()} {made.shape()}, the result's")
    target.update_inplace(_raw(result))


def array_of(value: onnxruntime.OrtValue) -> np.ndarray:
    """The array of an OrtValue. Raises RuntimeError where it has none."""
    if value.device_name() != "cpu" or not value.is_tensor() or value.element_type() not in WITHOUT_ARRAYS:
        return value.numpy()
    return array_at(value.data_ptr(), WITHOUT_ARRAYS[value.element_type()], value.shape()).copy()


def array_at(address: int, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """A view of the CPU's memory."""
    memory: Any = (ctypes.c_char * (prod(shape) * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


def _kind(value: Any) -> int | None:
    """ONNX's type of an array that onnxruntime does not take, else None."""
    return _KINDS.get(value.dtype) if isinstance(value, np.ndarray) else None


def _raw(array: np.ndarray) -> np.ndarray:
    """A view in a type that onnxruntime takes."""
    return array.view(f"u{array.itemsize}") if _kind(array) else array
