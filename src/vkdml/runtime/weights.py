"""Weights on the host: what is known of their contents, so that they are packed when they have changed and not else.

An array that somebody else has made may change at any time: `flags.writeable` says nothing of older views, of other libraries
that share its memory, and of what it was a moment ago. So its contents are compared. Only a `constant` is known by identity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np

from ..spec.arrays import flat

_constants: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()  # by id


def constant(array: np.ndarray) -> np.ndarray:
    """A copy, in C order, which is known by identity: nobody else has its memory, and numpy refuses to make it writable."""
    if array.dtype.hasobject:  # is no weight
        copied = np.array(array, order="C")
        copied.flags.writeable = False
    else:
        copied = np.ndarray(array.shape, array.dtype, array.tobytes())
    _constants[id(copied)] = copied
    return copied


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Arrays by field, as they were once; nobody writes to them, nor has them but for constants."""

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
        if kept is None or array is kept:
            return kept is not None
        return (array.dtype == kept.dtype and array.shape == kept.shape and array.strides == kept.strides
                and bool((_words(array) == self._words[field]).all()))


class WeightKeeper:
    """The weights that networks with the same nodes, but for T and B, were last called with."""

    def __init__(self) -> None:
        self._last: dict[int, Snapshot] = {}  # by node

    def snapshot(self, node: int, arrays: Mapping[str, np.ndarray]) -> Snapshot:
        """Of a node's weights, by field: the last one where they have not changed or there are none."""
        last = self._last.get(node)
        if last is None or not all(last.holds(field, array) for field, array in arrays.items()):
            last = Snapshot({field: array if _is_constant(array) else _private_copy(array) for field, array in arrays.items()})
            self._last[node] = last
        return last


def _is_constant(array: np.ndarray) -> bool:
    return _constants.get(id(array)) is array


def _private_copy(array: np.ndarray) -> np.ndarray:
    """With the same strides: a descriptor says them."""
    return np.lib.stride_tricks.as_strided(flat(array).copy(), array.shape, array.strides, writeable=False)


def _words(array: np.ndarray) -> np.ndarray:
    """An array's memory as whole numbers, so that NaN equals NaN and 0 does not equal -0."""
    words = flat(array)
    return words.view(f"u{words.itemsize}")
