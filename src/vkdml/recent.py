"""What was made for the last few keys, so that caches have a bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values by key. Once there are more than `kept`, the one that was not asked for the longest is dropped."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made if it is not there."""
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > self._kept:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]

    def drop(self, key: Hashable) -> None:
        self._values.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)
