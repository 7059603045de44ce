"""Dispatches of the operators that copy elements, from places that the descriptor says or that a tensor does."""

from __future__ import annotations

import math

from ..operators.copy_problem import CopyProblem, Move
from ..operators.gather import INDICES, GatherProblem, index_sizes
from ..operators.plain_problem import MOST_DIMENSIONS, OUTPUT
from .device_info import DeviceInfo
from .dispatches import Dispatch
from .elementwise import WORKGROUP, dimensions, groups_of


def of_copy(problem: CopyProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """A dispatch for each move: so an operator may have more inputs than a kernel has bindings."""
    return tuple(_of_move(problem, move, info) for move in problem.moves)


def _of_move(problem: CopyProblem, move: Move, info: DeviceInfo) -> Dispatch:
    source, target = problem.tensor(move.field).strides, problem.tensor(OUTPUT).strides
    elements = math.prod(move.sizes)
    steps = tuple(stride * step for stride, step in zip(source, move.steps))
    inner, push = dimensions(move.sizes, {"input_stride": steps, "output_stride": target})
    push |= {"elements": elements, "input_start": _place(source, move.starts), "output_start": _place(target, move.at)}
    constants = {"WORKGROUP": WORKGROUP, "ITEM_BYTES": problem.element.itemsize, "INNER_DIMENSIONS": inner}
    return Dispatch("copy", constants, {"Input": move.field, "Output": OUTPUT}, (OUTPUT,), groups_of(elements, info), push)


def _place(strides: tuple[int, ...], index: tuple[int, ...]) -> int:
    return sum(stride * along for stride, along in zip(strides, index))


def of_gather(problem: GatherProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """One dispatch. Each dimension of the output is one of the input's or one of the indices'."""
    source, indices, target = (problem.tensor(field) for field in ("InputTensor", INDICES, OUTPUT))
    axis, count = problem.axis, problem.index_dimensions
    of_input = (*source.strides[:axis], *[0] * count, *source.strides[axis + 1:])
    of_indices = (*[0] * axis, *index_sizes(indices.strides, count), *[0] * (len(source.sizes) - 1 - axis))
    missing = len(target.sizes) - len(of_input)  # leading sizes of 1, left out of the output or, below 0, too many for it
    of_input, of_indices = ((*[0] * missing, *strides[max(-missing, 0):]) for strides in (of_input, of_indices))
    elements = math.prod(target.sizes)
    inner, push = dimensions(target.sizes, {
        "input_stride": of_input, "index_stride": of_indices, "output_stride": target.strides})
    push |= {f"source_stride_{i}": push[f"input_stride_{i}"] + push[f"index_stride_{i}"] for i in range(MOST_DIMENSIONS)}
    push |= {"elements": elements, "axis_size": problem.axis_size, "axis_stride": source.strides[axis],
             "of_indices": sum(1 << i for i in range(MOST_DIMENSIONS) if push[f"index_stride_{i}"])}
    constants = {"WORKGROUP": WORKGROUP, "ITEM_BYTES": problem.element.itemsize, "INNER_DIMENSIONS": inner,
                 "INDEX_WORDS": problem.index_dtype.itemsize // 4, "IS_SIGNED": int(problem.index_dtype.kind == "i")}
    return (Dispatch("gather", constants, {"Input": "InputTensor", "Indices": INDICES, "Output": OUTPUT}, (OUTPUT,),
                     groups_of(elements, info), push),)
