"""The activation operators standing alone: their descriptors checked, and their one dispatch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from . import activations
from .activations import FusedActivation
from .checks import CheckedOperator, check_output_strides, check_tensors, unwrap_operator
from .element_types import ElementType
from .errors import InvalidArgumentError
from .plans import Dispatch, Plan, ceil_div, check_limits, float_bits, kernel_name
from .vulkan import DeviceInfo

_MOST_DIMENSIONS = 8
_WORKGROUP = 64


@dataclass(frozen=True)
class ElementwiseProblem(CheckedOperator):
    """OutputTensor = function(InputTensor), both of the same sizes."""

    function: FusedActivation


def from_desc(desc: Any, element: ElementType | None = None) -> ElementwiseProblem:
    """Check a DML_ACTIVATION_*_OPERATOR_DESC, or the DML_OPERATOR_DESC around it.

    element: the type of both tensors; by default one that DirectML takes, as InputTensor has it.
    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    desc = unwrap_operator(desc)
    name = type(desc).__name__
    fields = ("InputTensor", "OutputTensor")
    element, tensors = check_tensors(name, desc, fields, fields, element, range(1, _MOST_DIMENSIONS + 1))
    source, target = (tensor for tensor in tensors.values() if tensor)
    if target.sizes != source.sizes:
        raise InvalidArgumentError(name, "OutputTensor.Sizes", target.sizes, f"{source.sizes}, as InputTensor has")
    check_output_strides(name, "OutputTensor", target)
    return ElementwiseProblem(
        operator=name,
        element=element,
        tensors=tensors,
        inputs=("InputTensor",),
        outputs=("OutputTensor",),
        initialized=(),
        function=activations.parametrize(name, "", desc, element),
    )


def plan(problem: ElementwiseProblem, info: DeviceInfo) -> Plan:
    """One dispatch. Raises InvalidArgumentError for what the device cannot hold."""
    source, target = problem.tensor("InputTensor"), problem.tensor("OutputTensor")
    unused = _MOST_DIMENSIONS - len(source.sizes)
    elements = math.prod(source.sizes)
    constants = {
        "WORKGROUP": _WORKGROUP, "ELEMENTS": elements, "ELEMENT": problem.element.shader_id,
        "ACTIVATION": problem.function.activation.shader_id,
        "PARAM_A": float_bits(problem.function.a), "PARAM_B": float_bits(problem.function.b),
        **{f"SIZE_{i}": size for i, size in enumerate((1,) * unused + source.sizes)},
        **{f"INPUT_STRIDE_{i}": stride for i, stride in enumerate((0,) * unused + source.strides)},
        **{f"OUTPUT_STRIDE_{i}": stride for i, stride in enumerate((0,) * unused + target.strides)},
    }
    groups = min(ceil_div(elements, _WORKGROUP), info.max_workgroup_count)
    dispatch = Dispatch(kernel_name("elementwise", problem), constants, ("InputTensor", "OutputTensor"), ("OutputTensor",),
                        (groups, 1, 1))
    built = Plan(initialize=(), execute=(dispatch,), internal={})
    check_limits(problem, info, built)
    return built
