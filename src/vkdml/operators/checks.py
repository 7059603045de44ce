"""Checks that all operators share: tensor descriptors, whole numbers, the DML_OPERATOR_DESC around an operator's structure, and
the layout of numpy's arrays in memory.
"""

from __future__ import annotations

import math
import operator as op
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

import numpy as np

from ..errors import InvalidArgumentError, shown
from . import element_types
from .element_types import ElementType
from .header import descs

MAX_TENSOR_BYTES = 2**32 - 4  # Vulkan's largest range of a storage buffer is a uint32, and DirectML's sizes are multiples of 4
MINIMUM_ALIGNMENT = 16  # bytes: tensors begin in buffers at multiples of it (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT)

_LENGTHS = {descs.DML_TENSOR_DATA_TYPE.UINT32: 4}
# Structure -> operator type, activations last. The names correspond by rule
OPERATOR_TYPES: dict[type[Any], descs.DML_OPERATOR_TYPE] = {
    getattr(descs, name): member
    for member in sorted(descs.DML_OPERATOR_TYPE, key=lambda member: (member.name.startswith("ACTIVATION"), member.name))
    if (name := f"DML_{member.name}_OPERATOR_DESC") in descs.NAMES}


def ceil_div(value: int, divisor: int) -> int:
    """Divide positive whole numbers, rounding up."""
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not less than value."""
    return ceil_div(value, multiple) * multiple


def power_of_two(value: int) -> int:
    """The smallest power of two that is not less than value."""
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True)
class Tensor:
    """A checked tensor descriptor. sizes, strides: in elements. size_in_bytes: the least size of a buffer bound to it.

    is_owned: whether it is OWNED_BY_DML: bound to the operator's initializer. alignment: of its offset in a buffer, in bytes.
    """

    data_type: descs.DML_TENSOR_DATA_TYPE
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    size_in_bytes: int
    is_owned: bool = False
    alignment: int = MINIMUM_ALIGNMENT

    @property
    def size_of_elements(self) -> int:
        return span(self.sizes, self.strides)

    @property
    def bytes_of_elements(self) -> int:
        """Bytes from the first element to the last, gaps included, of a type that DirectML has."""
        return self.size_of_elements * element_types.ITEMSIZES[self.data_type]

    def view(self, flat: np.ndarray) -> np.ndarray:
        """A view of a flat array, gaps included, in the tensor's sizes and strides."""
        if flat.size < self.size_of_elements:
            raise InvalidArgumentError("tensor", "array", f"{flat.size} elements", f"{self.size_of_elements} or more")
        return np.ndarray(self.sizes, flat.dtype, flat, 0, tuple(stride * flat.itemsize for stride in self.strides))


@dataclass(frozen=True)
class CheckedOperator:
    """The checked descriptor of an operator of any kind.

    operator: the descriptor's class name, for error messages.
    element: the type of all tensors but sequence lengths and indices, and the input of a cast.
    tensors: by field, in DirectML's binding order (inputs, then outputs); None where an optional one is left out.
    inputs, outputs: the fields that the operator has, given or not.
    weights: the inputs that are packed, given or not.
    """

    operator: str
    element: ElementType
    tensors: Mapping[str, Tensor | None]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]

    @property
    def initialized(self) -> list[str]:
        """The inputs that are bound to the operator's initializer, not to its executions."""
        return [field for field in self.weights if self.has(field) and self.tensor(field).is_owned]

    @property
    def input_element(self) -> ElementType:
        """The element type of the inputs. Only a cast's differs from the output's."""
        return self.element

    @property
    def in_place(self) -> Mapping[str, tuple[str, ...]]:
        """Output -> inputs whose buffer it may share if strides are equal: each element overwrites the one it depends on."""
        return {}

    @property
    def checked_input(self) -> str | None:
        """The input whose values the host checks before an execution, if the host wrote them; None: there is none."""
        return None

    def check_values(self, memory: np.ndarray) -> None:
        """Refuse wrong values of `checked_input`. memory: its bytes. Raises InvalidArgumentError."""

    @property
    def tensor_bytes(self) -> dict[str, int]:
        """The least sizes of the buffers bound to the tensors, by field."""
        return {field: tensor.size_in_bytes for field, tensor in self.tensors.items() if tensor}

    def with_sizes(self, sizes: Mapping[str, tuple[int, ...]], packed: bool = False) -> Self:
        """Give the tensors other sizes, by field. They are packed, or keep their strides."""
        return replace(self, tensors={field: tensor and least_tensor(
            tensor.data_type, sizes[field], packed_strides(sizes[field]) if packed else tensor.strides,
            element_types.ITEMSIZES.get(tensor.data_type, self.element.itemsize)) for field, tensor in self.tensors.items()})

    def has(self, field: str) -> bool:
        """Whether the operator has this field and its tensor is given."""
        return self.tensors.get(field) is not None

    def tensor(self, field: str) -> Tensor:
        """Return the tensor of a field, which must be given."""
        tensor = self.tensors[field]
        assert tensor is not None, field
        return tensor


