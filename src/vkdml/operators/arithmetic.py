"""The checks of ELEMENT_WISE_ADD, ADD1, SUBTRACT and MULTIPLY: sums, differences and products of two tensors' elements."""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import activations
from .activations import FusedActivation
from .bounded import Arithmetic, Bounded
from .checks import check_tensors
from .elementwise_problem import check_same_sizes
from .header.plain_descs import (
    DML_ELEMENT_WISE_ADD1_OPERATOR_DESC,
    DML_ELEMENT_WISE_ADD_OPERATOR_DESC,
    DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC,
    DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC,
)
from .plain_problem import MOST_DIMENSIONS, OUTPUT, ComputedProblem

OPERATIONS: dict[type[Any], Callable[[Any, Any], Any]] = {
    DML_ELEMENT_WISE_ADD_OPERATOR_DESC: op.add,
    DML_ELEMENT_WISE_ADD1_OPERATOR_DESC: op.add,
    DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC: op.sub,
    DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC: op.mul,
}


@dataclass(frozen=True)
class ArithmeticProblem(ComputedProblem):
    """OutputTensor = function(ATensor operation BTensor), element by element. All tensors have the same sizes.

    operation: add, sub or mul of the module operator. function: None where no activation is fused.
    """

    operation: Callable[[Any, Any], Any]
    function: FusedActivation | None

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {OUTPUT: self.inputs}

    def expected(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        a, b = (Bounded(arrays[field], 0.0, arithmetic) for field in self.inputs)
        result: Bounded = self.operation(a, b)
        return result.through(self.function) if self.function else result


def from_desc(desc: Any) -> ArithmeticProblem:
    """Check the structure of one of OPERATIONS.

    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
    name = type(desc).__name__
    fields = ("ATensor", "BTensor", OUTPUT)
    element, tensors = check_tensors(name, desc, fields, fields, None, range(1, MOST_DIMENSIONS + 1))
    check_same_sizes(name, tensors)
    fused = getattr(desc, "FusedActivation", None)
    return ArithmeticProblem(
        operator=name, element=element, tensors=tensors, inputs=fields[:2], outputs=(OUTPUT,), weights=(),
        operation=OPERATIONS[type(desc)],
        function=None if fused is None else activations.fuse(name, "FusedActivation", fused, element))
