"""Plans the operators without a time loop: they only have dispatches, and no packed weights or state."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import InvalidArgumentError
from ..operators import plain_problem as problems
from ..operators.checks import ceil_div
from ..operators.copy_problem import INDICES, CopyProblem, GatherProblem, index_sizes
from ..operators.element_types import FLOAT32
from ..operators.plain_problem import OUTPUT
from .device_info import DeviceInfo
from .dispatches import WORKGROUPS_EVERYWHERE, Dispatch, activation_constants, float_bits, given, in_room, storing_halves
from .plan import Plan, check_limits
from .profiles import profile

_WORKGROUP = 64
_GEMM_TILE = 32  # rows and columns of the output that a workgroup computes; an invocation computes 4 x 4 of them
_GEMM_WORKGROUP = (_GEMM_TILE // 4) ** 2
_GEMM_BLOCK = 16  # elements of K that are multiplied at a time
_LANES_ROWS, _LANES_FEW_ROWS = 32, 8  # rows of a tile of the kernel that shuffles
_OF_OPERATION = {op.add: {"SUBTRACTS": 0, "MULTIPLIES": 0}, op.sub: {"SUBTRACTS": 1, "MULTIPLIES": 0},
                 op.mul: {"SUBTRACTS": 0, "MULTIPLIES": 1}}
_MOST_PRODUCTS = 2**36  # most multiply-adds of a submission: on slow GPUs they take some tenths of a second


def plan(problem: problems.PlainProblem, info: DeviceInfo) -> Plan:
    """Plan an operator without a time loop. Raises InvalidArgumentError for sizes that the device cannot hold."""
    built = Plan(initialize=(), execute=storing_halves(_DISPATCHES[type(problem)](problem, info), problem, info), buffers={})
    check_limits(problem, info, built)
    return built


def _computed(kernel: str, problem: problems.ComputedProblem, info: DeviceInfo, constants: Mapping[str, int]
              ) -> tuple[Dispatch, ...]:
    """Make one dispatch that computes each element of the output from the inputs' elements in the same place."""
    buffers, target = given(problem, *problem.tensors), problem.tensor(OUTPUT)
    strides = {f"{block.lower()}_stride": problem.tensor(field).strides for block, field in buffers.items()}
    constants = {"ELEMENT": problem.element.shader_id, **constants}
    return (_by_element(kernel, constants, buffers, target.sizes, strides, info),)


