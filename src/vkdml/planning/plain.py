"""The plan of an operator without a time loop: its dispatches, and nothing to pack or to keep."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable
from typing import Any

from ..errors import InvalidArgumentError
from ..operators.copy_problem import INDICES, CopyProblem, GatherProblem, Move, index_sizes
from ..operators.plain_problem import (
    MOST_DIMENSIONS,
    OUTPUT,
    ArithmeticProblem,
    CastProblem,
    ElementwiseProblem,
    GemmProblem,
    PlainProblem,
)
from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .dispatches import (
    UNUSED,
    WORKGROUPS_EVERYWHERE,
    Dispatch,
    activation_constants,
    float_bits,
    given,
    in_room,
    storing_halves,
)
from .plan import Plan, check_limits
from .profiles import profile

_WORKGROUP = 64
_GEMM_TILE = 32  # rows and columns of the output that a workgroup computes, of which an invocation has 4 each
_GEMM_WORKGROUP = (_GEMM_TILE // 4) ** 2
_GEMM_BLOCK = 16  # of K
_MOST_PRODUCTS = 2**36  # multiply-adds of a submission: on slow GPUs some tenths of a second


def plan(problem: PlainProblem, info: DeviceInfo) -> Plan:
    """Raises InvalidArgumentError for what the device cannot hold."""
    built = Plan(initialize=(), execute=storing_halves(_DISPATCHES[type(problem)](problem, info), problem, info), internal={})
    check_limits(problem, info, built)
    return built


def _function_dispatches(problem: ElementwiseProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """One dispatch: a function of one tensor's elements."""
    source, target = problem.tensor("InputTensor"), problem.tensor(OUTPUT)
    elements = math.prod(source.sizes)
    constants = {"WORKGROUP": _WORKGROUP, "ELEMENT": problem.element.shader_id, **activation_constants((problem.function,), 1)}
    inner, push = _dimensions(source.sizes, {"input_stride": source.strides, "output_stride": target.strides})
    return (Dispatch(in_room("elementwise", problem), constants, given(problem, "InputTensor", OUTPUT), (OUTPUT,),
                     _groups_of(elements, info), {"elements": elements, "inner_dimensions": inner, **push}),)


