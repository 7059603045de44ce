"""Checks the plain operators, those without a time loop. Each has one output, OutputTensor.

Here are those that compute floats: activations that stand alone, arithmetic and GEMM. Those that copy are in copy_problem.py.
"""

from __future__ import annotations

import operator as op
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from . import activations
from .activations import ParametrizedActivation
from .bounded import Arithmetic, Bounded
from .checks import CheckedOperator, Tensor, check_output_strides, check_tensors, is_one_of, unwrap_operator
from .element_types import ElementType
from .header import descs

OUTPUT = "OutputTensor"
MOST_DIMENSIONS = 8
DIMENSIONS = range(1, MOST_DIMENSIONS + 1)

OPERATIONS: dict[type[Any], Callable[[Any, Any], Any]] = {
    descs.DML_ELEMENT_WISE_ADD_OPERATOR_DESC: op.add,
    descs.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC: op.add,
    descs.DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC: op.sub,
    descs.DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC: op.mul,
}


@dataclass(frozen=True)
class ComputedProblem(CheckedOperator):
    """A plain operator that computes floats. function: the activation that is applied last; None if there is none."""

    function: ParametrizedActivation | None

    @property
    def terms(self) -> int:
        """How many terms the longest sum has."""
        return 2

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {OUTPUT: self.inputs}

    def before_function(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        """Compute the output before the activation is applied, with error bounds: by default the input itself."""
        return arithmetic.read(arrays["InputTensor"])

    def expected(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        """Compute the output in float64, with a bound on a device's rounding errors. arrays: float64, in the tensors' sizes."""
        result = self.before_function(arrays, arithmetic)
        return result.through(self.function) if self.function else result


@dataclass(frozen=True)
class MovedProblem(CheckedOperator, ABC):
    """A plain operator that copies some of its inputs' elements to its output, bit by bit, whatever their type."""

    @abstractmethod
    def moved(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Compute the output. arrays: in the tensors' sizes; elements to copy may have any type of the right size."""


PlainProblem = ComputedProblem | MovedProblem


@dataclass(frozen=True)
class ElementwiseProblem(ComputedProblem):
    """OutputTensor = function(InputTensor), element by element. Both tensors have the same sizes."""

    function: ParametrizedActivation


@dataclass(frozen=True)
class ArithmeticProblem(ComputedProblem):
    """OutputTensor = function(ATensor operation BTensor), element by element. All tensors have the same sizes.

    operation: add, sub or mul of the module operator.
    """

    operation: Callable[[Any, Any], Any]

    def before_function(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        a, b = (arithmetic.read(arrays[field]) for field in self.inputs)
        result: Bounded = self.operation(a, b)
        return result


@dataclass(frozen=True)
class CastProblem(ComputedProblem):
    """OutputTensor = InputTensor, which is of the type `source`, rounded to nearest. Both tensors have the same sizes."""

    source: ElementType

    @property
    def input_element(self) -> ElementType:
        return self.source

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {}


@dataclass(frozen=True)
class GemmProblem(ComputedProblem):
    """OutputTensor [..., M, N] = function(alpha * A [..., M, K] B [..., K, N] + beta * CTensor [..., M, N]).

    transposed: whether the last two dimensions of ATensor, and of BTensor, are exchanged in A and B.
    """

    transposed: tuple[bool, bool]
    alpha: float
    beta: float

    @property
    def inner(self) -> int:
        """K, the number of products that an element sums."""
        return self.tensor("ATensor").sizes[-2 if self.transposed[0] else -1]

    @property
    def terms(self) -> int:
        return self.inner + 2

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        return {OUTPUT: ("CTensor",)}

    def before_function(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        a, b = (arrays[field].swapaxes(-1, -2) if is_transposed else arrays[field]
                for field, is_transposed in zip(("ATensor", "BTensor"), self.transposed))
        result: Bounded = self.alpha * (a @ arithmetic.read(b))
        return result + self.beta * arithmetic.read(arrays["CTensor"]) if self.has("CTensor") else result


# The checks: each raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.

def elementwise(desc: Any, element: ElementType | None = None) -> ElementwiseProblem:
    """Check a DML_ACTIVATION_*_OPERATOR_DESC, or the DML_OPERATOR_DESC around it.

    element: the type of both tensors; by default InputTensor's, which must be one that DirectML takes.
    """
    desc = unwrap_operator(desc)
    common = _same_sizes(desc, ("InputTensor", OUTPUT), element)
    return ElementwiseProblem(**common, function=activations.parametrize(type(desc).__name__, "", desc, common["element"]))


def scaled(desc: Any) -> ElementwiseProblem:
    """Check an ELEMENT_WISE_IDENTITY with a ScaleBias, which is the activation LINEAR."""
    name = type(desc).__name__
    if not isinstance(desc.ScaleBias, descs.DML_SCALE_BIAS):
        raise InvalidArgumentError(name, "ScaleBias", type(desc.ScaleBias).__name__, "DML_SCALE_BIAS or None")
    common = _same_sizes(desc, ("InputTensor", OUTPUT))
    params = (activations.parameter(name, "ScaleBias.Scale", desc.ScaleBias.Scale),
              activations.parameter(name, "ScaleBias.Bias", desc.ScaleBias.Bias))
    return ElementwiseProblem(
        **common, function=ParametrizedActivation(activations.BY_DESC[descs.DML_ACTIVATION_LINEAR_OPERATOR_DESC], params))


def arithmetic(desc: Any) -> ArithmeticProblem:
    """Check the structure of an addition, subtraction or multiplication: one of OPERATIONS."""
    common = _same_sizes(desc, ("ATensor", "BTensor", OUTPUT))
    return ArithmeticProblem(**common, function=_fused(desc, common["element"]), operation=OPERATIONS[type(desc)])


def gemm(desc: Any) -> GemmProblem:
    """Check a DML_GEMM_OPERATOR_DESC."""
    name = type(desc).__name__
    fields = ("ATensor", "BTensor", "CTensor", OUTPUT)
    element, tensors = check_tensors(name, desc, fields, ("ATensor", "BTensor", OUTPUT), None, range(2, 5))
    transposed = _transposed(name, "TransA", desc.TransA), _transposed(name, "TransB", desc.TransB)
    sizes = {field: tensor.sizes for field, tensor in tensors.items() if tensor}
    a, b = (_swapped(sizes[field]) if swap else sizes[field] for field, swap in zip(("ATensor", "BTensor"), transposed))
    expected = (*a[:-2], a[-1], b[-1])
    if b != expected:
        found, allowed = (_swapped(whole) if transposed[1] else whole for whole in (b, expected))
        raise InvalidArgumentError(name, "BTensor.Sizes", found, f"{allowed}, for ATensor's {sizes['ATensor']}")
    for field in ("CTensor", OUTPUT):
        if field in sizes and sizes[field] != (*a[:-1], b[-1]):
            raise InvalidArgumentError(name, f"{field}.Sizes", sizes[field], f"{(*a[:-1], b[-1])}, the product's")
    return GemmProblem(
        **common_fields(name, element, tensors), function=_fused(desc, element), transposed=transposed,
        alpha=activations.parameter(name, "Alpha", desc.Alpha), beta=activations.parameter(name, "Beta", desc.Beta))


def common_fields(operator: str, element: ElementType, tensors: Mapping[str, Tensor | None]) -> dict[str, Any]:
    """Return the fields of a CheckedOperator. Refuses an output whose elements share memory. tensors: inputs, then output."""
    check_output_strides(operator, OUTPUT, tensors[OUTPUT])
    return {"operator": operator, "element": element, "tensors": tensors, "outputs": (OUTPUT,), "weights": (),
            "inputs": tuple(field for field in tensors if field != OUTPUT)}


def _same_sizes(desc: Any, fields: tuple[str, ...], element: ElementType | None = None) -> dict[str, Any]:
    """Check the tensors of an operator that computes element by element. Returns the fields of a CheckedOperator."""
    name = type(desc).__name__
    element, tensors = check_tensors(name, desc, fields, fields, element, DIMENSIONS)
    check_same_sizes(name, tensors)
    return common_fields(name, element, tensors)


def check_same_sizes(operator: str, tensors: Mapping[str, Tensor | None]) -> None:
    """Refuse tensors of other sizes than the first one's."""
    first, *others = tensors
    sizes = {field: tensor.sizes for field, tensor in tensors.items() if tensor}
    for field in others:
        if sizes[field] != sizes[first]:
            raise InvalidArgumentError(operator, f"{field}.Sizes", sizes[field], f"{sizes[first]}, as {first} has")


def _fused(desc: Any, element: ElementType) -> ParametrizedActivation | None:
    fused = getattr(desc, "FusedActivation", None)
    return None if fused is None else activations.fuse(type(desc).__name__, "FusedActivation", fused, element)


def _transposed(operator: str, field: str, value: Any) -> bool:
    if not is_one_of(value, list(descs.DML_MATRIX_TRANSFORM)):
        raise InvalidArgumentError(operator, field, shown(value), "NONE or TRANSPOSE")
    return bool(value == descs.DML_MATRIX_TRANSFORM.TRANSPOSE)


def _swapped(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*sizes[:-2], sizes[-1], sizes[-2])