def unwrap_operator(desc: Any) -> Any:
    """Take an operator's structure out of its DML_OPERATOR_DESC, if it comes in one.

    Raises InvalidArgumentError for unknown operators, and if Type does not fit the structure.
    """
    if isinstance(desc, descs.DML_OPERATOR_DESC):
        inner = desc.Desc
        if type(inner) in OPERATOR_TYPES and not is_one_of(desc.Type, [OPERATOR_TYPES[type(inner)]]):
            raise InvalidArgumentError("DML_OPERATOR_DESC", "Type", shown(desc.Type), OPERATOR_TYPES[type(inner)].name)
        desc = inner
    if type(desc) not in OPERATOR_TYPES:
        allowed = ", ".join(cls.__name__ for cls in OPERATOR_TYPES)
        raise InvalidArgumentError("create_operator", "desc", type(desc).__name__, f"one of {allowed}")
    return desc


def integers(operator: str, field: str, values: Any, least: int, end: int = 2**32) -> tuple[int, ...]:
    """Convert the values to a tuple. Raises InvalidArgumentError unless all are whole numbers from `least` to `end` - 1."""
    try:
        checked = tuple(map(op.index, values))
    except TypeError:
        checked = (-1,)
    if checked and not least <= min(checked) <= max(checked) < end:
        found, last = values[0] if isinstance(values, tuple) and len(values) == 1 else values, f"2**{end.bit_length() - 1} - 1"
        raise InvalidArgumentError(operator, field, shown(found), f"whole numbers from {least} to {last}")
    return checked


def check_index(operator: str, field: str, value: Any, count: int) -> int:
    """Raises InvalidArgumentError unless the index is a whole number from 0 to count - 1."""
    try:
        found = op.index(value)
    except TypeError:
        found = -1
    if not 0 <= found < count:
        raise InvalidArgumentError(operator, field, shown(value), f"a whole number from 0 to {count - 1}")
    return found


