"""Dispatches of GEMM: tiles of the output, a workgroup each."""

from __future__ import annotations

import math

from ..errors import InvalidArgumentError
from ..operators.gemm_problem import GemmProblem
from ..operators.plain_problem import OUTPUT
from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .dispatches import UNUSED, Dispatch, activation_constants, float_bits, given
from .profiles import profile

_TILE = 32  # rows and columns of the output that a workgroup computes, of which an invocation has 4 each
_WORKGROUP = (_TILE // 4) ** 2
_BLOCK = 16  # of K
_MOST_PRODUCTS = 2**36  # multiply-adds of a submission: on slow GPUs some tenths of a second


def of_gemm(problem: GemmProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """As many as keep to the device's workgroups and to the time of a submission.

    Raises InvalidArgumentError for a K with more loop iterations than the device's driver runs.
    """
    *batches, rows, columns = (1, 1, *problem.tensor(OUTPUT).sizes)[-4:]
    _check_iterations(problem, info)
    row_tiles, column_tiles = ceil_div(rows, _TILE), ceil_div(columns, _TILE)
    tiles = math.prod(batches) * row_tiles * column_tiles
    constants = {"WORKGROUP": _WORKGROUP, "ELEMENT": problem.element.shader_id, "TILE": _TILE, "BLOCK": _BLOCK,
                 "HAS_C": int(problem.has("CTensor")), **activation_constants((problem.function or UNUSED,), 1)}
    push = {"row_tiles": row_tiles, "column_tiles": column_tiles, "inner_batches": batches[1], "rows": rows, "columns": columns,
            "inner": problem.inner, "alpha": float_bits(problem.alpha), "beta": float_bits(problem.beta), **_strides(problem)}
    buffers = given(problem, "ATensor", "BTensor", "CTensor", OUTPUT)
    at_once = max(1, min(info.max_workgroup_count, _MOST_PRODUCTS // (_TILE**2 * problem.inner)))
    return tuple(Dispatch("gemm", constants, buffers, (OUTPUT,), (min(at_once, tiles - first), 1, 1),
                          {**push, "first_tile": first}, starts_submission=first > 0) for first in range(0, tiles, at_once))


def _check_iterations(problem: GemmProblem, info: DeviceInfo) -> None:
    stores = _TILE**2 // _WORKGROUP
    most = (profile(info).most_iterations - stores - 2) * _BLOCK
    if problem.inner > most:
        raise InvalidArgumentError(problem.operator, "ATensor.Sizes", f"K = {problem.inner}", f"at most {most} on {info.name}")


def _strides(problem: GemmProblem) -> dict[str, int]:
    """By matrix and dimension. A transposed matrix is one of other strides."""
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
