"""A recurrent operator's descriptor, checked and made canonical. All validation of descriptors lives here.

A problem knows nothing of devices: what a device cannot hold is refused by `schedule`.
"""

from __future__ import annotations

import math
import numbers
import operator as op
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import activations, cells
from .activations import FusedActivation
from .cells import Cell, Loop
from .descs import (
    DML_BUFFER_TENSOR_DESC,
    DML_OPERATOR_DESC,
    DML_RECURRENT_NETWORK_DIRECTION,
    DML_TENSOR_DATA_TYPE,
    DML_TENSOR_DESC,
    DML_TENSOR_FLAGS,
    DML_TENSOR_TYPE,
)
from .errors import InvalidArgumentError

MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_TENSOR_BYTES = 2**32 - 4  # a kp tensor's size is a uint32; what is larger would wrap silently

_DATA_TYPES = {field: DML_TENSOR_DATA_TYPE.UINT32 if field == "SequenceLengthsTensor" else DML_TENSOR_DATA_TYPE.FLOAT32
               for cell in cells.BY_DESC.values() for field in cell.tensors}

_REVERSED = {
    DML_RECURRENT_NETWORK_DIRECTION.FORWARD: (False,),
    DML_RECURRENT_NETWORK_DIRECTION.BACKWARD: (True,),
    DML_RECURRENT_NETWORK_DIRECTION.BIDIRECTIONAL: (False, True),
}


@dataclass(frozen=True)
class Tensor:
    """A checked tensor: 4 sizes and strides in elements, and the bytes that a buffer bound to it must have."""

    data_type: DML_TENSOR_DATA_TYPE
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    size_in_bytes: int

    @property
    def size_of_elements(self) -> int:
        """Elements and gaps from the first element to the last."""
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides))

    def view(self, flat: np.ndarray) -> np.ndarray:
        """A flat array of the tensor's elements and gaps, seen in its sizes and strides."""
        if flat.size < self.size_of_elements:
            raise InvalidArgumentError("tensor", "array", f"{flat.size} elements", f"{self.size_of_elements} or more")
        return np.lib.stride_tricks.as_strided(flat, self.sizes, [stride * flat.itemsize for stride in self.strides])


@dataclass(frozen=True)
class Problem:
    """What is to be computed: T `steps`, `batch` rows, I `inputs`, H `hidden` units, one entry of `reverse` a direction.

    tensors: by field, in DirectML's binding order (inputs, then outputs); None where an optional one is left out.
    activations: f, g and h (as many as the cell takes) of the forward direction, then of the backward one.
    flags: the cell's, by DirectML's names. clip: LSTM's ClipThreshold, and ONNX's attribute of all cells.
    """

    operator: str
    cell: Cell
    steps: int
    batch: int
    inputs: int
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[FusedActivation, ...]
    flags: Mapping[str, bool]
    tensors: Mapping[str, Tensor | None]
    clip: float | None = None

    @property
    def directions(self) -> int:
        return len(self.reverse)

    @property
    def loop(self) -> Loop:
        return self.cell.loops[self.flags.get("LinearBeforeReset", False)]

    def activation(self, direction: int, index: int) -> FusedActivation:
        return self.activations[direction * self.cell.activations + index]

    def has(self, field: str) -> bool:
        """Whether the cell has such a tensor, and it is not left out."""
        return self.tensors.get(field) is not None

    def tensor(self, field: str) -> Tensor:
        """The tensor of a field that is not left out."""
        tensor = self.tensors[field]
        assert tensor is not None, field
        return tensor


