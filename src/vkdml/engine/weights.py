"""Weights packed for the kernels: where they are, what they were packed from (their origin), and whether that has changed.

There are three kinds of origins:
- arrays on the host, compared by contents: others may change an array at any time, whatever its `flags.writeable` says. A
  `constant` is compared by identity; an array over a bytes object by identity and a few elements, as PyTorch can write to it.
- parts of buffers, compared by stamps: each write gives the written part of a buffer a new stamp.
- OWNED: an initializer has packed the weights for good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from ..operators.arguments import flat
from .vulkan import memory
from .vulkan.memory import Bound

Origin = Hashable
OWNED: Origin = "an initializer"
_PROBED = 64  # elements that are compared of an immutable array that was equal before


def is_current(found: Origin | None, wanted: Origin | None) -> bool:
    """Return whether weights packed from `found` equal weights packed from `wanted`. None: the origin is unknown."""
    return wanted is not None and found == wanted


def origin_of(sources: Sequence[Bound]) -> Origin | None:
    """Return the origin of weights packed from these parts now; None if the host may have written to one without notice."""
    contents = [memory.contents_of(source) for source in sources]
    return None if None in contents else tuple(contents)


@dataclass(eq=False)
class PackState:
    """State of packed weights. It holds no buffer, so it does not keep a caller's buffer alive.

    origin: see this module; None if unknown. stamp: the stamp that the caller's buffer had then. contents: the bytes of the
    weights, by field, if executions are checked without binding them.
    """

    origin: Origin | None = None
    stamp: int | None = None
    contents: dict[str, np.ndarray] = field(default_factory=dict)


class Weights:
    """The buffers of packed weights, by their names in the plan. Objects with the same state are equal.

    within: the caller's buffer that holds them; None if the package owns them.
    """

    def __init__(self, buffers: Mapping[str, Bound], within: Bound | None = None, state: PackState | None = None) -> None:
        self.buffers, self.within = buffers, within
        self._state = state or PackState()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weights) and self._state is other._state

    def __hash__(self) -> int:
        return hash(self._state)

    @property
    def contents(self) -> dict[str, np.ndarray]:
        """The bytes of the weights, by field, if executions are checked without binding them."""
        return self._state.contents

    @property
    def origin(self) -> Origin | None:
        """The origin of the weights; None if it is unknown or the caller's buffer was written to since."""
        if self.within is None:
            return self._state.origin
        stamp = self.stamp
        is_unseen = stamp is None and self._state.origin != OWNED  # an initializer's weights cannot be packed again
        return None if is_unseen or stamp != self._state.stamp else self._state.origin

    @origin.setter
    def origin(self, origin: Origin | None) -> None:
        self._state.origin, self._state.stamp = origin, self.stamp

    def since(self, origin: Origin | None, stamp: int | None) -> Origin | None:
        """Return an origin that was right at a stamp; None if the caller's buffer was written to since."""
        return origin if self.stamp == stamp else None

    @property
    def stamp(self) -> int | None:
        """The latest stamp of the caller's buffer that holds the weights; None if there is no such buffer, or if the host can
        change it without notice. Writes between the weights do not count.
        """
        stamps = [part.stamp for part in self.buffers.values()] if self.within else []
        return max((stamp for stamp in stamps if stamp is not None), default=None)


_constants: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()  # by id


def constant(array: np.ndarray) -> np.ndarray:
    """Return a copy in C order that is compared by identity: only it has its memory, and numpy refuses to make it writable."""
    if array.dtype.hasobject:  # such an array is no weight
        copied = np.array(array, order="C")
        copied.flags.writeable = False
    else:
        copied = np.ndarray(array.shape, array.dtype, array.tobytes())
    _constants[id(copied)] = copied
    return copied


class Snapshot:
    """Arrays by field, whose contents cannot change: private copies or constants.

    make: returns the arrays. origin: equal for equal contents; by default a digest of the arrays.
    """

    def __init__(self, make: Callable[[], Mapping[str, np.ndarray]], origin: Origin | None = None) -> None:
        self._make = make
        self.origin = digest(make()) if origin is None else origin

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays, by field. They may be made at each access."""
        return self._make()


class _Kept(Snapshot):
    """A snapshot that can be compared with other arrays."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(lambda: arrays)
        self._kept = {name: (array, _words(array), array.base) for name, array in arrays.items()}
        self._immutable: dict[str, tuple[ref[np.ndarray], bytes]] = {}  # those that were equal last, with their elements

    def holds(self, name: str, array: np.ndarray) -> bool:
        """Return whether an array has the contents and the layout of a field's array."""
        kept, words, base = self._kept[name]
        if array is kept:
            return True
        if array.dtype != kept.dtype or array.shape != kept.shape or array.strides != kept.strides:
            return False
        found, last = _words(array), self._immutable.get(name)
        some = found[::len(found) // _PROBED | 1]
        if last and last[0]() is array:
            return last[1] == some.tobytes()
        is_equal: bool = base == found if type(base) is bytearray else bool((found == words).all())  # a memcmp, if it can be
        if is_equal and _is_immutable(array):
            self._immutable[name] = ref(array), some.tobytes()
        return is_equal


def digest(arrays: Mapping[str, np.ndarray], *facts: object) -> Origin:
    """Return a hash of arrays, their names and other facts."""
    found = hashlib.blake2b(repr(facts).encode(), digest_size=16)
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {array.shape} {array.strides} ".encode())
        found.update(_words(array).data)
    return found.digest()


class Contents:
    """The latest snapshots of arrays, by owner, such as a node of an execution.

    version: grows when an array has changed.
    """

    def __init__(self) -> None:
        self.version = 0
        self._last: dict[Hashable, _Kept] = {}

    def look(self, owner: Hashable, names: Mapping[str, str], values: Mapping[str, np.ndarray],
             check: Callable[[str, np.ndarray], object] = lambda name, array: None) -> None:
        """Take a new snapshot of an owner's arrays if one of them has changed. names: the keys in `values`, by field; arrays
        that are missing there have not changed. check: called with each name and array of a new snapshot; it raises to refuse.
        """
        last = self._last.get(owner)
        if last and all(last.holds(field, values[name]) for field, name in names.items() if name in values):
            return
        arrays = {field: values[name] for field, name in names.items()}
        for key, array in arrays.items():
            check(names[key], array)
        self._last[owner] = _Kept({field: array if _constants.get(id(array)) is array else _private_copy(array)
                                   for field, array in arrays.items()})
        self.version += 1

    def snapshot(self, owner: Hashable) -> Snapshot:
        """Return the latest snapshot of an owner's arrays."""
        return self._last[owner]


def _is_immutable(array: Any) -> bool:
    """Return whether numpy cannot write to an array: it is read-only, and so is all beneath it down to a bytes object."""
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.base
    return isinstance(array, bytes)


def _private_copy(array: np.ndarray) -> np.ndarray:
    """Return a read-only copy with the same strides, over a bytearray, which compares its bytes at once."""
    copied = np.ndarray(array.shape, array.dtype, bytearray(_words(array)), 0, array.strides)
    copied.flags.writeable = False
    return copied


def _words(array: np.ndarray) -> np.ndarray:
    """Return an array's memory as integers, so that NaN equals NaN and 0 does not equal -0."""
    words = flat(array)
    return words.view(f"u{words.itemsize}")
