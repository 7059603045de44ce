"""Numbers with a bound on how far a device's may be from them: running error analysis of the reference's equations.

Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .activations import ParametrizedActivation
from .header.descs import DML_OPERATOR_TYPE

_FUNCTION_UNITS = 16  # error of an activation, in units of the arithmetic. Vulkan allows exp(x) 3 + 2 |x|
# Those that jump and rise by 1 beside that: right behind the jump they may be further off than where the argument's error ends
_JUMPING = {DML_OPERATOR_TYPE.ACTIVATION_SHRINK, DML_OPERATOR_TYPE.ACTIVATION_THRESHOLDED_RELU}
_MOST_ARGUMENT = 16.0  # past it every activation is 0, constant or near its argument


@dataclass(frozen=True)
class Arithmetic:
    """How accurately a device computes.

    unit: the relative error of a sum or product of two numbers. tiny: what may become 0. largest: above it, something on the
    way to a number may have been infinite. terms: number of those in the longest sum, which the device adds in any order.
    least: what a tensor has below it, denormals of its type, may be read as 0.
    """

    unit: float
    tiny: float
    largest: float
    terms: int
    least: float = 0.0

    def lost(self, read: np.ndarray) -> np.ndarray:
        """How far what a device reads may be from what a tensor has."""
        magnitude = np.abs(read)
        return np.where(magnitude < self.least, magnitude, 0.0)

    def read(self, array: np.ndarray) -> Bounded:
        """What a tensor has, with that error."""
        return Bounded(array, self.lost(array), self)


class Bounded:
    """Numbers, and how far a device's may be from them. It goes through the reference's equations in the place of an array.

    value: float64. error: the bound; infinity or NaN where nothing is known, as where numbers may have been too large for the
    device.
    """

    __array_ufunc__ = None  # an array on the left of an operator leaves it to this class

    def __init__(self, value: np.ndarray, error: Any, arithmetic: Arithmetic) -> None:
        self.value = value
        self.error = np.where(np.abs(value) + error <= arithmetic.largest, error, np.inf)
        self._arithmetic = arithmetic

    def _parts(self, other: Any) -> tuple[Any, Any]:
        """Value and error of an operand. An array, such as a bias, gets the error of reading it, and of all additions of
        its sum, here."""
        if isinstance(other, Bounded):
            return other.value, other.error
        return other, self._sum_error(other) + self._arithmetic.lost(other) if isinstance(other, np.ndarray) else 0.0

    def _sum_error(self, terms: np.ndarray) -> np.ndarray:
        return self._arithmetic.terms * self._arithmetic.unit * np.abs(terms)

    def _rounded(self, value: np.ndarray, error: Any) -> Bounded:
        return Bounded(value, error + self._arithmetic.unit * np.abs(value) + self._arithmetic.tiny, self._arithmetic)

    def __add__(self, other: Any) -> Bounded:
        value, error = self._parts(other)
        return self._rounded(self.value + value, self.error + error)

    __radd__ = __add__

    def __sub__(self, other: Bounded) -> Bounded:
        return self._rounded(self.value - other.value, self.error + other.error)

    def __rsub__(self, other: float) -> Bounded:
        return self._rounded(other - self.value, self.error)

    def __mul__(self, other: Any) -> Bounded:
        value, error = self._parts(other)
        return self._rounded(self.value * value, (np.abs(self.value) + self.error) * error + np.abs(value) * self.error)

    __rmul__ = __mul__

    def __rmatmul__(self, matrix: np.ndarray) -> Bounded:
        error = np.abs(matrix) @ (self.error + self._sum_error(self.value) + self._arithmetic.tiny)
        if self._arithmetic.least:
            error += self._arithmetic.lost(matrix) @ (np.abs(self.value) + self.error)
        most = self._sum_error(np.array(self._arithmetic.largest))  # with more, a part of the sum may have been too large
        return Bounded(matrix @ self.value, np.where(error <= most, error, np.inf), self._arithmetic)

    def __getitem__(self, columns: slice) -> Bounded:
        return Bounded(self.value[:, columns], self.error[:, columns], self._arithmetic)

    def clip(self, low: float, high: float, out: None = None) -> Bounded:
        """Bound the value, with the arguments that np.clip passes."""
        return self._through(lambda x: np.clip(x, low, high), self.error, 0.0)

    def through(self, function: ParametrizedActivation) -> Bounded:
        """Apply an activation, which the device computes in its own way."""
        a, b = abs(function.a), abs(function.b)
        divisor = 1 / a if function.activation.divisors else 0.0
        scale = max(1.0, a, b, a * b, divisor) + np.minimum(np.abs(self.value), _MOST_ARGUMENT)
        unit = _FUNCTION_UNITS * self._arithmetic.unit
        error = self.error + unit * np.abs(self.value)
        return self._through(function, error, unit * scale + (error if function.activation.operator_type in _JUMPING else 0.0))

    def _through(self, function: Callable[[np.ndarray], np.ndarray], error: np.ndarray, own_error: Any) -> Bounded:
        """Apply a function, which may have jumps."""
        value = function(self.value)
        moved = np.maximum(np.abs(function(self.value + error) - value), np.abs(function(self.value - error) - value))
        return self._rounded(value, np.where(np.isfinite(error), moved + own_error, np.inf))  # it may be NaN on the device