def from_desc(desc: Any, clip: float | None = None) -> Problem:
    """Check an operator descriptor: a DML_OPERATOR_DESC or the structure in it alone.

    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    desc = _unwrap_operator(desc)
    name = type(desc).__name__
    cell = cells.BY_DESC[type(desc)]
    reverse = _check_direction(name, desc.Direction)
    tensors = {field: _check_tensor(name, field, getattr(desc, field), field not in cell.required)
               for field in cell.tensors}
    sizes = _check_sizes(name, cell, tensors, len(reverse))
    for field in cell.outputs:
        _check_output_strides(name, field, tensors[field])
    if all(tensors[field] is None for field in cell.outputs):
        raise InvalidArgumentError(name, " and ".join(cell.outputs), "None", "at least one output")
    return Problem(
        operator=name,
        cell=cell,
        steps=sizes["T"],
        batch=sizes["B"],
        inputs=sizes["I"],
        hidden=sizes["H"],
        reverse=reverse,
        activations=_check_activations(name, cell, desc, len(reverse)),
        flags={flag: _check_bool(name, flag, getattr(desc, flag)) for flag in cell.flags},
        tensors=tensors,
        clip=_clip(name, desc, clip),
    )


def _unwrap_operator(desc: Any) -> Any:
    if isinstance(desc, DML_OPERATOR_DESC):
        inner = desc.Desc
        if type(inner) in cells.BY_DESC and cells.BY_DESC[type(inner)].type != desc.Type:
            raise InvalidArgumentError("DML_OPERATOR_DESC", "Type", desc.Type, f"the type of {type(inner).__name__}")
        desc = inner
    if type(desc) not in cells.BY_DESC:
        allowed = ", ".join(sorted(cls.__name__ for cls in cells.BY_DESC))
        raise InvalidArgumentError("create_operator", "desc", type(desc).__name__, f"one of {allowed}")
    return desc


def _check_direction(operator: str, value: Any) -> tuple[bool, ...]:
    try:
        return _REVERSED[DML_RECURRENT_NETWORK_DIRECTION(value)]
    except (ValueError, TypeError):
        allowed = ", ".join(member.name for member in DML_RECURRENT_NETWORK_DIRECTION)
        raise InvalidArgumentError(operator, "Direction", repr(value), f"one of {allowed}") from None


def _check_bool(operator: str, field: str, value: object) -> bool:
    if not isinstance(value, int | np.bool_) or value not in (0, 1):  # 0 and 1 as in C
        raise InvalidArgumentError(operator, field, repr(value), "True or False")
    return bool(value)


def _clip(operator: str, desc: Any, clip: float | None) -> float | None:
    """The desc's ClipThreshold, where it has one and uses it, or ONNX's attribute."""
    if _check_bool(operator, "UseClipThreshold", getattr(desc, "UseClipThreshold", False)):
        clip = desc.ClipThreshold
    if clip is None:
        return None
    if not isinstance(clip, numbers.Real) or not 0 <= clip <= MAX_FLOAT32:
        raise InvalidArgumentError(operator, "clip", repr(clip), "a finite float32, 0 or more")
    return float(clip)


def _integers(operator: str, field: str, values: Any, least: int, end: int = 2**32) -> tuple[int, ...]:
    try:
        integers = tuple(op.index(value) for value in values)
    except TypeError:
        integers = (-1,)
    if not all(least <= value < end for value in integers):
        allowed = f"whole numbers from {least} to 2**{end.bit_length() - 1} - 1"
        raise InvalidArgumentError(operator, field, repr(values), allowed)
    return integers


def _check_tensor(operator: str, field: str, desc: object, optional: bool) -> Tensor | None:
    if desc is None and optional:
        return None
    if isinstance(desc, DML_TENSOR_DESC):
        if desc.Type != DML_TENSOR_TYPE.BUFFER:
            raise InvalidArgumentError(operator, f"{field}.Type", desc.Type, "DML_TENSOR_TYPE.BUFFER")
        desc = desc.Desc
    if not isinstance(desc, DML_BUFFER_TENSOR_DESC):
        raise InvalidArgumentError(operator, field, type(desc).__name__, "DML_TENSOR_DESC or DML_BUFFER_TENSOR_DESC")
    if desc.DataType != _DATA_TYPES[field]:
        raise InvalidArgumentError(operator, f"{field}.DataType", _name(desc.DataType), _DATA_TYPES[field].name)
    if desc.Flags != DML_TENSOR_FLAGS.NONE:
        raise InvalidArgumentError(operator, f"{field}.Flags", _name(desc.Flags),
                                   "NONE: DirectML does not support OWNED_BY_DML for this operator")
    sizes = _integers(operator, f"{field}.Sizes", desc.Sizes, 1)
    count = len(sizes) if desc.DimensionCount is None else desc.DimensionCount
    if len(sizes) != 4 or count != 4:
        raise InvalidArgumentError(operator, f"{field}.DimensionCount", f"{count} with {len(sizes)} sizes", "4")
    return Tensor(desc.DataType, sizes, *_check_layout(operator, field, desc, sizes))


def _check_layout(operator: str, field: str, desc: DML_BUFFER_TENSOR_DESC, sizes: tuple[int, ...]
                  ) -> tuple[tuple[int, ...], int]:
    strides = tuple(math.prod(sizes[i + 1:]) for i in range(4))
    if desc.Strides is not None:
        strides = _integers(operator, f"{field}.Strides", desc.Strides, 0)
        if len(strides) != 4:
            raise InvalidArgumentError(operator, f"{field}.Strides", f"{len(strides)} strides", "4")
    (alignment,) = _integers(operator, f"{field}.GuaranteedBaseOffsetAlignment", (desc.GuaranteedBaseOffsetAlignment,), 0)
    if alignment != 0 and (alignment < 4 or alignment & (alignment - 1)):
        raise InvalidArgumentError(operator, f"{field}.GuaranteedBaseOffsetAlignment", alignment,
                                   "0 or a power of two, at least the element's 4 bytes")
    # DirectML's rule: up to the last element, rounded up to 4 bytes, which float32 and uint32 always are.
    least = 4 * (1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)))
    size = least
    if desc.TotalTensorSizeInBytes is not None:
        (size,) = _integers(operator, f"{field}.TotalTensorSizeInBytes", (desc.TotalTensorSizeInBytes,), 0, 2**64)
    if size > MAX_TENSOR_BYTES or least > MAX_TENSOR_BYTES:
        raise InvalidArgumentError(operator, f"{field}.TotalTensorSizeInBytes", max(size, least),
                                   f"at most {MAX_TENSOR_BYTES}, what a Kompute tensor can hold")
    if size < least or size % 4:
        raise InvalidArgumentError(operator, f"{field}.TotalTensorSizeInBytes", size,
                                   f"a multiple of 4, at least {least} for its sizes and strides")
    return strides, size


def _name(value: object) -> object:
    return getattr(value, "name", None) or value


def _check_sizes(operator: str, cell: Cell, tensors: Mapping[str, Tensor | None], directions: int) -> dict[str, int]:
    """Every tensor's sizes against T, B and I of the input, H of the recurrence and D of the direction."""
    inputs, recurrence = tensors["InputTensor"], tensors["RecurrenceTensor"]
    assert inputs is not None
    assert recurrence is not None
    known = dict(zip("TBI", inputs.sizes[1:]), H=recurrence.sizes[3], D=directions)
    for field, formulas in cell.tensors.items():
        tensor = tensors[field]
        if tensor is not None:
            expect_sizes(operator, f"{field}.Sizes", tensor.sizes, formulas, known)
    return known


