"""The store of all that is kept on a device from one call to the next, and the budget of its memory.

All faces share the pipelines, scratch buffers and packed weights in the store. It is bounded in bytes; what was not used for
the longest is dropped.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet, finalize

from ...errors import InvalidArgumentError
from ...planning.device_info import DeviceInfo
from .system import Lock

T = TypeVar("T")

_log = logging.getLogger(__name__)

DEFAULT_LIMIT = 2**30


class Lease:
    """The entries of the store that one user needs. When one is dropped, the store calls `lost`, and the user forgets all."""

    def __init__(self, store: Store, lost: Callable[[], None]) -> None:
        self.lost = lost
        self.keys: dict[Hashable, None] = {}
        store.leases.add(self)

    def give_back(self, key: Hashable) -> None:
        """Stop using an entry."""
        self.keys.pop(key, None)


class _Entry(NamedTuple):
    value: Any
    size: int
    is_memory: bool
    leases: WeakSet[Lease]


class Store:
    """Values by key, each with its size in bytes. Not thread-safe: the device's lock is held around its use.

    leases: of all its users. size: bytes of all that is kept.
    """

    def __init__(self, limit: int) -> None:
        self.leases: WeakSet[Lease] = WeakSet()
        self._limit = limit
        self._entries: dict[Hashable, _Entry] = {}  # what was used last is last
        self.size = 0
        self._last_keys: object = None  # keys of the most recent `use`, if nothing else has touched the store

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
        """Bytes of the entries that are memory of the device."""
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
            entry = _Entry(made, size() if callable(size) else size, is_memory, WeakSet())
            self.size += entry.size
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
        self._entries, self.size, self._last_keys = {}, 0, None
        for lease in list(self.leases):
            lease.keys.clear()
            lease.lost()

    def drop_memory(self, is_enough: Callable[[], bool], lease: Lease | None = None) -> None:
        """Drop device memory, the least recently used first, until it is enough, but nothing of this lease."""
        self._drop_while(lambda: not is_enough(), lambda key: self._entries[key].is_memory, lease)

    def _drop_oldest(self, lease: Lease | None, used: Hashable = None) -> None:
        """Drop until the rest is within the limit, but nothing of this lease, nor the key that is used now."""
        self._drop_while(lambda: self.size > self._limit, lambda key: key != used, lease)

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
        _log.info("dropped from the store: %s, %d bytes; %d of at most %d bytes are kept", _kind(key), entry.size, self.size,
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
    """The kind of an entry, for messages."""
    return str(key[0] if isinstance(key, tuple) else key)


DEFAULT_SHARE = 0.8  # of the heap, as other programs have some of it, too
_PARTS_TOLD = 6
_MOST_DIGITS = 30  # Python refuses to read thousands of them


def default_limit(info: DeviceInfo) -> int:
    """VKDML_MEMORY_BYTES, or DEFAULT_SHARE of its memory, where the driver says how much that is.

    Raises InvalidArgumentError where the variable is no number.
    """
    text = os.environ.get("VKDML_MEMORY_BYTES") or str(int(info.memory * DEFAULT_SHARE) or sys.maxsize)
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InvalidArgumentError("Device", "VKDML_MEMORY_BYTES", repr(text), "a whole number of bytes")
    return int(text)


class Memory:
    """The memory of one device. store: drops what nobody needs now. lock: the device's.

    limit: bytes of all buffers at most, with the host's copies of them.
    """

    def __init__(self, info: DeviceInfo, store: Store, lock: Lock) -> None:
        self._name = info.name
        self._store = store
        self._lock = lock
        self._limit = default_limit(info)
        self._sizes: dict[int, int] = {}  # of the buffers that are there, by their ids

    @property
    def used(self) -> int:
        """Bytes of all buffers that are there."""
        return sum(list(self._sizes.values()))  # a list at once, as a buffer of another thread may go meanwhile

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self.free(0)

    def take(self, buffer: object, size: int) -> None:
        """Count a new buffer, until it is gone."""
        self._sizes[id(buffer)] = size
        finalize(buffer, self._sizes.pop, id(buffer), None).atexit = False

    def has_room(self, sizes: Mapping[str, int]) -> bool:
        """Whether all of them fit beside what nobody can drop. sizes: bytes by name, what is in the store among them."""
        with self._lock:
            return self._is_within(lambda: self.used - self._store.memory + sum(sizes.values()))

    def expect_room(self, operator: str, sizes: Mapping[str, int]) -> None:
        """Raises InvalidArgumentError if not `has_room`."""
        if not self.has_room(sizes):
            raise self._refusal(operator, sizes, self.used - self._store.memory)

    def make_room(self, operator: str, sizes: Mapping[str, int]) -> None:
        """Make room for new buffers of so many bytes, by name. Raises InvalidArgumentError, with all as before, where there is
        none.
        """
        total = sum(sizes.values())
        if total and self.used + total > self.limit:
            self.expect_room(operator, sizes)
            self.free(total)

    def free(self, size: int, lease: Lease | None = None) -> None:
        """Drop what was not used for the longest, but nothing of this lease, until there is room for so many bytes."""
        with self._lock:
            self._store.drop_memory(lambda: self.used + size <= self.limit, lease)

    def expect_more(self, size: int) -> None:
        """Raises InvalidArgumentError if a buffer of so many bytes does not fit beside all that is there."""
        if not self._is_within(lambda: self.used + size):
            raise self._refusal("Buffer", {"size": size}, self.used)

    def _is_within(self, used: Callable[[], int]) -> bool:
        if used() > self.limit:
            gc.collect()  # networks hold themselves, and go only when Python looks for such objects
        return used() <= self.limit

    def _refusal(self, operator: str, sizes: Mapping[str, int], others: int) -> InvalidArgumentError:
        largest = sorted(sizes.items(), key=lambda item: -item[1])
        told = [f"{name} {size}" for name, size in largest[:_PARTS_TOLD]]
        rest = sum(size for _, size in largest[_PARTS_TOLD:])
        parts = ", ".join([*told, f"others {rest}"] if rest else told)
        return InvalidArgumentError(
            operator, "memory", f"{sum(sizes.values())} bytes ({parts})",
            f"at most {max(self.limit - others, 0)} on {self._name}: the limit of {self.limit} less {others} in use. "
            "Device.memory_limit or VKDML_MEMORY_BYTES raises it")


class Recent(Generic[T]):
    """Values by key. Once there are more than `kept`, the one that was not asked for the longest is dropped.

    Threads may use one at once, if each asks for keys of its own.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: dict[Hashable, T] = {}  # in the order in which they were asked for
        self._last: tuple[Hashable, T] | None = None  # of them

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made if it is not there."""
        last = self._last  # once, as another thread may ask for another key meanwhile
        if last is not None and last[0] == key:  # mostly, and keys are slow to hash
            return last[1]
        value = self._values.pop(key, None)
        if value is None:
            value = make()
        self._values[key] = value
        self._last = key, value
        if len(self._values) > self._kept:
            first, *_ = self._values  # other threads may do so at once
            self._values.pop(first, None)
        return value

    def drop(self, key: Hashable) -> None:
        self._values.pop(key, None)
        self._last = None

    def drop_where(self, is_useless: Callable[[T], bool]) -> None:
        for key, value in list(self._values.items()):
            if is_useless(value):
                self.drop(key)

    def values(self) -> list[T]:
        return list(self._values.values())

    def __len__(self) -> int:
        return len(self._values)
