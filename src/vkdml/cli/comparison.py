"""How far a model's outputs are from those of another runtime, and whether that is near enough for their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .values import leaves

# The absolute and relative tolerance, by type; other types must be equal
_TOLERANCES = {"float64": (1e-10, 1e-9), "float32": (1e-5, 1e-4), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}

_FLOOR = 1 / 16  # errors of numbers below this share of an output's largest are in ULP of that share


def compared(value: Any, expected: Any, types: Iterable[str] = ()) -> dict[str, Any]:
    """The largest errors of an output, and whether it agrees.

    types: names of other types that it was computed in; the coarsest one sets the tolerance. Sequences and maps agree where
    each of their tensors or numbers does. Errors are None where there are none to report, as for texts or other shapes.
    """
    ours, theirs = leaves(value), leaves(expected)
    if ours.keys() != theirs.keys():
        return _report([], agrees=False)
    rows = [_of_array(ours[place], theirs[place], types) for place in ours]
    return _report([row for row, _ in rows if row], agrees=all(agrees for _, agrees in rows))


def _report(errors: list[tuple[float, float, float]], agrees: bool) -> dict[str, Any]:
    largest: list[float | None] = [float(np.max(column)) for column in zip(*errors)] or [None] * 3
    return {**dict(zip(("absolute", "relative", "ulp"), largest)), "agrees": agrees}


def _of_array(array: np.ndarray, expected: np.ndarray, types: Iterable[str]) -> tuple[tuple[float, float, float] | None, bool]:
    """The largest absolute and relative error and that in ULP, and whether it agrees."""
    name = array.dtype.name
    if array.shape != expected.shape or name != expected.dtype.name or name not in _TOLERANCES:
        return None, array.shape == expected.shape and bool(np.array_equal(array, expected))
    atol, rtol = np.max([_TOLERANCES[kind] for kind in (name, *types) if kind in _TOLERANCES], axis=0)
    ours, theirs = array.astype(np.float64), expected.astype(np.float64)
    differs = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
    with np.errstate(all="ignore"):
        size, differences = np.abs(theirs[differs]), np.abs(ours[differs] - theirs[differs])
        finite = np.abs(theirs[np.isfinite(theirs)])
        ulp = _ulp(np.maximum(size, _FLOOR * finite.max(initial=0)), expected.dtype)
        errors = [differences, (differences / size)[size > 0], differences / ulp]
        largest = [float(error.max(initial=0)) for error in errors]
    return (largest[0], largest[1], largest[2]), bool(np.allclose(ours, theirs, rtol, atol, equal_nan=True))


def _ulp(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The unit in the last place of a type at these numbers."""
    if dtype.name == "bfloat16":
        return np.spacing(numbers.astype(np.float32)).astype(np.float64) * 2.0**16
    return np.spacing(numbers.astype(dtype)).astype(np.float64)