def evaluate(formula: str, sizes: Mapping[str, int]) -> int:
    """A size written as a product of letters and numbers, as in the table of cells."""
    return math.prod(sizes[factor] if factor in sizes else int(factor) for factor in formula.split("*"))


def expect_sizes(operator: str, field: str, found: tuple[int, ...], formulas: Sequence[str], sizes: Mapping[str, int]) -> None:
    expected = tuple(evaluate(formula, sizes) for formula in formulas)
    if found != expected:
        letters = ", ".join(f"{letter} = {value}" for letter, value in sizes.items())
        raise InvalidArgumentError(operator, field, found, f"{expected}, that is [{', '.join(formulas)}] with {letters}")


def _check_output_strides(operator: str, field: str, tensor: Tensor | None) -> None:
    """No two elements of an output may share a place: each stride spans all that the smaller strides reach."""
    if tensor is None:
        return
    reach = 0
    for stride, size in sorted(pair for pair in zip(tensor.strides, tensor.sizes) if pair[1] > 1):
        if stride <= reach:
            raise InvalidArgumentError(operator, f"{field}.Strides", tensor.strides,
                                       "strides that give each element of an output its own place")
        reach += stride * (size - 1)


def _check_activations(operator: str, cell: Cell, desc: Any, directions: int) -> tuple[FusedActivation, ...]:
    expected = cell.activations * directions
    if not isinstance(desc.ActivationDescs, tuple):
        raise InvalidArgumentError(operator, "ActivationDescs", repr(desc.ActivationDescs), f"a list of {expected}")
    count = len(desc.ActivationDescs) if desc.ActivationDescCount is None else desc.ActivationDescCount
    if count != expected or len(desc.ActivationDescs) != expected:
        raise InvalidArgumentError(operator, "ActivationDescs", f"{len(desc.ActivationDescs)} (ActivationDescCount {count})",
                                   f"{expected}: {cell.activations} for each of {directions} directions")
    return tuple(activations.fuse(operator, f"ActivationDescs[{i}]", activation)
                 for i, activation in enumerate(desc.ActivationDescs))
