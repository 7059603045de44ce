"""How much of a device's memory this process may take, and what it has taken."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from weakref import finalize

from ...errors import InvalidArgumentError
from ...planning.device_info import DeviceInfo
from .fork import Lock
from .store import Lease, Store

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
