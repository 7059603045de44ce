"""Weights on the host: what is known of their contents, so that they are packed when they have changed and not else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..spec.arrays import flat


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Arrays by field, as they were once; nobody writes to them."""

    arrays: Mapping[str, np.ndarray]

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal contents."""
        digest = hashlib.blake2b(digest_size=16)
        for field, array in self.arrays.items():
            digest.update(f"{field} {array.dtype} {array.shape} {array.strides} ".encode())
            digest.update(self._words[field].data)
        return digest.digest()

    @cached_property
    def _words(self) -> dict[str, np.ndarray]:
        return {field: _words(array) for field, array in self.arrays.items()}

    def holds(self, field: str, array: np.ndarray) -> bool:
        """Whether an array has the contents and the layout of this field's."""
        kept = self.arrays.get(field)
        if kept is None or (array is kept and _is_frozen(array)):
            return kept is not None
        return (array.dtype == kept.dtype and array.shape == kept.shape and array.strides == kept.strides
                and bool((_words(array) == self._words[field]).all()))


class WeightKeeper:
    """The weights that networks with the same nodes, but for T and B, were last called with."""

    def __init__(self) -> None:
        self._last: dict[int, Snapshot] = {}  # by node

    def snapshot(self, node: int, arrays: Mapping[str, np.ndarray]) -> Snapshot:
        """Of a node's weights, by field: the last one where they have not changed or there are none.

        An array that nobody can write to is compared by identity, others by their contents.
        """
        last = self._last.get(node)
        if last is None or not all(last.holds(field, array) for field, array in arrays.items()):
            last = Snapshot({field: array if _is_frozen(array) else _frozen_copy(array) for field, array in arrays.items()})
            self._last[node] = last
        return last


def _frozen_copy(array: np.ndarray) -> np.ndarray:
    """With the same strides: a descriptor says them."""
    words = flat(array).copy()
    words.flags.writeable = False
    return np.lib.stride_tricks.as_strided(words, array.shape, array.strides, writeable=False)


def _is_frozen(array: Any) -> bool:
    """Whether nobody can write to an array, nor to one that it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None


def _words(array: np.ndarray) -> np.ndarray:
    """An array's memory as whole numbers, so that NaN equals NaN and 0 does not equal -0."""
    words = flat(array)
    return words.view(f"u{words.itemsize}")
