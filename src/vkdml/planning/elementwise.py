"""The one dispatch of an activation operator that stands alone."""

from __future__ import annotations

import math

from ..spec.elementwise import MOST_DIMENSIONS, ElementwiseProblem
from ..spec.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .dispatches import Dispatch, activation_constants, given, in_room
from .plan import Plan, check_limits

_WORKGROUP = 64


def plan(problem: ElementwiseProblem, info: DeviceInfo) -> Plan:
    """One dispatch. Raises InvalidArgumentError for what the device cannot hold."""
    source, target = problem.tensor("InputTensor"), problem.tensor("OutputTensor")
    unused = MOST_DIMENSIONS - len(source.sizes)
    elements = math.prod(source.sizes)
    constants = {
        "WORKGROUP": _WORKGROUP, "ELEMENTS": elements, "ELEMENT": problem.element.shader_id,
        **activation_constants([problem.function], 1),
        **{f"SIZE_{i}": size for i, size in enumerate((1,) * unused + source.sizes)},
        **{f"INPUT_STRIDE_{i}": stride for i, stride in enumerate((0,) * unused + source.strides)},
        **{f"OUTPUT_STRIDE_{i}": stride for i, stride in enumerate((0,) * unused + target.strides)},
    }
    groups = min(ceil_div(elements, _WORKGROUP), info.max_workgroup_count)
    dispatch = Dispatch(in_room("elementwise", problem), constants, given(problem, "InputTensor", "OutputTensor"),
                        ("OutputTensor",), (groups, 1, 1))
    built = Plan(initialize=(), execute=(dispatch,), internal={})
    check_limits(problem, info, built)
    return built