def check_tensor(operator: str, field: str, desc: object, itemsizes: Mapping[descs.DML_TENSOR_DATA_TYPE, int],
                 dimension_counts: Collection[int], may_be_owned: bool = False) -> Tensor:
    """Check one tensor descriptor. Raises InvalidArgumentError.

    itemsizes: the allowed data types, with the bytes of an element of each. may_be_owned: whether it may be OWNED_BY_DML.
    """
    if isinstance(desc, descs.DML_TENSOR_DESC):
        if not is_one_of(desc.Type, [descs.DML_TENSOR_TYPE.BUFFER]):
            raise InvalidArgumentError(operator, f"{field}.Type", shown(desc.Type), "DML_TENSOR_TYPE.BUFFER")
        if not isinstance(desc.Desc, descs.DML_BUFFER_TENSOR_DESC):
            raise InvalidArgumentError(operator, f"{field}.Desc", type(desc.Desc).__name__, "DML_BUFFER_TENSOR_DESC")
        desc = desc.Desc
    if not isinstance(desc, descs.DML_BUFFER_TENSOR_DESC):
        raise InvalidArgumentError(operator, field, type(desc).__name__, "DML_TENSOR_DESC or DML_BUFFER_TENSOR_DESC")
    data_type = next((allowed for allowed in itemsizes if is_one_of(desc.DataType, [allowed])), None)
    if data_type is None:
        raise InvalidArgumentError(operator, f"{field}.DataType", shown(desc.DataType),
                                   " or ".join(allowed.name for allowed in itemsizes))
    if not is_one_of(desc.Flags, [descs.DML_TENSOR_FLAGS.NONE, *[descs.DML_TENSOR_FLAGS.OWNED_BY_DML] * may_be_owned]):
        raise InvalidArgumentError(operator, f"{field}.Flags", shown(desc.Flags), "NONE" + " or OWNED_BY_DML" * may_be_owned)
    sizes = integers(operator, f"{field}.Sizes", desc.Sizes, 1)
    if not is_count(desc.DimensionCount, len(sizes)):
        raise InvalidArgumentError(operator, f"{field}.DimensionCount", desc.DimensionCount, f"{len(sizes)}, as Sizes has")
    if len(sizes) not in dimension_counts:
        allowed_counts = " to ".join(map(str, sorted({min(dimension_counts), max(dimension_counts)})))
        raise InvalidArgumentError(operator, f"{field}.DimensionCount", len(sizes), allowed_counts)
    strides, size = _check_layout(operator, field, desc, sizes, itemsizes[data_type])
    return Tensor(data_type, sizes, strides, size, desc.Flags == descs.DML_TENSOR_FLAGS.OWNED_BY_DML,
                  max(desc.GuaranteedBaseOffsetAlignment, MINIMUM_ALIGNMENT))


def check_tensors(operator: str, desc: Any, fields: Iterable[str], required: Collection[str], element: ElementType | None,
                  dimension_counts: Collection[int], weights: Collection[str] = ()
                  ) -> tuple[ElementType, dict[str, Tensor | None]]:
    """Check the tensors of a descriptor. All but the sequence lengths must have one type, that of the first field.

    element: that type; by default any that DirectML takes. weights: the fields that may be OWNED_BY_DML, all or none of them.
    Returns the type, and the tensors by field.
    Raises InvalidArgumentError.
    """
    allowed = element_types.IN_DIRECTML if element is None else (element,)
    tensors: dict[str, Tensor | None] = {}
    for field in fields:
        value = getattr(desc, field)
        if value is None and field not in required:
            tensors[field] = None
            continue
        is_lengths = field == "SequenceLengthsTensor"
        itemsizes = _LENGTHS if is_lengths else {row.data_type: row.itemsize for row in allowed}
        tensor = tensors[field] = check_tensor(operator, field, value, itemsizes, dimension_counts, field in weights)
        if not is_lengths:
            allowed = tuple(row for row in allowed if row.data_type == tensor.data_type)
    owned, others = ([field for field, tensor in tensors.items() if tensor and field in weights and tensor.is_owned == is_owned]
                     for is_owned in (True, False))
    if owned and others:  # the initializer packs all of them or none
        raise InvalidArgumentError(operator, f"{owned[0]}.Flags", "OWNED_BY_DML",
                                   f"NONE, unless {' and '.join(others)} have it too")
    return allowed[0], tensors


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Count the elements of a tensor from the first to the last, gaps included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[place + 1:]) for place in range(len(sizes)))


def check_bytes(operator: str, field: str, size: int) -> None:
    """Refuse a tensor that no storage buffer could hold."""
    if size > MAX_TENSOR_BYTES:
        raise InvalidArgumentError(operator, field, f"{shown(size)} bytes",
                                   f"at most {MAX_TENSOR_BYTES}: storage buffers end below 4 GiB")


