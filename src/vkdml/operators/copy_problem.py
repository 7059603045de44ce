"""The checks of operators that copy elements from computed places: ELEMENT_WISE_IDENTITY, SLICE, SLICE1 and JOIN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from . import element_types
from .checks import Tensor, check_index, check_output_strides, check_tensor, integers, is_count
from .elementwise_problem import ElementwiseProblem, check_same_sizes, scaled
from .plain_problem import MOST_DIMENSIONS, OUTPUT, MovedProblem

_DIMENSIONS = range(1, MOST_DIMENSIONS + 1)


@dataclass(frozen=True)
class Move:
    """A copy of some elements of an input to the output: in each dimension those from a start on, with a step.

    field: the input's. starts, steps: in elements of the input, for each dimension; a step may be negative. at: place of
    the first one in the output.
    """

    field: str
    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]
    at: tuple[int, ...]


@dataclass(frozen=True)
class CopyProblem(MovedProblem):
    """Elements copied from computed places.

    moves: together they write each element of OutputTensor once. is_in_place: each element goes to its own place.
    """

    moves: tuple[Move, ...]
    is_in_place: bool = False

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {OUTPUT: self.inputs} if self.is_in_place else {}

    def moved(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        result = np.empty(self.tensor(OUTPUT).sizes, arrays[self.moves[0].field].dtype)
        for move in self.moves:
            places = [start + step * np.arange(size) for start, step, size in zip(move.starts, move.steps, move.sizes)]
            result[tuple(slice(at, at + size) for at, size in zip(move.at, move.sizes))] = arrays[move.field][np.ix_(*places)]
        return result


def identity(desc: Any) -> CopyProblem | ElementwiseProblem:
    """Check a DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC. Raises InvalidArgumentError."""
    name = type(desc).__name__
    if desc.ScaleBias is not None:
        return scaled(name, desc)
    tensors = check_any_type(name, {"InputTensor": desc.InputTensor, OUTPUT: desc.OutputTensor})
    check_same_sizes(name, tensors)
    sizes = tensors[OUTPUT].sizes
    zeros = (0,) * len(sizes)
    return _problem(name, tensors, [Move("InputTensor", sizes, zeros, (1,) * len(sizes), zeros)], is_in_place=True)


def slice_of(desc: Any) -> CopyProblem:
    """Check a DML_SLICE_OPERATOR_DESC. Raises InvalidArgumentError."""
    name = type(desc).__name__
    tensors = check_any_type(name, {"InputTensor": desc.InputTensor, OUTPUT: desc.OutputTensor})
    source = tensors["InputTensor"].sizes
    count = _dimension_count(name, desc, len(source))
    starts = _numbers(name, "Offsets", desc.Offsets, 0, count)
    sizes = _numbers(name, "Sizes", desc.Sizes, 1, count)
    steps = _numbers(name, "Strides", desc.Strides, 1, count)
    for dim, (start, size, step) in enumerate(zip(starts, sizes, steps)):
        if start + (size - 1) * step >= source[dim]:
            raise InvalidArgumentError(name, f"Sizes[{dim}]", f"{size} from {start} on, with a stride of {step}",
                                       f"elements within the {source[dim]} that InputTensor has")
    return _sliced(name, tensors, starts, sizes, steps)


def slice1_of(desc: Any) -> CopyProblem:
    """Check a DML_SLICE1_OPERATOR_DESC. Raises InvalidArgumentError."""
    name = type(desc).__name__
    tensors = check_any_type(name, {"InputTensor": desc.InputTensor, OUTPUT: desc.OutputTensor})
    source = tensors["InputTensor"].sizes
    _dimension_count(name, desc, len(source))
    starts, most, steps = window_of(name, source, {
        field: getattr(desc, field) for field in ("InputWindowOffsets", "InputWindowSizes", "InputWindowStrides")})
    sizes = tensors[OUTPUT].sizes
    if any(size > allowed for size, allowed in zip(sizes, most)):
        raise InvalidArgumentError(name, "OutputTensor.Sizes", sizes, f"at most {most}, the window's")
    return _sliced(name, tensors, starts, sizes, steps)


def window_of(name: str, source: tuple[int, ...], window: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """What SLICE1 takes of an input of these sizes: starts, sizes at most, and steps. window: its three fields, by name.

    Raises InvalidArgumentError.
    """
    offsets, windows, steps = (_numbers(name, field, window[field], least, len(source)) for field, least in (
        ("InputWindowOffsets", 0), ("InputWindowSizes", 1), ("InputWindowStrides", -2**31)))
    for dim, (offset, size, step) in enumerate(zip(offsets, windows, steps)):
        if step == 0:
            raise InvalidArgumentError(name, f"InputWindowStrides[{dim}]", 0, "a number other than 0")
        if offset + size > source[dim]:
            raise InvalidArgumentError(name, f"InputWindowSizes[{dim}]", f"{size} from {offset} on",
                                       f"a window within the {source[dim]} elements that InputTensor has")
    starts = tuple(offset if step > 0 else offset + size - 1 for offset, size, step in zip(offsets, windows, steps))
    return starts, tuple((size - 1) // abs(step) + 1 for size, step in zip(windows, steps)), steps


def join(desc: Any) -> CopyProblem:
    """Check a DML_JOIN_OPERATOR_DESC. Raises InvalidArgumentError."""
    name = type(desc).__name__
    given = desc.InputTensors
    if not isinstance(given, tuple) or not given:
        raise InvalidArgumentError(name, "InputTensors", shown(given), "a list of one tensor or more")
    if not is_count(desc.InputCount, len(given)):
        raise InvalidArgumentError(name, "InputCount", shown(desc.InputCount), f"{len(given)}, the number of InputTensors")
    inputs = {f"InputTensors[{i}]": tensor for i, tensor in enumerate(given)}
    tensors = check_any_type(name, {**inputs, OUTPUT: desc.OutputTensor})
    target = tensors[OUTPUT].sizes
    axis = check_index(name, "Axis", desc.Axis, len(target))
    moves, at = [], 0
    for field in inputs:
        sizes = tensors[field].sizes
        allowed = (*target[:axis], sizes[axis], *target[axis + 1:])
        if sizes != allowed:
            raise InvalidArgumentError(name, f"{field}.Sizes", sizes, f"OutputTensor's {target} but along Axis = {axis}")
        zeros = (0,) * len(sizes)
        moves.append(Move(field, sizes, zeros, (1,) * len(sizes), (*zeros[:axis], at, *zeros[axis + 1:])))
        at += sizes[axis]
    if at != target[axis]:
        raise InvalidArgumentError(name, "OutputTensor.Sizes", target, f"{at} along Axis = {axis}, as the inputs have together")
    check_output_strides(name, OUTPUT, tensors[OUTPUT])
    return _problem(name, tensors, moves)


def check_any_type(operator: str, descs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors, checked: all of the first one's type and number of dimensions. Raises InvalidArgumentError."""
    allowed, dimensions = element_types.ITEMSIZES, list(_DIMENSIONS)
    tensors = {}
    for field, desc in descs.items():
        tensor = tensors[field] = check_tensor(operator, field, desc, allowed, dimensions)
        allowed, dimensions = {tensor.data_type: allowed[tensor.data_type]}, [len(tensor.sizes)]
    return tensors


