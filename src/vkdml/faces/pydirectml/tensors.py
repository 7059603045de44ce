"""PyDirectML's tensors: their descriptions, and their data.

Source: TensorDesc, TensorPolicy and TensorData in Python/src/module.cpp and model.h, and Libraries/DirectMLX.h, of
microsoft/DirectML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, ClassVar

import numpy as np

from ...engine.weights import constant
from ...errors import InvalidArgumentError
from ...operators.checks import MAX_TENSOR_BYTES, check_tensor, integers
from ...operators.element_types import ITEMSIZES
from ...operators.header.descs import DML_BUFFER_TENSOR_DESC, DML_TENSOR_DATA_TYPE, DML_TENSOR_FLAGS

Dimensions = list  # the type of sizes and strides; arguments may be any sequence of whole numbers


class TensorPolicy:
    """The strides of a TensorDesc, given its sizes. Source: DirectMLX's TensorPolicy.

    There are two: `default` is packed; `interleaved_channel` has dimension 1 innermost (sizes NCHW, memory NHWC).
    """

    default: ClassVar[TensorPolicy]
    interleaved_channel: ClassVar[TensorPolicy]

    def __init__(self, strides: Callable[[Sequence[int]], Sequence[int] | None]) -> None:
        if not callable(strides):
            raise InvalidArgumentError("pydirectml", "TensorPolicy", type(strides).__name__, "a function of sizes")
        self.strides = strides


def _interleaved(sizes: Sequence[int]) -> list[int]:
    innermost_last = [dim for dim in (0, *range(2, len(sizes)), 1) if dim < len(sizes)]
    return [math.prod(sizes[inner] for inner in innermost_last[innermost_last.index(dim) + 1:]) for dim in range(len(sizes))]


TensorPolicy.default = TensorPolicy(lambda sizes: None)
TensorPolicy.interleaved_channel = TensorPolicy(_interleaved)


_OVERLOADS = (
    ("data_type", "sizes", "tensor_policy"),
    ("data_type", "flags", "sizes", "tensor_policy"),
    ("data_type", "sizes", "strides"),
    ("data_type", "flags", "sizes", "strides", "total_tensor_size_in_bytes", "guaranteed_base_offset_alignment"),
)
_OPTIONAL = {"tensor_policy"}
_TYPES: dict[str, Any] = {
    "data_type": DML_TENSOR_DATA_TYPE, "flags": DML_TENSOR_FLAGS, "sizes": (Sequence, np.ndarray),
    "strides": (Sequence, np.ndarray, NoneType), "tensor_policy": TensorPolicy,
    "total_tensor_size_in_bytes": (int, np.integer), "guaranteed_base_offset_alignment": (int, np.integer),
}


def _resolve(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the first overload that they fit."""
    for names in _OVERLOADS:
        given = dict(zip(names, args)) | kwargs
        is_complete = set(names) - _OPTIONAL <= set(given) <= set(names) and len(given) == len(args) + len(kwargs)
        if is_complete and all(isinstance(value, _TYPES[name]) for name, value in given.items()):
            return given
    found = [type(value).__name__ for value in args] + [f"{name}: {type(value).__name__}" for name, value in kwargs.items()]
    allowed = " or ".join(f"({', '.join(names)})" for names in _OVERLOADS)
    raise InvalidArgumentError("pydirectml", "TensorDesc", f"({', '.join(found)})", allowed)


def _dtype(data_type: DML_TENSOR_DATA_TYPE) -> np.dtype:
    return np.dtype(data_type.name.lower())  # DirectML's names are numpy's, in capitals