def least_size(sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Compute the fewest bytes that DirectML allows for a tensor: up to the end of its last element, rounded up to 4."""
    return round_up(itemsize * span(sizes, strides), 4)


def least_tensor(data_type: descs.DML_TENSOR_DATA_TYPE, sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int
                 ) -> Tensor:
    """Make a tensor with the fewest bytes that hold its elements."""
    return Tensor(data_type, sizes, strides, least_size(sizes, strides, itemsize))


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    """Return an array's strides in elements, 0 for dimensions of size 1."""
    return tuple(stride // array.itemsize if size > 1 else 0 for size, stride in zip(array.shape, array.strides))


def element_strides(array: np.ndarray) -> tuple[int, ...] | None:
    """Return the strides of an array that a descriptor can use in place, else None: if some are negative or no whole elements,
    or if more than half of the memory from its first element to the last is gaps, so that a copy is cheaper.
    """
    strides = strides_of(array)
    whole = all(stride % array.itemsize == 0 for size, stride in zip(array.shape, array.strides) if size > 1)
    if not whole or min(strides, default=0) < 0 or span(array.shape, strides) > 2 * array.size:
        return None
    return strides


def _check_layout(operator: str, field: str, desc: descs.DML_BUFFER_TENSOR_DESC, sizes: tuple[int, ...], itemsize: int
                  ) -> tuple[tuple[int, ...], int]:
    strides = packed_strides(sizes)
    if desc.Strides is not None:
        strides = integers(operator, f"{field}.Strides", desc.Strides, 0)
        if len(strides) != len(sizes):
            raise InvalidArgumentError(operator, f"{field}.Strides", f"{len(strides)} strides", str(len(sizes)))
    (alignment,) = integers(operator, f"{field}.GuaranteedBaseOffsetAlignment", (desc.GuaranteedBaseOffsetAlignment,), 0)
    if alignment != 0 and (alignment < itemsize or alignment & (alignment - 1)):
        raise InvalidArgumentError(operator, f"{field}.GuaranteedBaseOffsetAlignment", alignment,
                                   f"0 or a power of two, at least the element's {itemsize} bytes")
    size = least = least_size(sizes, strides, itemsize)
    if desc.TotalTensorSizeInBytes is not None:
        (size,) = integers(operator, f"{field}.TotalTensorSizeInBytes", (desc.TotalTensorSizeInBytes,), 0, 2**64)
    check_bytes(operator, f"{field}.TotalTensorSizeInBytes", max(size, least))
    if size < least or size % 4:
        raise InvalidArgumentError(operator, f"{field}.TotalTensorSizeInBytes", size,
                                   f"a multiple of 4, at least {least} for its sizes and strides")
    return strides, size


def is_one_of(value: object, allowed: Collection[int]) -> bool:
    """Whether a value is an integer that equals an allowed one. A member of an enumeration must be of the same enumeration."""
    return isinstance(value, int | np.integer) and any(
        value == one and (type(value) is type(one) or not isinstance(value, Enum)) for one in allowed)


def is_count(value: object, count: int) -> bool:
    """Whether the count beside a list is left out (None) or the list's length."""
    return value is None or is_one_of(value, [count])


def check_output_strides(operator: str, field: str, tensor: Tensor | None) -> None:
    """Refuse an output two of whose elements could share memory: each stride must step over all that the smaller ones reach."""
    if tensor is None:
        return
    reach = 0
    for stride, size in sorted(pair for pair in zip(tensor.strides, tensor.sizes) if pair[1] > 1):
        if stride <= reach:
            raise InvalidArgumentError(operator, f"{field}.Strides", tensor.strides,
                                       "strides that give each element of an output its own place")
        reach += stride * (size - 1)


def expect_sizes(operator: str, field: str, found: tuple[int, ...], formulas: Sequence[str], sizes: Mapping[str, int]) -> None:
    """Raises InvalidArgumentError unless the sizes found are those that the formulas give. sizes: the value of each letter."""
    expected = tuple(evaluate(formula, sizes) for formula in formulas)
    if found != expected:
        letters = ", ".join(f"{letter} = {value}" for letter, value in sizes.items())
        raise InvalidArgumentError(operator, field, found, f"{expected}, that is [{', '.join(formulas)}] with {letters}")


def evaluate(formula: str, sizes: Mapping[str, int]) -> int:
    """Compute a size that is written as a product of letters and numbers, such as "3*H" in the table of cells."""
    return math.prod(sizes[factor] if factor in sizes else int(factor) for factor in formula.split("*"))
