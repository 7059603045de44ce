"""What the process keeps on a device from one call to the next: pipelines, scratch buffers and packed weights.

All faces share it. It is bounded in bytes; what was not used for the longest is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakSet

from ..errors import InvalidArgumentError

T = TypeVar("T")

DEFAULT_LIMIT = 2**30


def limit_of_environment() -> int:
    """VKDML_CACHE_BYTES, or DEFAULT_LIMIT. Raises InvalidArgumentError for what is no number."""
    text = os.environ.get("VKDML_CACHE_BYTES") or str(DEFAULT_LIMIT)
    if not text.isdecimal():
        raise InvalidArgumentError("Device", "VKDML_CACHE_BYTES", repr(text), "a whole number of bytes")
    return int(text)


class Lease:
    """What one user of the store uses of it. Once a part is dropped, `lost` is called: the user lets go of all of it."""

    def __init__(self, store: Store, lost: Callable[[], None]) -> None:
        self._store = store
        self.lost = lost
        self.keys: dict[Hashable, None] = {}
        store.leases.add(self)

    def renew(self) -> None:
        """It is used now."""
        self._store.use(self.keys)

    def give_back(self, key: Hashable) -> None:
        """It is not used any more."""
        self.keys.pop(key)


@dataclass
class _Entry:
    value: Any
    size: int
    leases: WeakSet[Lease] = field(default_factory=WeakSet)


class Store:
    """Values by key, each with its size in bytes. Not thread-safe: the device's lock is held around its use.

    leases: of all its users.
    """

    def __init__(self, limit: int) -> None:
        self.leases: WeakSet[Lease] = WeakSet()
        self._limit = limit
        self._entries: dict[Hashable, _Entry] = {}  # what was used last is last
        self._size = 0
        self._last_keys: object = None  # of the `use` that nothing came after

    @property
    def size(self) -> int:
        """Bytes of all that is kept."""
        return self._size

    @property
    def limit(self) -> int:
        """Bytes that are kept at most. A call that needs more by itself has more until the next one."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._drop_oldest(None)

    def get(self, key: Hashable, make: Callable[[], T], size: int, lease: Lease | None = None) -> T:
        """The value of a key, made if it is not there. lease: of the user who keeps it longer than this call."""
        self._last_keys = None
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = _Entry(make(), size)
            self._size += size
        self._entries[key] = entry
        if lease is not None:
            lease.keys[key] = None
            entry.leases.add(lease)
        self._drop_oldest(lease, key)
        value: T = entry.value
        return value

    def use(self, keys: dict[Hashable, None]) -> None:
        """Mark these as used now. All are there."""
        if keys is self._last_keys:  # as with steps of one stream, which are short
            return
        for key in keys:
            self._entries[key] = self._entries.pop(key)
        self._last_keys = keys

    def clear(self) -> None:
        """Drop everything, also where an interrupted call has left what is not consistent."""
        self._entries, self._size, self._last_keys = {}, 0, None
        for lease in list(self.leases):
            lease.keys.clear()
            lease.lost()

    def _drop_oldest(self, lease: Lease | None, used: Hashable = None) -> None:
        """Until the rest is within the limit, but nothing of this lease, nor the key that is used now."""
        if self._size <= self._limit:
            return
        for key in list(self._entries):
            if key != used and (lease is None or key not in lease.keys):
                self._drop(key)
                if self._size <= self._limit:
                    return

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self._size -= entry.size
        for lease in list(entry.leases):
            if key in lease.keys:
                lease.keys.clear()
                lease.lost()

    def __len__(self) -> int:
        return len(self._entries)

    def sizes(self) -> dict[str, int]:
        """Bytes by kind: the first part of each key."""
        sizes: dict[str, int] = {}
        for key, entry in self._entries.items():
            assert isinstance(key, tuple)
            sizes[key[0]] = sizes.get(key[0], 0) + entry.size
        return sizes
