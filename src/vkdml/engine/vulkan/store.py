"""What the process keeps on a device from one call to the next: pipelines, scratch buffers and packed weights.

All faces share it. It is bounded in bytes; what was not used for the longest is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_log = logging.getLogger(__name__)

DEFAULT_LIMIT = 2**30


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
        """It is not used any more, if it was."""
        self.keys.pop(key, None)


@dataclass
class _Entry:
    value: Any
    size: int
    is_memory: bool
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
        self._last_keys: object = None  # keys of the most recent `use`, if nothing else has touched the store

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

    @property
    def memory(self) -> int:
        """Bytes of what of it is the device's memory."""
        return sum(entry.size for entry in self._entries.values() if entry.is_memory)

    def get(self, key: Hashable, make: Callable[[], T], size: int | Callable[[], int], lease: Lease | None = None,
            is_memory: bool = False) -> T:
        """The value of a key, made if it is not there.

        size: a function is asked once the value is made. lease: of the user who keeps it longer than this call. is_memory:
        whether its bytes are the device's memory.
        """
        self._last_keys = None
        entry = self._entries.pop(key, None)
        if entry is None:
            made = make()
            entry = _Entry(made, size() if callable(size) else size, is_memory)
            self._size += entry.size
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

    def drop_memory(self, is_enough: Callable[[], bool], lease: Lease | None = None) -> None:
        """What was not used for the longest of the device's memory, until it is enough, but nothing of this lease."""
        self._drop_while(lambda: not is_enough(), lambda key: self._entries[key].is_memory, lease)

    def _drop_oldest(self, lease: Lease | None, used: Hashable = None) -> None:
        """Drop until the rest is within the limit, but nothing of this lease, nor the key that is used now."""
        self._drop_while(lambda: self._size > self._limit, lambda key: key != used, lease)

    def _drop_while(self, is_needed: Callable[[], bool], may_go: Callable[[Hashable], bool], lease: Lease | None) -> None:
        if not is_needed():
            return
        for key in list(self._entries):
            if may_go(key) and (lease is None or key not in lease.keys):
                self._drop(key)
                if not is_needed():
                    return

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self._size -= entry.size
        _log.info("dropped from the store: %s, %d bytes; %d of at most %d bytes are kept", _kind(key), entry.size, self._size,
                  self._limit)
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
            sizes[_kind(key)] = sizes.get(_kind(key), 0) + entry.size
        return sizes


def _kind(key: Hashable) -> str:
    """What an entry is."""
    return str(key[0] if isinstance(key, tuple) else key)
