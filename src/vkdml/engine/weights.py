"""Weights, packed for the kernels: where they are, what they were packed from, and the one answer to whether that has changed.

What they were packed from is their origin. There are three kinds:
- arrays on the host, by contents. An array that somebody else has made may change at any time: `flags.writeable` says nothing
  of older views, of other libraries that share its memory, and of what it was a moment ago. Only a `constant` is known by
  identity.
- parts of buffers, by stamps: a buffer gives each part another one when it is written.
- OWNED: an initializer has packed them, once for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np

from ..operators.checks import flat
from .vulkan.buffers import Bound

Origin = Hashable
OWNED: Origin = "an initializer"


def is_current(found: Origin | None, wanted: Origin | None) -> bool:
    """Whether weights packed from `found` are what `wanted` asks for. None: nobody knows."""
    return wanted is not None and found == wanted


def origin_of(sources: Sequence[Bound]) -> Origin | None:
    """The origin of weights that are packed from these now; None where the host may have written there unseen."""
    contents = [source.contents for source in sources]
    return None if None in contents else tuple(contents)


@dataclass(eq=False)
class PackState:
    """State of packed weights. Holds no buffer, so it does not extend the life of a caller's.

    origin: what they were packed from; None: nobody knows. stamp: the caller's resource's at the time. contents: the bytes of
    weights that no execution binds, by field, where executions are checked.
    """

    origin: Origin | None = None
    stamp: int | None = None
    contents: dict[str, np.ndarray] = field(default_factory=dict)


class Weights:
    """The buffers that packing fills. Objects with the same state are equal.

    buffers: by their names in the plan. within: the caller's buffer that holds them; None if the package owns them.
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
        """The bytes of weights that no execution binds, by field, where executions are checked."""
        return self._state.contents

    @property
    def origin(self) -> Origin | None:
        """Origin that they were packed from; None if unknown, or if the caller's resource was written to since."""
        if self.within is None:
            return self._state.origin
        stamp = self.stamp
        is_unseen = stamp is None and self._state.origin != OWNED  # those of an initializer cannot be packed again
        return None if is_unseen or stamp != self._state.stamp else self._state.origin

    @origin.setter
    def origin(self, origin: Origin | None) -> None:
        self._state.origin, self._state.stamp = origin, self.stamp

    def since(self, origin: Origin | None, stamp: int | None) -> Origin | None:
        """What was `origin` at a stamp; None where somebody has written to the caller's resource since."""
        return origin if self.stamp == stamp else None

    @property
    def stamp(self) -> int | None:
        """The latest stamp in the caller's resource; None: there is none, or the host can change it unseen. What is written
        between the buffers changes none.
        """
        stamps = [part.stamp for part in self.buffers.values()] if self.within else []
        return max((stamp for stamp in stamps if stamp is not None), default=None)


# Arrays on the host

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


class Snapshot:
    """Arrays by field, as they were once. They are private copies or constants, so their contents cannot change.

    make: returns them. origin: equal for equal contents; by default a digest of them.
    """

    def __init__(self, make: Callable[[], Mapping[str, np.ndarray]], origin: Origin | None = None) -> None:
        self._make = make
        self.origin = digest(make()) if origin is None else origin

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays, which may be made at each call."""
        return self._make()


class _Kept(Snapshot):
    """A snapshot that can be compared with other arrays."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(lambda: arrays)
        self._kept = {name: (array, _words(array)) for name, array in arrays.items()}

    def holds(self, name: str, array: np.ndarray) -> bool:
        """Whether an array has the contents and the layout of this field's."""
        kept, words = self._kept[name]
        return array is kept or (array.dtype == kept.dtype and array.shape == kept.shape and array.strides == kept.strides
                                 and bool((_words(array) == words).all()))


def digest(arrays: Mapping[str, np.ndarray], *facts: object) -> Origin:
    """Equal for equal contents, names and facts."""
    found = hashlib.blake2b(repr(facts).encode(), digest_size=16)
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {array.shape} {array.strides} ".encode())
        found.update(_words(array).data)
    return found.digest()


class Contents:
    """Snapshots of arrays as last looked at, by owner: a node of an execution, say.

    Executions with the same nodes, but for T and B, share one. version: another number once anything has changed.
    """

    def __init__(self) -> None:
        self.version = 0
        self._last: dict[Hashable, _Kept] = {}

    def look(self, owner: Hashable, names: Mapping[str, str], values: Mapping[str, np.ndarray],
             check: Callable[[str, np.ndarray], object] = lambda name, array: None) -> None:
        """Take a new snapshot of an owner's arrays if one of them has changed. names: theirs in `values`, by field; those that
        are not there have not changed. check: called with each name and array of a new snapshot; it raises to refuse.
        """
        last = self._last.get(owner)
        if last is not None:
            for field, name in names.items():
                array = values.get(name)
                if array is not None and not last.holds(field, array):
                    break
            else:
                return
        arrays = {field: values[name] for field, name in names.items()}
        for field, array in arrays.items():
            check(names[field], array)
        self._last[owner] = _Kept({field: array if _is_constant(array) else _private_copy(array)
                                   for field, array in arrays.items()})
        self.version += 1

    def snapshot(self, owner: Hashable) -> Snapshot:
        """The last snapshot of an owner's arrays."""
        return self._last[owner]


def _is_constant(array: np.ndarray) -> bool:
    return _constants.get(id(array)) is array


def _private_copy(array: np.ndarray) -> np.ndarray:
    """A copy with the same strides, which a descriptor says."""
    return np.lib.stride_tricks.as_strided(flat(array).copy(), array.shape, array.strides, writeable=False)


def _words(array: np.ndarray) -> np.ndarray:
    """An array's memory as whole numbers, so that NaN equals NaN and 0 does not equal -0."""
    words = flat(array)
    return words.view(f"u{words.itemsize}")
