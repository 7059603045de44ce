"""Checks operators that copy elements: IDENTITY, SLICE, SLICE1 and JOIN from computed places, GATHER from those in a tensor.

Each check raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from . import element_types
from .checks import Tensor, check_index, check_tensor, integers, is_count
from .header.descs import DML_TENSOR_DATA_TYPE
from .plain_problem import DIMENSIONS, OUTPUT, ElementwiseProblem, MovedProblem, check_same_sizes, common_fields, scaled

INDICES = "IndicesTensor"
_INDEX_TYPES = {data_type: element_types.ITEMSIZES[data_type] for data_type in (
    DML_TENSOR_DATA_TYPE.UINT32, DML_TENSOR_DATA_TYPE.INT32, DML_TENSOR_DATA_TYPE.UINT64, DML_TENSOR_DATA_TYPE.INT64)}


@dataclass(frozen=True)
class CopiedPart:
    """Elements of an input that are copied to the output: in each dimension, from a start on, a stride apart.

    field: the input's name. sizes: how many elements are copied in each dimension. starts, strides: in elements of the input;
    a stride may be negative. at: the index of the first one in the output.
    """

    field: str
    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    strides: tuple[int, ...]
    at: tuple[int, ...]


@dataclass(frozen=True)
class CopyProblem(MovedProblem):
    """A checked operator that copies elements from computed places.

    moves: the copied parts, which together write each element of OutputTensor once. is_in_place: whether no element moves.
    """

    moves: tuple[CopiedPart, ...]
    is_in_place: bool = False

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {OUTPUT: self.inputs} if self.is_in_place else {}

    def moved(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        result = np.empty(self.tensor(OUTPUT).sizes, arrays[self.moves[0].field].dtype)
        for move in self.moves:
            places = [start + stride * np.arange(size) for start, stride, size in zip(move.starts, move.strides, move.sizes)]
            result[tuple(slice(at, at + size) for at, size in zip(move.at, move.sizes))] = arrays[move.field][np.ix_(*places)]
        return result


@dataclass(frozen=True)
class GatherProblem(MovedProblem):
    """A checked GATHER: OutputTensor[before, i, after] = InputTensor[before, IndicesTensor[i], after].

    axis: the dimension of InputTensor that is indexed. An index beyond it means the nearest element. index_dimensions: how many
    of IndicesTensor's last dimensions count.
    """

    axis: int
    index_dimensions: int

    @property
    def axis_size(self) -> int:
        return self.tensor("InputTensor").sizes[self.axis]

    @property
    def index_dtype(self) -> np.dtype:
        return np.dtype(self.tensor(INDICES).data_type.name.lower())

    @property
    def checked_input(self) -> str:
        return INDICES

    def check_values(self, memory: np.ndarray) -> None:
        """Refuse indices beyond the axis. memory: the bytes of IndicesTensor. Raises InvalidArgumentError."""
        tensor = self.tensor(INDICES)
        indices = tensor.view(memory[:tensor.size_of_elements * self.index_dtype.itemsize].view(self.index_dtype))
        least = -self.axis_size if self.index_dtype.kind == "i" else 0
        wrong = np.argwhere((indices < least) | (indices >= self.axis_size))
        if len(wrong):
            place = tuple(int(index) for index in wrong[0])
            raise InvalidArgumentError(self.operator, f"{INDICES}{list(place)}", int(indices[place]),
                                       f"{least} to {self.axis_size - 1}, as InputTensor has {self.axis_size} along Axis")

    def moved(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        indices = arrays[INDICES].reshape(index_sizes(self.tensor(INDICES).sizes, self.index_dimensions))
        places = np.minimum(indices, self.axis_size - 1).astype(np.int64)
        places = np.maximum(np.where(places < 0, places + self.axis_size, places), 0)
        return arrays["InputTensor"].take(places, self.axis).reshape(self.tensor(OUTPUT).sizes)


def identity(desc: Any) -> CopyProblem | ElementwiseProblem:
    """Check a DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC."""
    name = type(desc).__name__
    if desc.ScaleBias is not None:
        return scaled(desc)
    tensors = _input_and_output(desc)
    check_same_sizes(name, tensors)
    sizes = tensors[OUTPUT].sizes
    zeros = (0,) * len(sizes)
    return _problem(name, tensors, [CopiedPart("InputTensor", sizes, zeros, (1,) * len(sizes), zeros)], is_in_place=True)


def slice_of(desc: Any) -> CopyProblem:
    """Check a DML_SLICE_OPERATOR_DESC."""
    name, tensors, source = _to_slice(desc)
    starts, sizes, strides = (_numbers(name, field, getattr(desc, field), least, len(source)) for field, least in (
        ("Offsets", 0), ("Sizes", 1), ("Strides", 1)))
    for dim, (start, size, stride) in enumerate(zip(starts, sizes, strides)):
        if start + (size - 1) * stride >= source[dim]:
            raise InvalidArgumentError(name, f"Sizes[{dim}]", f"{size} from {start} on, with a stride of {stride}",
                                       f"elements within the {source[dim]} that InputTensor has")
    return _sliced(name, tensors, starts, sizes, strides)


def slice1_of(desc: Any) -> CopyProblem:
    """Check a DML_SLICE1_OPERATOR_DESC."""
    name, tensors, source = _to_slice(desc)
    starts, most, strides = window_of(name, source, {
        field: getattr(desc, field) for field in ("InputWindowOffsets", "InputWindowSizes", "InputWindowStrides")})
    sizes = tensors[OUTPUT].sizes
    if any(size > allowed for size, allowed in zip(sizes, most)):
        raise InvalidArgumentError(name, "OutputTensor.Sizes", sizes, f"at most {most}, the window's")
    return _sliced(name, tensors, starts, sizes, strides)


def window_of(name: str, source: tuple[int, ...], window: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Compute SLICE1's starts, largest sizes and strides. source: the input's sizes. window: SLICE1's three fields, by name."""
    offsets, windows, strides = (_numbers(name, field, window[field], least, len(source)) for field, least in (
        ("InputWindowOffsets", 0), ("InputWindowSizes", 1), ("InputWindowStrides", -2**31)))
    for dim, (offset, size, stride) in enumerate(zip(offsets, windows, strides)):
        if stride == 0:
            raise InvalidArgumentError(name, f"InputWindowStrides[{dim}]", 0, "a number other than 0")
        if offset + size > source[dim]:
            raise InvalidArgumentError(name, f"InputWindowSizes[{dim}]", f"{size} from {offset} on",
                                       f"a window within the {source[dim]} elements that InputTensor has")
    starts = tuple(offset if stride > 0 else offset + size - 1 for offset, size, stride in zip(offsets, windows, strides))
    return starts, tuple((size - 1) // abs(stride) + 1 for size, stride in zip(windows, strides)), strides


def join(desc: Any) -> CopyProblem:
    """Check a DML_JOIN_OPERATOR_DESC."""
    name = type(desc).__name__
    given = desc.InputTensors
    if not isinstance(given, tuple) or not given:
        raise InvalidArgumentError(name, "InputTensors", shown(given), "a list of one tensor or more")
    if not is_count(desc.InputCount, len(given)):
        raise InvalidArgumentError(name, "InputCount", shown(desc.InputCount), f"{len(given)}, the number of InputTensors")
    inputs = {f"InputTensors[{i}]": tensor for i, tensor in enumerate(given)}
    tensors = _any_type(name, {**inputs, OUTPUT: desc.OutputTensor})
    target = tensors[OUTPUT].sizes
    axis = check_index(name, "Axis", desc.Axis, len(target))
    moves, at = [], 0
    for field in inputs:
        sizes = tensors[field].sizes
        allowed = (*target[:axis], sizes[axis], *target[axis + 1:])
        if sizes != allowed:
            raise InvalidArgumentError(name, f"{field}.Sizes", sizes, f"OutputTensor's {target} but along Axis = {axis}")
        zeros = (0,) * len(sizes)
        moves.append(CopiedPart(field, sizes, zeros, (1,) * len(sizes), (*zeros[:axis], at, *zeros[axis + 1:])))
        at += sizes[axis]
    if at != target[axis]:
        raise InvalidArgumentError(name, "OutputTensor.Sizes", target, f"{at} along Axis = {axis}, as the inputs have together")
    return _problem(name, tensors, moves)


def gather(desc: Any) -> GatherProblem:
    """Check a DML_GATHER_OPERATOR_DESC."""
    name = type(desc).__name__
    tensors = _input_and_output(desc)
    source = tensors["InputTensor"].sizes
    indices = check_tensor(name, INDICES, desc.IndicesTensor, _INDEX_TYPES, [len(source)])
    axis = check_index(name, "Axis", desc.Axis, len(source))
    index_dimensions = check_index(name, "IndexDimensions", desc.IndexDimensions, len(source) + 1)
    if any(size != 1 for size in indices.sizes[:len(source) - index_dimensions]):
        raise InvalidArgumentError(name, f"{INDICES}.Sizes", indices.sizes,
                                   f"1 in all dimensions but the last IndexDimensions = {index_dimensions}")
    expected = output_sizes(source, indices.sizes, axis, index_dimensions)
    if tensors[OUTPUT].sizes != expected:
        raise InvalidArgumentError(name, "OutputTensor.Sizes", tensors[OUTPUT].sizes,
                                   f"{expected}: InputTensor's {source} with the indices in the place of Axis = {axis}")
    tensors = {"InputTensor": tensors["InputTensor"], INDICES: indices, OUTPUT: tensors[OUTPUT]}
    common = common_fields(name, element_types.any_of(tensors[OUTPUT].data_type), tensors)
    return GatherProblem(**common, axis=axis, index_dimensions=index_dimensions)


def index_sizes(sizes: tuple[int, ...], index_dimensions: int) -> tuple[int, ...]:
    """Return the last `index_dimensions` of the indices' sizes."""
    return sizes[len(sizes) - index_dimensions:]


def output_sizes(source: tuple[int, ...], indices: tuple[int, ...], axis: int, index_dimensions: int) -> tuple[int, ...]:
    """Compute the sizes of GATHER's output. It has as many as source: leading sizes of 1 are added or left out."""
    sizes = [*source[:axis], *index_sizes(indices, index_dimensions), *source[axis + 1:]]
    while len(sizes) > len(source) and sizes[0] == 1:
        del sizes[0]
    return (1,) * (len(source) - len(sizes)) + tuple(sizes)


def _input_and_output(desc: Any) -> dict[str, Tensor]:
    return _any_type(type(desc).__name__, {"InputTensor": desc.InputTensor, OUTPUT: desc.OutputTensor})


def _any_type(operator: str, descs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Check tensors that may have any type; all must have the first one's type and number of dimensions."""
    allowed, dimensions = element_types.ITEMSIZES, list(DIMENSIONS)
    tensors = {}
    for field, desc in descs.items():
        tensor = tensors[field] = check_tensor(operator, field, desc, allowed, dimensions)
        allowed, dimensions = {tensor.data_type: allowed[tensor.data_type]}, [len(tensor.sizes)]
    return tensors


def _to_slice(desc: Any) -> tuple[str, dict[str, Tensor], tuple[int, ...]]:
    """Return a slice's name for errors, its tensors, and the sizes of its input."""
    name, tensors = type(desc).__name__, _input_and_output(desc)
    source = tensors["InputTensor"].sizes
    if not is_count(desc.DimensionCount, len(source)):
        raise InvalidArgumentError(name, "DimensionCount", shown(desc.DimensionCount), f"{len(source)}, as InputTensor has")
    return name, tensors, source


def _numbers(operator: str, field: str, values: Any, least: int, count: int) -> tuple[int, ...]:
    found = integers(operator, field, values, least, 2**31)
    if len(found) != count:
        raise InvalidArgumentError(operator, field, f"{len(found)} numbers", f"{count}, one for each dimension of InputTensor")
    return found


def _sliced(name: str, tensors: Mapping[str, Tensor], starts: tuple[int, ...], sizes: tuple[int, ...],
            strides: tuple[int, ...]) -> CopyProblem:
    if tensors[OUTPUT].sizes != sizes:
        raise InvalidArgumentError(name, "OutputTensor.Sizes", tensors[OUTPUT].sizes, f"{sizes}, the slice's")
    return _problem(name, tensors, [CopiedPart("InputTensor", sizes, starts, strides, (0,) * len(sizes))])


def _problem(name: str, tensors: Mapping[str, Tensor], moves: Sequence[CopiedPart], is_in_place: bool = False) -> CopyProblem:
    common = common_fields(name, element_types.any_of(tensors[OUTPUT].data_type), tensors)
    return CopyProblem(**common, moves=tuple(moves), is_in_place=is_in_place)
