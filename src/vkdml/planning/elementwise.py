"""Dispatches of the operators on tensors' elements: a function of one tensor's, or a sum, difference or product of two
tensors'.
"""

from __future__ import annotations

import math
import operator as op

from ..operators.arithmetic import ArithmeticProblem
from ..operators.elementwise_problem import ElementwiseProblem
from ..operators.plain_problem import MOST_DIMENSIONS, OUTPUT
from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .dispatches import UNUSED, WORKGROUPS_EVERYWHERE, Dispatch, activation_constants, given, in_room

WORKGROUP = 64


def of_function(problem: ElementwiseProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """One dispatch."""
    source, target = problem.tensor("InputTensor"), problem.tensor(OUTPUT)
    elements = math.prod(source.sizes)
    constants = {"WORKGROUP": WORKGROUP, "ELEMENT": problem.element.shader_id, **activation_constants((problem.function,), 1)}
    inner, push = dimensions(source.sizes, {"input_stride": source.strides, "output_stride": target.strides})
    return (Dispatch(in_room("elementwise", problem), constants, given(problem, "InputTensor", OUTPUT), (OUTPUT,),
                     groups_of(elements, info), {"elements": elements, "inner_dimensions": inner, **push}),)


def of_arithmetic(problem: ArithmeticProblem, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """One dispatch."""
    a, b, target = (problem.tensor(field) for field in ("ATensor", "BTensor", OUTPUT))
    elements = math.prod(target.sizes)
    inner, push = dimensions(target.sizes, {"a_stride": a.strides, "b_stride": b.strides, "output_stride": target.strides})
    constants = {"WORKGROUP": WORKGROUP, "ELEMENT": problem.element.shader_id, "INNER_DIMENSIONS": inner,
                 "SUBTRACTS": int(problem.operation is op.sub), "MULTIPLIES": int(problem.operation is op.mul),
                 **activation_constants((problem.function or UNUSED,), 1)}
    return (Dispatch("arithmetic", constants, given(problem, "ATensor", "BTensor", OUTPUT), (OUTPUT,),
                     groups_of(elements, info), {"elements": elements, **push}),)


def groups_of(elements: int, info: DeviceInfo) -> tuple[int, int, int]:
    """Workgroups for so many elements, which loop over the rest."""
    return min(ceil_div(elements, WORKGROUP), info.max_workgroup_count, WORKGROUPS_EVERYWHERE), 1, 1


def dimensions(sizes: tuple[int, ...], strides: dict[str, tuple[int, ...]]) -> tuple[int, dict[str, int]]:
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