def _copy_dispatches(problem: CopyProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Make a dispatch for each copied part: so an operator may have more inputs than a kernel has bindings."""
    target, dispatches = problem.tensor(OUTPUT).strides, []
    for move in problem.moves:
        source = problem.tensor(move.field).strides
        strides = {"input_stride": tuple(map(op.mul, source, move.strides)), "output_stride": target}
        starts = {"input_start": sum(map(op.mul, source, move.starts)), "output_start": sum(map(op.mul, target, move.at))}
        dispatches.append(_by_element("copy", {"ITEM_BYTES": problem.element.itemsize},
                                      {"Input": move.field, "Output": OUTPUT}, move.sizes, strides, info, starts))
    return tuple(dispatches)


def _gather_dispatches(problem: GatherProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Make one dispatch. Each dimension of the output comes from the input or from the indices."""
    source, indices, target = (problem.tensor(field) for field in ("InputTensor", INDICES, OUTPUT))
    axis, count = problem.axis, problem.index_dimensions
    of_input = (*source.strides[:axis], *[0] * count, *source.strides[axis + 1:])
    of_indices = (*[0] * axis, *index_sizes(indices.strides, count), *[0] * (len(source.sizes) - 1 - axis))
    missing = len(target.sizes) - len(of_input)  # how many more leading sizes of 1 the output has; below 0: fewer
    of_input, of_indices = ((*[0] * missing, *strides[max(-missing, 0):]) for strides in (of_input, of_indices))
    strides = {"input_stride": of_input, "index_stride": of_indices, "output_stride": target.strides,
               "source_stride": tuple(map(op.add, of_input, of_indices))}
    constants = {"ITEM_BYTES": problem.element.itemsize, "INDEX_WORDS": problem.index_dtype.itemsize // 4,
                 "IS_SIGNED": int(problem.index_dtype.kind == "i")}
    found = _by_element("gather", constants, {"Input": "InputTensor", "Indices": INDICES, "Output": OUTPUT}, target.sizes,
                        strides, info, {"axis_size": problem.axis_size, "axis_stride": source.strides[axis]})
    of_output = sum(1 << i for i in range(problems.MOST_DIMENSIONS) if found.push[f"index_stride_{i}"])
    return (replace(found, push=found.push | {"of_indices": of_output}),)


def _by_element(kernel: str, constants: dict[str, int], buffers: dict[str, str], sizes: tuple[int, ...],
                strides: dict[str, tuple[int, ...]], info: DeviceInfo, others: Mapping[str, int] = {}) -> Dispatch:
    """Make a dispatch that computes each element of the output. If the workgroups are limited, they loop over the rest.

    strides: as _dimensions takes them. others: more push constants.
    """
    inner, push = _dimensions(sizes, strides)
    groups = min(ceil_div(math.prod(sizes), _WORKGROUP), info.max_workgroup_count, WORKGROUPS_EVERYWHERE)
    return Dispatch(kernel, {"WORKGROUP": _WORKGROUP, "INNER_DIMENSIONS": inner, **constants}, buffers, (OUTPUT,),
                    (groups, 1, 1), {"elements": math.prod(sizes), "inner_dimensions": inner, **push, **others})


def _dimensions(sizes: tuple[int, ...], strides: dict[str, tuple[int, ...]]) -> tuple[int, dict[str, int]]:
    """Merge dimensions that are contiguous in all tensors, and make the push constants of those that are left.

    strides: each tensor's, by the name of its push constants. Returns how many dimensions are inside the outermost, and the
    push constants: the innermost dimension has number 0, and the outermost the last number.
    """
    merged: list[tuple[int, ...]] = []  # size and strides, the innermost first
    for size, *outer_strides in list(zip(sizes, *strides.values()))[::-1]:
        inner_size, *inner_strides = merged[-1] if merged else (1, *[-1] * len(strides))
        if size > 1 and outer_strides == [inner_size * stride for stride in inner_strides]:
            merged[-1] = (inner_size * size, *inner_strides)
        elif size > 1:
            merged.append((size, *outer_strides))
    nothing = (1, *[0] * len(strides))
    *inner, outermost = merged or [nothing]
    rows = [*inner, *[nothing] * (problems.MOST_DIMENSIONS - 1 - len(inner)), outermost]
    names = ("size", *strides)
    return len(inner), {f"{name}_{i}": value % 2**32 for i, row in enumerate(rows) for name, value in zip(names, row)}


def _gemm_dispatches(problem: problems.GemmProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Make dispatches with a workgroup for each tile of the output, within the limits on workgroups and on a submission's time.

    Raises InvalidArgumentError for a K that needs more loop iterations than the driver allows.
    """
    *batches, rows, columns = (1, 1, *problem.tensor(OUTPUT).sizes)[-4:]
    strides = _gemm_strides(problem)
    kernel, tile_rows, tile_columns, constants = _gemm_tiling(problem, info, rows, columns, strides)
    row_tiles, column_tiles = ceil_div(rows, tile_rows), ceil_div(columns, tile_columns)
    tiles = math.prod(batches) * row_tiles * column_tiles
    constants = {**constants, "ELEMENT": problem.element.shader_id, "HAS_C": int(problem.has("CTensor")),
                 **activation_constants((problem.function,), 1)}
    push = {"row_tiles": row_tiles, "column_tiles": column_tiles, "inner_batches": batches[1], "rows": rows, "columns": columns,
            "inner": problem.inner, "alpha": float_bits(problem.alpha), "beta": float_bits(problem.beta), **strides}
    buffers = given(problem, "ATensor", "BTensor", "CTensor", OUTPUT)
    at_once = max(1, min(info.max_workgroup_count, _MOST_PRODUCTS // (tile_rows * tile_columns * problem.inner)))
    return tuple(Dispatch(kernel, constants, buffers, (OUTPUT,), (min(at_once, tiles - first), 1, 1),
                          {**push, "first_tile": first}, starts_submission=first > 0) for first in range(0, tiles, at_once))


def _gemm_tiling(problem: problems.GemmProblem, info: DeviceInfo, rows: int, columns: int, strides: Mapping[str, int]
                 ) -> tuple[str, int, int, dict[str, int]]:
    """Choose a kernel. Returns it with the rows and columns of its tiles, and its constants."""
    device, lanes, inner = profile(info), info.subgroup_size, problem.inner
    most_blocks = (device.most_iterations - 5 * _LANES_ROWS - 2) // (1 + lanes // 4)  # the loops over a tile's results, too
    if (device.prefers_shuffles and device.most_unrolled is None and info.subgroup_shuffle and lanes % 4 == 0
            and inner <= most_blocks * lanes):
        by_k = strides["a_stride_k"] <= strides["a_stride_row"]
        a_in_vecs = _in_vecs(problem, strides, "a", *(("k", inner) if by_k else ("row", rows)))
        tile_rows = _LANES_ROWS if rows > _LANES_FEW_ROWS else _LANES_FEW_ROWS
        return "cpu/gemm_lanes", tile_rows, 4 * lanes, {
            "WORKGROUP": lanes, "LANES": lanes, "ROWS": tile_rows, "A_BY_K": int(by_k), "A_IN_VECS": int(a_in_vecs),
            "B_IN_VECS": int(_in_vecs(problem, strides, "b", "column", columns))}
    most = (device.most_iterations - _GEMM_TILE**2 // _GEMM_WORKGROUP - 2) * _GEMM_BLOCK
    if inner > most:
        raise InvalidArgumentError(problem.operator, "ATensor.Sizes", f"K = {inner}", f"at most {most} on {info.name}")
    return "gemm", _GEMM_TILE, _GEMM_TILE, {"WORKGROUP": _GEMM_WORKGROUP, "TILE": _GEMM_TILE, "BLOCK": _GEMM_BLOCK}


def _in_vecs(problem: problems.GemmProblem, strides: Mapping[str, int], matrix: str, along: str, size: int) -> bool:
    """Whether a matrix can be loaded in whole vec4s along one of its dimensions, which has this size."""
    others = (stride for name, stride in strides.items() if name.startswith(f"{matrix}_") and not name.endswith(f"_{along}"))
    return (problem.element is FLOAT32 and size % 4 == 0 and strides[f"{matrix}_stride_{along}"] == 1
            and all(stride % 4 == 0 for stride in others))


def _gemm_strides(problem: problems.GemmProblem) -> dict[str, int]:
    """Make push constants of the strides, by matrix and dimension. Transposing a matrix exchanges its strides."""
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


_DISPATCHES: dict[type[problems.PlainProblem], Callable[[Any, DeviceInfo], tuple[Dispatch, ...]]] = {
    problems.ElementwiseProblem: lambda problem, info: _computed(
        in_room("elementwise", problem), problem, info, activation_constants((problem.function,), 1)),
    problems.CastProblem: lambda problem, info: _computed("cast", problem, info, {"SOURCE": problem.source.shader_id}),
    problems.ArithmeticProblem: lambda problem, info: _computed(
        "arithmetic", problem, info, {**_OF_OPERATION[problem.operation], **activation_constants((problem.function,), 1)}),
    CopyProblem: _copy_dispatches,
    GatherProblem: _gather_dispatches,
    problems.GemmProblem: _gemm_dispatches,
}
