"""How numpy arrays lie in memory, in a tensor descriptor's words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def element_strides(array: np.ndarray) -> tuple[int, ...] | None:
    """An array's strides in elements, or None where a descriptor cannot have them or the gaps are most of it."""
    strides = tuple(stride // array.itemsize if size > 1 else 0 for size, stride in zip(array.shape, array.strides))
    whole = all(stride % array.itemsize == 0 for size, stride in zip(array.shape, array.strides) if size > 1)
    if not whole or min(strides, default=0) < 0 or _span(array.shape, strides) > 2 * array.size:
        return None
    return strides


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements and gaps from the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))


def flat(array: np.ndarray) -> np.ndarray:
    """The memory of an array that has `element_strides`, from its first element to its last, not copied."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    strides = element_strides(array)
    assert strides is not None
    return np.lib.stride_tricks.as_strided(array, (_span(array.shape, strides),), (array.itemsize,))