class TensorDesc:
    """A tensor's type, flags, sizes (1 to 8 dimensions) and memory layout. Source: PyDirectML's TensorDesc. Its overloads:

        TensorDesc(data_type, sizes, tensor_policy=TensorPolicy.default)
        TensorDesc(data_type, flags, sizes, tensor_policy=TensorPolicy.default)
        TensorDesc(data_type, sizes, strides)
        TensorDesc(data_type, flags, sizes, strides, total_tensor_size_in_bytes, guaranteed_base_offset_alignment)

    data_type may be any but UNKNOWN; operators take FLOAT32 and FLOAT16, and UINT32 for sequence lengths. Strides count
    elements; None is packed. OWNED_BY_DML means that an input is bound when a model is initialized, which DirectML does not
    support for the weights of recurrent operators. It has no effect here, because Device.compute binds all at each call and
    packs weights when they have changed.

    Raises InvalidArgumentError for arguments that fit no overload, and for sizes, strides and a total size that contradict
    each other.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _resolve(args, kwargs)
        sizes = integers("pydirectml", "TensorDesc.sizes", given["sizes"], 1)
        policy = given.get("tensor_policy", TensorPolicy.default)
        self._flags = given.get("flags", DML_TENSOR_FLAGS.NONE)
        # The flags are left out: OWNED_BY_DML is meant for the graph.
        self.buffer_desc = DML_BUFFER_TENSOR_DESC(
            DataType=given["data_type"], Sizes=sizes, Strides=given["strides"] if "strides" in given else policy.strides(sizes),
            TotalTensorSizeInBytes=given.get("total_tensor_size_in_bytes"),
            GuaranteedBaseOffsetAlignment=given.get("guaranteed_base_offset_alignment", 0))
        self._tensor = check_tensor("pydirectml", "TensorDesc", self.buffer_desc, ITEMSIZES, range(1, 9))

    @property
    def data_type(self) -> DML_TENSOR_DATA_TYPE:
        return self._tensor.data_type

    @property
    def flags(self) -> DML_TENSOR_FLAGS:
        return self._flags

    @property
    def sizes(self) -> list[int]:
        return Dimensions(self._tensor.sizes)

    @property
    def strides(self) -> list[int] | None:
        return None if self.buffer_desc.Strides is None else Dimensions(self._tensor.strides)

    @property
    def total_tensor_size_in_bytes(self) -> int:
        return self._tensor.size_in_bytes

    @property
    def guaranteed_base_offset_alignment(self) -> int:
        return self.buffer_desc.GuaranteedBaseOffsetAlignment

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        return f"dml.TensorDesc of type {self.data_type.value} and shape [{sizes}] with flags {self.flags.value}"

    def to_memory(self, call: str, data: Any) -> np.ndarray:
        """A constant, flat copy of data in the tensor's type, as the tensor's memory. Data end at the last element, or at the
        end of the total size.

        Data for a tensor of floats are converted, with rounding, as PyDirectML does. Data that a tensor of integers cannot hold
        are refused. But float32 data for a tensor of 32-bit integers are taken as their bits: PyDirectML accepts float32 only,
        so that scripts pass integers.view(float32).
        """
        dtype = _dtype(self.data_type)
        try:
            array = np.asarray(data)
        except ValueError:
            raise InvalidArgumentError(call, "data", "lists of different lengths", "an array") from None
        if dtype.kind in "iu" and dtype.itemsize == 4 and array.dtype == np.float32:
            array = np.ascontiguousarray(array).view(dtype)
        if not np.can_cast(array.dtype, np.float64, "same_kind"):
            raise InvalidArgumentError(call, "data", array.dtype, f"numbers, for a tensor of {self.data_type.name}")
        counts = sorted({self._tensor.size_of_elements, self.total_tensor_size_in_bytes // dtype.itemsize})
        if array.size not in counts:
            raise InvalidArgumentError(call, "data", f"{array.size} elements", f"{' or '.join(map(str, counts))}, for {self!r}")
        with np.errstate(invalid="ignore", over="ignore"):
            memory = array.reshape(-1).astype(dtype)
        if dtype.kind in "iu" and not np.array_equal(memory, array.reshape(-1)):
            raise InvalidArgumentError(call, "data", f"{array.dtype} that {dtype} cannot hold", f"whole numbers of {dtype}")
        return constant(memory)

    def from_memory(self, memory: np.ndarray) -> TensorData:
        """A view of the tensor's memory, given as bytes, in its type, sizes and strides."""
        dtype = _dtype(self.data_type)
        elements = memory[:self._tensor.size_of_elements * dtype.itemsize].view(dtype)
        return self._tensor.view(elements).view(TensorData)


class TensorData(np.ndarray):
    """The result of Device.compute: an array of the tensor's type, sizes and strides. TensorData(data) copies data as float32.

    Source: PyDirectML's TensorData, which is always float32.
    """

    def __new__(cls, data: Any) -> TensorData:
        if isinstance(data, np.ndarray) and data.nbytes > MAX_TENSOR_BYTES:
            raise InvalidArgumentError("pydirectml", "TensorData", f"{data.nbytes} bytes", f"at most {MAX_TENSOR_BYTES}")
        try:
            with np.errstate(over="ignore"):
                return np.array(data, np.float32, order="C").view(cls)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError("pydirectml", "TensorData", str(error), "numbers") from None
