"""The one dispatch of an activation operator that stands alone."""

from __future__ import annotations

import math

from ..spec.checks import Tensor
from ..spec.elementwise import MOST_DIMENSIONS, ElementwiseProblem
from ..spec.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .dispatches import Dispatch, activation_constants, given, in_room
from .plan import Plan, check_limits

_WORKGROUP = 64


def plan(problem: ElementwiseProblem, info: DeviceInfo) -> Plan:
    """One dispatch. Raises InvalidArgumentError for what the device cannot hold."""
    source, target = problem.tensor("InputTensor"), problem.tensor("OutputTensor")
    elements = math.prod(source.sizes)
    constants = {"WORKGROUP": _WORKGROUP, "ELEMENT": problem.element.shader_id, **activation_constants((problem.function,), 1)}
    groups = min(ceil_div(elements, _WORKGROUP), info.max_workgroup_count)
    dispatch = Dispatch(in_room("elementwise", problem), constants, given(problem, "InputTensor", "OutputTensor"),
                        ("OutputTensor",), (groups, 1, 1), {"elements": elements, **_dimensions(source, target)})
    built = Plan(initialize=(), execute=(dispatch,), internal={})
    check_limits(problem, info, built)
    return built


def _dimensions(source: Tensor, target: Tensor) -> dict[str, int]:
    """As common/elementwise.glsl takes them, with those merged that both tensors have without a gap between."""
    merged: list[tuple[int, int, int]] = []  # sizes and strides, the innermost first
    for size, input_stride, output_stride in zip(source.sizes[::-1], source.strides[::-1], target.strides[::-1]):
        inner_size, *inner_strides = merged[-1] if merged else (1, -1, -1)
        if size > 1 and [input_stride, output_stride] == [inner_size * stride for stride in inner_strides]:
            merged[-1] = (inner_size * size, *merged[-1][1:])
        elif size > 1:
            merged.append((size, input_stride, output_stride))
    *inner, outermost = merged or [(1, 0, 0)]
    rows = [*inner, *[(1, 0, 0)] * (MOST_DIMENSIONS - 1 - len(inner)), outermost]
    names = ("size", "input_stride", "output_stride")
    push = {f"{name}_{i}": value for i, row in enumerate(rows) for name, value in zip(names, row)}
    return {"inner_dimensions": len(inner), **push}
