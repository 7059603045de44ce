"""The checks of GEMM: products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, shown
from . import activations
from .activations import FusedActivation
from .bounded import Arithmetic, Bounded
from .checks import check_output_strides, check_tensors, is_one_of
from .header.plain_descs import DML_MATRIX_TRANSFORM
from .plain_problem import OUTPUT, ComputedProblem


@dataclass(frozen=True)
class GemmProblem(ComputedProblem):
    """OutputTensor [..., M, N] = function(alpha * A [..., M, K] B [..., K, N] + beta * CTensor [..., M, N]).

    transposed: whether the last two dimensions of ATensor, and of BTensor, are exchanged in A and B. function: None where no
    activation is fused.
    """

    transposed: tuple[bool, bool]
    alpha: float
    beta: float
    function: FusedActivation | None

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

    def expected(self, arrays: Mapping[str, np.ndarray], arithmetic: Arithmetic) -> Bounded:
        a, b = (arrays[field].swapaxes(-1, -2) if is_transposed else arrays[field]
                for field, is_transposed in zip(("ATensor", "BTensor"), self.transposed))
        result = self.alpha * (a @ Bounded(b, 0.0, arithmetic))
        if self.has("CTensor"):
            result = result + self.beta * Bounded(arrays["CTensor"], 0.0, arithmetic)
        return result.through(self.function) if self.function else result


def from_desc(desc: Any) -> GemmProblem:
    """Check a DML_GEMM_OPERATOR_DESC.

    Raises InvalidArgumentError naming the operator, the field, what was found and what is allowed.
    """
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
    check_output_strides(name, OUTPUT, tensors[OUTPUT])
    fused = desc.FusedActivation
    return GemmProblem(
        operator=name, element=element, tensors=tensors, inputs=fields[:3], outputs=(OUTPUT,), weights=(),
        transposed=transposed,
        alpha=activations.parameter(name, "Alpha", desc.Alpha),
        beta=activations.parameter(name, "Beta", desc.Beta),
        function=None if fused is None else activations.fuse(name, "FusedActivation", fused, element))


def _transposed(operator: str, field: str, value: Any) -> bool:
    if not is_one_of(value, list(DML_MATRIX_TRANSFORM)):
        raise InvalidArgumentError(operator, field, shown(value), "NONE or TRANSPOSE")
    return bool(value == DML_MATRIX_TRANSFORM.TRANSPOSE)


def _swapped(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*sizes[:-2], sizes[-1], sizes[-2])
