"""Buffers that hold nothing from one execution to the next: those of all networks of a device are the same ones."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..spec.whole_numbers import power_of_two
from .device import Buffer, Gpu
from .store import Lease

_LEAST_BYTES = 256


class Place(NamedTuple):
    """Says which buffer: of those of so many bytes, with or without a copy for the host, the one of this number."""

    size: int
    has_copy: bool
    number: int


class Scratch:
    """Hands out places, each once. Sizes are rounded up to powers of two: other lengths and batches have the same ones.

    largest: bytes of the largest buffer that there may be.
    """

    def __init__(self, largest: int, taken: Counter[tuple[int, bool]] | None = None) -> None:
        self._largest = largest
        self._taken: Counter[tuple[int, bool]] = Counter(taken)  # how many, by size and whether for the host

    def beside(self) -> Scratch:
        """Another one, for places that are none of those handed out so far."""
        return Scratch(self._largest, self._taken)

    def place(self, size: int, has_copy: bool = True) -> Place:
        """Of `size` bytes or more. has_copy: whether the host reads or writes it."""
        size = max(size, min(power_of_two(max(size, _LEAST_BYTES)), self._largest))
        self._taken[size, has_copy] += 1
        return Place(size, has_copy, self._taken[size, has_copy])


def bytes_at(gpu: Gpu, place: Place) -> int:
    """That its buffer takes of the device's memory."""
    return gpu.bytes_of(place.size, place.has_copy)


def buffer_at(gpu: Gpu, place: Place, lease: Lease) -> Buffer:
    """lease: of whoever uses it."""
    return gpu.keep(("scratch", *place, gpu.host_memory), lambda: Buffer(gpu, place.size, place.has_copy), bytes_at(gpu, place),
                    lease)