def _dimension_count(operator: str, desc: Any, count: int) -> int:
    if not is_count(desc.DimensionCount, count):
        raise InvalidArgumentError(operator, "DimensionCount", shown(desc.DimensionCount), f"{count}, as InputTensor has")
    return count


def _numbers(operator: str, field: str, values: Any, least: int, count: int) -> tuple[int, ...]:
    found = integers(operator, field, values, least, 2**31)
    if len(found) != count:
        raise InvalidArgumentError(operator, field, f"{len(found)} numbers", f"{count}, one for each dimension of InputTensor")
    return found


def _sliced(name: str, tensors: Mapping[str, Tensor], starts: tuple[int, ...], sizes: tuple[int, ...], steps: tuple[int, ...]
            ) -> CopyProblem:
    if tensors[OUTPUT].sizes != sizes:
        raise InvalidArgumentError(name, "OutputTensor.Sizes", tensors[OUTPUT].sizes, f"{sizes}, the slice's")
    check_output_strides(name, OUTPUT, tensors[OUTPUT])
    return _problem(name, tensors, [Move("InputTensor", sizes, starts, steps, (0,) * len(sizes))])


def _problem(name: str, tensors: Mapping[str, Tensor], moves: Sequence[Move], is_in_place: bool = False) -> CopyProblem:
    return CopyProblem(operator=name, element=element_types.any_of(tensors[OUTPUT].data_type), tensors=tensors,
                       inputs=tuple(field for field in tensors if field != OUTPUT), outputs=(OUTPUT,), weights=(),
                       moves=tuple(moves), is_in_place=is_in_place)
