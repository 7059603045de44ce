"""Differences of a buffer's memory on the device and the host's copy of it, so that to copy one to the other loses nothing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Part = tuple[int, int]  # where it begins and ends


class Parts:
    """Parts of a buffer, in order, with gaps between them."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, begin: int, end: int) -> None:
        if begin == end:
            return
        first = bisect_left(self._parts, begin, key=_end)
        behind = bisect_right(self._parts, end, key=_begin)
        touched = self._parts[first:behind]
        if touched:
            begin, end = min(begin, touched[0][0]), max(end, touched[-1][1])
        self._parts[first:behind] = [(begin, end)]

    def remove(self, begin: int, end: int) -> None:
        if begin == end:
            return
        first = bisect_right(self._parts, begin, key=_end)
        behind = bisect_left(self._parts, end, key=_begin)
        left = [piece for one in self._parts[first:behind] for piece in ((one[0], begin), (end, one[1])) if piece[0] < piece[1]]
        self._parts[first:behind] = left


def _begin(part: Part) -> int:
    return part[0]


def _end(part: Part) -> int:
    return part[1]


class Differences:
    """of_host: what only the host's copy has, as the host wrote it last: at first all, which is zeros. of_device: what only the
    device has, as a dispatch wrote it last.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.of_host, self.of_device = Parts(), Parts()
        self.of_host.add(0, size)

    def written_by_host(self, begin: int, end: int) -> None:
        self.of_host.add(begin, end)
        self.of_device.remove(begin, end)

    def exposed_to_host(self) -> None:
        """The host holds a raw view and may write anywhere without notice."""
        unread = list(self.of_device)
        self.of_host.add(0, self._size)
        for begin, end in unread:
            self.of_host.remove(begin, end)

    def written_by_device(self, begin: int, end: int) -> None:
        self.of_device.add(begin, end)
        self.of_host.remove(begin, end)

    def copied(self, begin: int, end: int) -> None:
        """The range [begin, end) is now equal on both sides."""
        self.of_host.remove(begin, end)
        self.of_device.remove(begin, end)
