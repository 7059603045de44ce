"""What was made for the last few keys, so that caches have a bound."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values by key. Once there are more than `kept`, the one that was not asked for the longest is dropped."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: dict[Hashable, T] = {}  # in the order in which they were asked for
        self._last: tuple[Hashable, T] | None = None  # of them

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made if it is not there."""
        if self._last is not None and self._last[0] == key:  # mostly, and keys are slow to hash
            return self._last[1]
        value = self._values.pop(key, None)
        if value is None:
            value = make()
        self._values[key] = value
        self._last = key, value
        if len(self._values) > self._kept:
            del self._values[next(iter(self._values))]
        return value

    def drop(self, key: Hashable) -> None:
        self._values.pop(key, None)
        self._last = None

    def drop_where(self, is_useless: Callable[[T], bool]) -> None:
        for key in [key for key, value in self._values.items() if is_useless(value)]:
            self.drop(key)

    def values(self) -> Collection[T]:
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)
