"""Checks the range of float64 numbers. Devices compute each as a pair of float32 numbers, so it must fit a float32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import InvalidArgumentError
from .problem import MAX_FLOAT32

_IN_RANGE = f"numbers up to {MAX_FLOAT32:.3g}: float64 is computed in pairs of float32 numbers"


class RangeCheck:
    """Refuses inputs out of range, and results of finite inputs that are not finite: something on the way was out of range.

    name: of the operator, for errors. names: of the arrays and results, for errors, by their keys. arrays: the inputs, of any
    shapes and strides.

    Raises InvalidArgumentError for an input out of range.
    """

    def __init__(self, name: str, names: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
        self._name = name
        self._names = names
        self._is_finite = True
        for key, array in arrays.items():
            if array.size == 0:
                continue
            largest = max(abs(array.max()), abs(array.min()))  # unlike isfinite, these make no copy of the array
            if not np.isfinite(largest):
                self._is_finite = False
                largest = np.abs(array).max(where=np.isfinite(array), initial=0)
            if largest > MAX_FLOAT32:
                raise InvalidArgumentError(name, names[key], largest, _IN_RANGE)

    def check_results(self, results: Mapping[str, np.ndarray]) -> None:
        """Refuse results out of range. results: by key. Raises InvalidArgumentError."""
        for key, result in results.items():
            if self._is_finite and not np.isfinite(result).all():
                raise InvalidArgumentError(self._name, self._names[key], "numbers out of range on the way", _IN_RANGE)
