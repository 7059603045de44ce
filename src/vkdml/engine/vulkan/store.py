"""The store of what is kept on a device between calls, and the budget of the device's memory.

All faces share the pipelines, scratch buffers and packed weights in the store. It is bounded in bytes and drops the least
recently used entries.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet, finalize

from ...errors import InvalidArgumentError
from ...planning.device_info import DeviceInfo

T = TypeVar("T")

_log = logging.getLogger(__name__)

DEFAULT_LIMIT = 2**30


class Lease:
    """The keys of entries that one user needs. When one is dropped, the store calls `lost`, and the user forgets all."""

    def __init__(self, store: Store, lost: Callable[[], None]) -> None:
        self.lost = lost
        self.keys: dict[Hashable, None] = {}
        store.leases.add(self)


class _Entry(NamedTuple):
    value: Any
    size: int
    is_memory: bool
    leases: WeakSet[Lease]


class Store:
    """Values by key, each with its size in bytes. Callers use it within the `work` of the device's lock.

    leases: one for each user. size: bytes of all entries. memory: bytes of those that are device memory. limit: the most bytes
    that are kept between calls; one call may need more.
    """

    def __init__(self, limit: int) -> None:
        self.leases: WeakSet[Lease] = WeakSet()
        self.limit = limit
        self._entries: dict[Hashable, _Entry] = {}  # the most recently used last
        self.size = self.memory = 0
        self._last_keys: object = None  # the keys of the last `use`, unless the order has changed since

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable, make: Callable[[], T], size: int | Callable[[], int], lease: Lease | None = None,
            is_memory: bool = False) -> T:
        """Return the value of a key. Make it if there is none.

        size: bytes, or a function that returns them once the value is made. lease: of a user who keeps the value. is_memory:
        whether the bytes are device memory.
        """
        self._last_keys = None
        entry = self._entries.pop(key, None)
        if entry is None:
            made = make()
            entry = _Entry(made, size() if callable(size) else size, is_memory, WeakSet())
            self.size += entry.size
            self.memory += entry.size * is_memory
        self._entries[key] = entry
        if lease is not None:
            lease.keys[key] = None
            entry.leases.add(lease)
        self.drop_oldest(lease, key)
        value: T = entry.value
        return value

    def use(self, keys: dict[Hashable, None]) -> None:
        """Mark entries as used now. All of them must exist."""
        if keys is self._last_keys:  # as in the steps of a stream, which are short
            return
        for key in keys:
            self._entries[key] = self._entries.pop(key)
        self._last_keys = keys

    def clear(self) -> None:
        """Drop everything, also after an interrupted call that left an inconsistent state."""
        self._entries, self.size, self.memory, self._last_keys = {}, 0, 0, None
        for lease in list(self.leases):
            lease.keys.clear()
            lease.lost()

    def drop_memory(self, is_enough: Callable[[], bool], lease: Lease | None = None) -> None:
        """Drop entries that are device memory, the least recently used first, until it is enough. Entries of the lease stay."""
        self._drop_while(lambda: not is_enough(), lambda key: self._entries[key].is_memory, lease)

    def drop_oldest(self, lease: Lease | None = None, used: Hashable = None) -> None:
        """Drop the least recently used entries until the limit holds. Entries of the lease and the key `used` stay."""
        self._drop_while(lambda: self.size > self.limit, lambda key: key != used, lease)

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
        self.size -= entry.size
        self.memory -= entry.size * entry.is_memory
        kind = key[0] if isinstance(key, tuple) else key
        _log.info("dropped from the store: %s, %d bytes; %d of at most %d bytes are kept", kind, entry.size, self.size,
                  self.limit)
        for lease in list(entry.leases):
            if key in lease.keys:
                lease.keys.clear()
                lease.lost()


DEFAULT_SHARE = 0.8  # the part of the device's heap that vkdml uses; other programs need some too
_PARTS_NAMED = 6
_MOST_DIGITS = 30  # Python refuses to read thousands of them


class Memory:
    """The budget of one device's memory. limit: the most bytes of all buffers and their host copies, VKDML_MEMORY_BYTES or a
    share of the heap. store: drops entries to make room.

    Raises InvalidArgumentError if VKDML_MEMORY_BYTES is no number.
    """

    def __init__(self, info: DeviceInfo, store: Store) -> None:
        self._name = info.name
        self._store = store
        text = os.environ.get("VKDML_MEMORY_BYTES") or str(int(info.memory * DEFAULT_SHARE) or sys.maxsize)
        if not text.isdecimal() or len(text) > _MOST_DIGITS:
            raise InvalidArgumentError("Device", "VKDML_MEMORY_BYTES", repr(text), "a whole number of bytes")
        self.limit = int(text)
        self._taken, self._freed, self._counting = 0, deque[int](), threading.RLock()

    @property
    def used(self) -> int:
        """Bytes of all buffers that exist."""
        with self._counting:
            while self._freed:
                freed = self._freed.popleft()
                self._taken -= freed  # without a call, so that no signal's handler comes in between
            return self._taken

    def take(self, buffer: object, size: int) -> None:
        """Count a new buffer until it is destroyed."""
        with self._counting:
            self._taken += size
        finalize(buffer, self._freed.append, size).atexit = False  # at any place, also within `used`: it takes no lock

    def has_room(self, sizes: Mapping[str, int]) -> bool:
        """Return whether buffers fit beside all that the store cannot drop. sizes: bytes by name, with those in the store."""
        return self._is_within(lambda: self.used - self._store.memory + sum(sizes.values()))

    def expect_room(self, operator: str, sizes: Mapping[str, int]) -> None:
        """Raise InvalidArgumentError if not `has_room`."""
        if not self.has_room(sizes):
            raise self._refusal(operator, sizes, self.used - self._store.memory)

    def make_room(self, operator: str, sizes: Mapping[str, int]) -> None:
        """Make room for new buffers. sizes: bytes by name. If there is none, raise InvalidArgumentError and drop nothing."""
        total = sum(sizes.values())
        if total and self.used + total > self.limit:
            self.expect_room(operator, sizes)
            self.free(total)

    def free(self, size: int, lease: Lease | None = None) -> None:
        """Drop the least recently used memory until `size` more bytes fit. Entries of the lease stay."""
        self._store.drop_memory(lambda: self.used + size <= self.limit, lease)

    def expect_more(self, size: int) -> None:
        """Raise InvalidArgumentError if `size` more bytes do not fit beside all existing buffers."""
        if not self._is_within(lambda: self.used + size):
            raise self._refusal("Buffer", {"size": size}, self.used)

    def _is_within(self, used: Callable[[], int]) -> bool:
        if used() > self.limit:
            gc.collect()  # networks are reference cycles, which only this frees
        return used() <= self.limit

    def _refusal(self, operator: str, sizes: Mapping[str, int], others: int) -> InvalidArgumentError:
        largest = sorted(sizes.items(), key=lambda item: -item[1])
        named = [f"{name} {size}" for name, size in largest[:_PARTS_NAMED]]
        rest = sum(size for _, size in largest[_PARTS_NAMED:])
        parts = ", ".join([*named, f"others {rest}"] if rest else named)
        return InvalidArgumentError(
            operator, "memory", f"{sum(sizes.values())} bytes ({parts})",
            f"at most {max(self.limit - others, 0)} on {self._name}: the limit of {self.limit} less {others} in use. "
            "Device.memory_limit or VKDML_MEMORY_BYTES raises it")


class Recent(Generic[T]):
    """The `kept` most recently used values, by key. Threads may use it at once if each asks for keys of its own."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: dict[Hashable, T] = {}  # the most recently used last
        self._last: tuple[Hashable, T] | None = None  # the last of them

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key. Make it if there is none."""
        last = self._last  # read once, as another thread may change it
        if last is not None and last[0] == key:  # most calls; keys are slow to hash
            return last[1]
        value = self._values.pop(key, None)
        if value is None:
            value = make()
        self._values[key] = value
        self._last = key, value
        if len(self._values) > self._kept:
            first, *_ = self._values
            self._values.pop(first, None)  # another thread may have dropped it
        return value

    def drop_where(self, is_useless: Callable[[T], bool]) -> None:
        for key, value in list(self._values.items()):
            if is_useless(value):
                self._values.pop(key, None)
                self._last = None

    def values(self) -> list[T]:
        return list(self._values.values())
