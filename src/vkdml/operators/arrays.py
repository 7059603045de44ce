"""The memory layout of numpy arrays, as the strides of a tensor descriptor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def element_strides(array: np.ndarray) -> tuple[int, ...] | None:
    """An array's strides in elements, 0 for dimensions of size 1.

    None where a descriptor cannot express them (negative, or not whole elements), and where more than half of the memory from
    the first element to the last is gaps, so that a copy is cheaper.
    """
    strides = tuple(stride // array.itemsize if size > 1 else 0 for size, stride in zip(array.shape, array.strides))
    whole = all(stride % array.itemsize == 0 for size, stride in zip(array.shape, array.strides) if size > 1)
    if not whole or min(strides, default=0) < 0 or _span(array.shape, strides) > 2 * array.size:
        return None
    return strides


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last, gaps included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))


def flat(array: np.ndarray) -> np.ndarray:
    """A flat view of an array's memory from its first element to its last. `element_strides` must be able to describe it."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    strides = element_strides(array)
    assert strides is not None
    return np.lib.stride_tricks.as_strided(array, (_span(array.shape, strides),), (array.itemsize,))
