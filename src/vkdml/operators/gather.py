"""The checks of GATHER, which copies elements from places that a tensor says, such as an embedding's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from . import element_types
from .checks import check_index, check_output_strides, check_tensor
from .copy_problem import check_any_type
from .header.descs import DML_TENSOR_DATA_TYPE
from .plain_problem import OUTPUT, MovedProblem

INDICES = "IndicesTensor"
_INDEX_TYPES = {data_type: element_types.ITEMSIZES[data_type] for data_type in (
    DML_TENSOR_DATA_TYPE.UINT32, DML_TENSOR_DATA_TYPE.INT32, DML_TENSOR_DATA_TYPE.UINT64, DML_TENSOR_DATA_TYPE.INT64)}


@dataclass(frozen=True)
class GatherProblem(MovedProblem):
    """OutputTensor[before, i, after] = InputTensor[before, IndicesTensor[i], after], where i are the last index_dimensions of
    the indices. axis: of InputTensor. Indices that do not exist are those of the nearest element.
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


def from_desc(desc: Any) -> GatherProblem:
    """Check a DML_GATHER_OPERATOR_DESC.

    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    name = type(desc).__name__
    tensors = check_any_type(name, {"InputTensor": desc.InputTensor, OUTPUT: desc.OutputTensor})
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
    check_output_strides(name, OUTPUT, tensors[OUTPUT])
    return GatherProblem(
        operator=name, element=element_types.any_of(tensors[OUTPUT].data_type),
        tensors={"InputTensor": tensors["InputTensor"], INDICES: indices, OUTPUT: tensors[OUTPUT]},
        inputs=("InputTensor", INDICES), outputs=(OUTPUT,), weights=(), axis=axis, index_dimensions=index_dimensions)


def index_sizes(sizes: tuple[int, ...], index_dimensions: int) -> tuple[int, ...]:
    """The last `index_dimensions` of the sizes."""
    return sizes[len(sizes) - index_dimensions:]


def output_sizes(source: tuple[int, ...], indices: tuple[int, ...], axis: int, index_dimensions: int) -> tuple[int, ...]:
    """Sizes of the output, aligned at the right: where there are too many, leading sizes of 1 are left out."""
    sizes = [*source[:axis], *index_sizes(indices, index_dimensions), *source[axis + 1:]]
    while len(sizes) > len(source) and sizes[0] == 1:
        del sizes[0]
    return (1,) * (len(source) - len(sizes)) + tuple(sizes)