def _cast_dispatches(problem: CastProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """One dispatch: a tensor's elements in another type."""
    source, target = problem.tensor("InputTensor"), problem.tensor(OUTPUT)
    elements = math.prod(target.sizes)
    inner, push = _dimensions(target.sizes, {"input_stride": source.strides, "output_stride": target.strides})
    constants = {"WORKGROUP": _WORKGROUP, "ELEMENT": problem.element.shader_id, "SOURCE": problem.source.shader_id,
                 "INNER_DIMENSIONS": inner}
    return (Dispatch("cast", constants, given(problem, "InputTensor", OUTPUT), (OUTPUT,), _groups_of(elements, info),
                     {"elements": elements, **push}),)


def _arithmetic_dispatches(problem: ArithmeticProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """One dispatch: a sum, difference or product of two tensors' elements."""
    a, b, target = (problem.tensor(field) for field in ("ATensor", "BTensor", OUTPUT))
    elements = math.prod(target.sizes)
    inner, push = _dimensions(target.sizes, {"a_stride": a.strides, "b_stride": b.strides, "output_stride": target.strides})
    constants = {"WORKGROUP": _WORKGROUP, "ELEMENT": problem.element.shader_id, "INNER_DIMENSIONS": inner,
                 "SUBTRACTS": int(problem.operation is op.sub), "MULTIPLIES": int(problem.operation is op.mul),
                 **activation_constants((problem.function or UNUSED,), 1)}
    return (Dispatch("arithmetic", constants, given(problem, "ATensor", "BTensor", OUTPUT), (OUTPUT,),
                     _groups_of(elements, info), {"elements": elements, **push}),)


def _copy_dispatches(problem: CopyProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """A dispatch for each move: so an operator may have more inputs than a kernel has bindings."""
    return tuple(_of_move(problem, move, info) for move in problem.moves)


def _of_move(problem: CopyProblem, move: Move, info: DeviceInfo) -> Dispatch:
    source, target = problem.tensor(move.field).strides, problem.tensor(OUTPUT).strides
    elements = math.prod(move.sizes)
    steps = tuple(stride * step for stride, step in zip(source, move.steps))
    inner, push = _dimensions(move.sizes, {"input_stride": steps, "output_stride": target})
    push |= {"elements": elements, "input_start": _place(source, move.starts), "output_start": _place(target, move.at)}
    constants = {"WORKGROUP": _WORKGROUP, "ITEM_BYTES": problem.element.itemsize, "INNER_DIMENSIONS": inner}
    return Dispatch("copy", constants, {"Input": move.field, "Output": OUTPUT}, (OUTPUT,), _groups_of(elements, info), push)


def _place(strides: tuple[int, ...], index: tuple[int, ...]) -> int:
    return sum(stride * along for stride, along in zip(strides, index))


def _gather_dispatches(problem: GatherProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """One dispatch. Each dimension of the output is one of the input's or one of the indices'."""
    source, indices, target = (problem.tensor(field) for field in ("InputTensor", INDICES, OUTPUT))
    axis, count = problem.axis, problem.index_dimensions
    of_input = (*source.strides[:axis], *[0] * count, *source.strides[axis + 1:])
    of_indices = (*[0] * axis, *index_sizes(indices.strides, count), *[0] * (len(source.sizes) - 1 - axis))
    missing = len(target.sizes) - len(of_input)  # leading sizes of 1, left out of the output or, below 0, too many for it
    of_input, of_indices = ((*[0] * missing, *strides[max(-missing, 0):]) for strides in (of_input, of_indices))
    elements = math.prod(target.sizes)
    inner, push = _dimensions(target.sizes, {
        "input_stride": of_input, "index_stride": of_indices, "output_stride": target.strides})
    push |= {f"source_stride_{i}": push[f"input_stride_{i}"] + push[f"index_stride_{i}"] for i in range(MOST_DIMENSIONS)}
    push |= {"elements": elements, "axis_size": problem.axis_size, "axis_stride": source.strides[axis],
             "of_indices": sum(1 << i for i in range(MOST_DIMENSIONS) if push[f"index_stride_{i}"])}
    constants = {"WORKGROUP": _WORKGROUP, "ITEM_BYTES": problem.element.itemsize, "INNER_DIMENSIONS": inner,
                 "INDEX_WORDS": problem.index_dtype.itemsize // 4, "IS_SIGNED": int(problem.index_dtype.kind == "i")}
    return (Dispatch("gather", constants, {"Input": "InputTensor", "Indices": INDICES, "Output": OUTPUT}, (OUTPUT,),
                     _groups_of(elements, info), push),)


def _groups_of(elements: int, info: DeviceInfo) -> tuple[int, int, int]:
    """Workgroups for so many elements, which loop over the rest."""
    return min(ceil_div(elements, _WORKGROUP), info.max_workgroup_count, WORKGROUPS_EVERYWHERE), 1, 1


def _dimensions(sizes: tuple[int, ...], strides: dict[str, tuple[int, ...]]) -> tuple[int, dict[str, int]]:
    """Dimensions as the shaders take them, with those merged that all tensors have without a gap between.

    strides: of each tensor, by the name of its push constants. Returns how many there are inside the outermost, and the push
    constants: the innermost dimension has number 0, and the outermost the last.
    """
    merged: list[tuple[int, ...]] = []  # size and strides, the innermost first
    for size, *steps in list(zip(sizes, *strides.values()))[::-1]:
        inner_size, *inner_steps = merged[-1] if merged else (1, *[-1] * len(strides))
        if size > 1 and steps == [inner_size * step for step in inner_steps]:
            merged[-1] = (inner_size * size, *inner_steps)
        elif size > 1:
            merged.append((size, *steps))
    nothing = (1, *[0] * len(strides))
    *inner, outermost = merged or [nothing]
    rows = [*inner, *[nothing] * (MOST_DIMENSIONS - 1 - len(inner)), outermost]
    names = ("size", *strides)
    return len(inner), {f"{name}_{i}": value % 2**32 for i, row in enumerate(rows) for name, value in zip(names, row)}


def _gemm_dispatches(problem: GemmProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Dispatches that keep to the device's workgroups and to the time of a submission: tiles of the output, a workgroup each.

    Raises InvalidArgumentError for a K with more loop iterations than the device's driver runs.
    """
    *batches, rows, columns = (1, 1, *problem.tensor(OUTPUT).sizes)[-4:]
    _check_gemm_iterations(problem, info)
    row_tiles, column_tiles = ceil_div(rows, _GEMM_TILE), ceil_div(columns, _GEMM_TILE)
    tiles = math.prod(batches) * row_tiles * column_tiles
    constants = {"WORKGROUP": _GEMM_WORKGROUP, "ELEMENT": problem.element.shader_id, "TILE": _GEMM_TILE, "BLOCK": _GEMM_BLOCK,
                 "HAS_C": int(problem.has("CTensor")), **activation_constants((problem.function or UNUSED,), 1)}
    push = {"row_tiles": row_tiles, "column_tiles": column_tiles, "inner_batches": batches[1], "rows": rows, "columns": columns,
            "inner": problem.inner, "alpha": float_bits(problem.alpha), "beta": float_bits(problem.beta),
            **_gemm_strides(problem)}
    buffers = given(problem, "ATensor", "BTensor", "CTensor", OUTPUT)
    at_once = max(1, min(info.max_workgroup_count, _MOST_PRODUCTS // (_GEMM_TILE**2 * problem.inner)))
    return tuple(Dispatch("gemm", constants, buffers, (OUTPUT,), (min(at_once, tiles - first), 1, 1),
                          {**push, "first_tile": first}, starts_submission=first > 0) for first in range(0, tiles, at_once))


def _check_gemm_iterations(problem: GemmProblem, info: DeviceInfo) -> None:
    stores = _GEMM_TILE**2 // _GEMM_WORKGROUP
    most = (profile(info).most_iterations - stores - 2) * _GEMM_BLOCK
    if problem.inner > most:
        raise InvalidArgumentError(problem.operator, "ATensor.Sizes", f"K = {problem.inner}", f"at most {most} on {info.name}")


def _gemm_strides(problem: GemmProblem) -> dict[str, int]:
    """Strides by matrix and dimension. A transposed matrix is one of other strides."""
    transposed = dict(zip(("ATensor", "BTensor"), problem.transposed))
    push: dict[str, int] = {}
    for field, row, column in (("ATensor", "row", "k"), ("BTensor", "k", "column"), ("CTensor", "row", "column"),
                               (OUTPUT, "row", "column")):
        strides = problem.tensor(field).strides if problem.has(field) else ()
        outer, batch, first, second = (0,) * (4 - len(strides)) + strides
        if transposed.get(field):
            first, second = second, first
        name = field.removesuffix("Tensor").lower()
        push |= {f"{name}_stride_outer": outer, f"{name}_stride_batch": batch, f"{name}_stride_{row}": first,
                 f"{name}_stride_{column}": second}
    return push


_DISPATCHES: dict[type[PlainProblem], Callable[[Any, DeviceInfo], tuple[Dispatch, ...]]] = {
    ElementwiseProblem: _function_dispatches,
    CastProblem: _cast_dispatches,
    ArithmeticProblem: _arithmetic_dispatches,
    CopyProblem: _copy_dispatches,
    GatherProblem: _gather_dispatches,
    GemmProblem: _gemm_dispatches,
}
