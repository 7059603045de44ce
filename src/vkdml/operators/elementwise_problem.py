"""The checks of operators that compute a function of each element of a tensor: an activation that stands alone, not fused into
another operator, and ELEMENT_WISE_IDENTITY with a scale and a bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from . import activations
from .activations import FusedActivation
from .bounded import Arithmetic, Bounded
from .checks import Tensor, check_output_strides, check_tensors, unwrap_operator
from .element_types import ElementType
from .header.descs import DML_ACTIVATION_LINEAR_OPERATOR_DESC
from .header.plain_descs import DML_SCALE_BIAS
from .plain_problem import MOST_DIMENSIONS, OUTPUT, ComputedProblem


@dataclass(frozen=True)
class ElementwiseProblem(ComputedProblem):
    """OutputTensor = function(InputTensor), element by element. Both tensors have the same sizes."""

    function: FusedActivation

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {OUTPUT: self.inputs}

    def expected(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        return Bounded(arrays["InputTensor"], 0.0, arithmetic).through(self.function)


def from_desc(desc: Any, element: ElementType | None = None) -> ElementwiseProblem:
    """Check a DML_ACTIVATION_*_OPERATOR_DESC, or the DML_OPERATOR_DESC around it.

    element: the type of both tensors; by default InputTensor's, which must be one that DirectML takes.
    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    desc = unwrap_operator(desc)
    name = type(desc).__name__
    fields = ("InputTensor", OUTPUT)
    element, tensors = check_tensors(name, desc, fields, fields, element, range(1, MOST_DIMENSIONS + 1))
    check_same_sizes(name, tensors)
    return _problem(name, element, tensors, activations.parametrize(name, "", desc, element))


def scaled(name: str, desc: Any) -> ElementwiseProblem:
    """Check an operator with a ScaleBias. Raises InvalidArgumentError."""
    if not isinstance(desc.ScaleBias, DML_SCALE_BIAS):
        raise InvalidArgumentError(name, "ScaleBias", type(desc.ScaleBias).__name__, "DML_SCALE_BIAS or None")
    fields = ("InputTensor", OUTPUT)
    element, tensors = check_tensors(name, desc, fields, fields, None, range(1, MOST_DIMENSIONS + 1))
    check_same_sizes(name, tensors)
    scale = activations.parameter(name, "ScaleBias.Scale", desc.ScaleBias.Scale)
    bias = activations.parameter(name, "ScaleBias.Bias", desc.ScaleBias.Bias)
    linear = FusedActivation(activations.BY_DESC[DML_ACTIVATION_LINEAR_OPERATOR_DESC], (scale, bias))
    return _problem(name, element, tensors, linear)


def check_same_sizes(operator: str, tensors: Mapping[str, Tensor | None]) -> None:
    """Refuse tensors of other sizes than the first one's, and an output whose elements share memory."""
    first, *others = tensors
    sizes = {field: tensor.sizes for field, tensor in tensors.items() if tensor}
    for field in others:
        if sizes[field] != sizes[first]:
            raise InvalidArgumentError(operator, f"{field}.Sizes", sizes[field], f"{sizes[first]}, as {first} has")
    check_output_strides(operator, OUTPUT, tensors[OUTPUT])


def _problem(name: str, element: ElementType, tensors: Mapping[str, Tensor | None], function: FusedActivation
             ) -> ElementwiseProblem:
    return ElementwiseProblem(operator=name, element=element, tensors=tensors, inputs=("InputTensor",), outputs=(OUTPUT,),
                              weights=(), function=function)
