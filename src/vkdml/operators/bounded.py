"""Numbers with a bound on the rounding error of a device's results: running error analysis of the reference's equations.

Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .activations import ParametrizedActivation
from .header.descs import DML_OPERATOR_TYPE

_FUNCTION_UNITS = 16  # error of an activation, as a multiple of Arithmetic.unit. Vulkan allows exp(x) an error of 3 + 2 |x|
# Activations that jump and have slope 1 elsewhere: just past the jump, the error may be larger than at the interval's ends
_JUMPING = {DML_OPERATOR_TYPE.ACTIVATION_SHRINK, DML_OPERATOR_TYPE.ACTIVATION_THRESHOLDED_RELU}
_MOST_ARGUMENT = 16.0  # beyond this argument every activation is 0, constant or close to its argument


@dataclass(frozen=True)
class Arithmetic:
    """How accurately a device computes.

    unit: the relative error of a sum or product of two numbers. tiny: results below it may become 0. largest: above it, an
    intermediate result may have been infinite. terms: how many the longest sum has; the device may add them in any order.
    least: the device may read elements below it, which are denormal, as 0.
    """

    unit: float
    tiny: float
    largest: float
    terms: int
    least: float = 0.0

    def lost(self, read: np.ndarray) -> np.ndarray:
        """Bound the error of reading elements: the device may read denormal ones as 0."""
        magnitude = np.abs(read)
        return np.where(magnitude < self.least, magnitude, 0.0)

    def read(self, array: np.ndarray) -> Bounded:
        """Wrap a tensor's elements, with the error of reading them."""
        return Bounded(array, self.lost(array), self)


class Bounded:
    """Numbers, and a bound on the error of a device's. They stand for arrays in the reference's equations.

    value: float64. error: the bound; infinity or NaN if nothing is known, as when numbers may be too large for the device.
    """

    __array_ufunc__ = None  # so that `array * Bounded` calls this class's operator instead of numpy's

    def __init__(self, value: np.ndarray, error: Any, arithmetic: Arithmetic) -> None:
        self.value = value
        self.error = np.where(np.abs(value) + error <= arithmetic.largest, error, np.inf)
        self._arithmetic = arithmetic

    def _parts(self, other: Any) -> tuple[Any, Any]:
        """Return an operand's value and error. For an array, such as a bias, it includes reading it and adding it to a sum."""
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
        most = self._sum_error(np.array(self._arithmetic.largest))  # above it, a partial sum may have been infinite
        return Bounded(matrix @ self.value, np.where(error <= most, error, np.inf), self._arithmetic)

    def __matmul__(self, columns: slice) -> Bounded:
        """Pick some columns of these, which are the product of a matrix and all columns."""
        return Bounded(self.value[:, columns], self.error[:, columns], self._arithmetic)

    def __gt__(self, other: float) -> Bounded:
        """1 where the values are greater, else 0."""
        return self._through(lambda x: (x > other).astype(np.float64), self.error, 0.0)

    def clip(self, low: float, high: float, out: None = None) -> Bounded:
        """Clip the values. np.clip calls this with these arguments."""
        return self._through(lambda x: np.clip(x, low, high), self.error, 0.0)

    def through(self, function: ParametrizedActivation) -> Bounded:
        """Apply an activation, and bound the error with which a device computes it."""
        a, b = abs(function.a), abs(function.b)
        divisor = 1 / a if function.activation.divisors else 0.0
        scale = max(1.0, a, b, a * b, divisor) + np.minimum(np.abs(self.value), _MOST_ARGUMENT)
        unit = _FUNCTION_UNITS * self._arithmetic.unit
        error = self.error + unit * np.abs(self.value)
        return self._through(function, error, unit * scale + (error if function.activation.operator_type in _JUMPING else 0.0))

    def _through(self, function: Callable[[np.ndarray], np.ndarray], error: np.ndarray, own_error: Any) -> Bounded:
        """Apply a function that may have jumps. own_error: the error of computing it."""
        value = function(self.value)
        moved = np.maximum(np.abs(function(self.value + error) - value), np.abs(function(self.value - error) - value))
        return self._rounded(value, np.where(np.isfinite(error), moved + own_error, np.inf))  # else the device's may be NaN
