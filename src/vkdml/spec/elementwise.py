"""The checks of an activation operator that stands alone, not fused into a recurrent operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError
from . import activations
from .activations import FusedActivation
from .checks import CheckedOperator, check_output_strides, check_tensors, unwrap_operator
from .element_types import ElementType

MOST_DIMENSIONS = 8


@dataclass(frozen=True)
class ElementwiseProblem(CheckedOperator):
    """OutputTensor = function(InputTensor), element by element. Both tensors have the same sizes."""

    function: FusedActivation


def from_desc(desc: Any, element: ElementType | None = None) -> ElementwiseProblem:
    """Check a DML_ACTIVATION_*_OPERATOR_DESC, or the DML_OPERATOR_DESC around it.

    element: the type of both tensors; by default InputTensor's, which must be one that DirectML takes.
    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    desc = unwrap_operator(desc)
    name = type(desc).__name__
    fields = ("InputTensor", "OutputTensor")
    element, tensors = check_tensors(name, desc, fields, fields, element, range(1, MOST_DIMENSIONS + 1))
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
        weights=(),
        function=activations.parametrize(name, "", desc, element),
    )
