"""Where an execution has its buffers: all of it is known before any of them is made.

What holds nothing from one execution to the next is scratch: all executions on a device have the same buffers for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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

    def taken(self, gpu: Gpu) -> int:
        """Bytes of the device's memory for its buffer."""
        return gpu.bytes_of(self.size, self.has_copy)

    def buffer(self, gpu: Gpu, lease: Lease) -> Buffer:
        """The buffer, from the store. lease: of whoever uses it."""
        return gpu.keep(("scratch", *self, gpu.host_memory), lambda: Buffer(gpu, self.size, self.has_copy), self.taken(gpu),
                        lease)


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

    def place(self, size: int, has_copy: bool) -> Place:
        """A place for `size` bytes or more. has_copy: whether the host reads or writes it."""
        size = max(size, min(power_of_two(max(size, _LEAST_BYTES)), self._largest))
        self._taken[size, has_copy] += 1
        return Place(size, has_copy, self._taken[size, has_copy])


@dataclass(frozen=True)
class Layout:
    """The places of all buffers of an execution.

    tensors: by the execution's names. own: what each node alone needs, by the plan's names; the next one may have it after it.
    packing: weights of nodes, by node and field, while they are packed. kept: bytes of buffers that are nobody else's, by name.
    """

    tensors: Mapping[str, Place]
    own: Sequence[Mapping[str, Place]]
    packing: Mapping[int, Mapping[str, Place]]
    kept: Mapping[str, int]

    def sizes(self, gpu: Gpu) -> Counter[str]:
        """Bytes of all, by name. What has the same place counts once."""
        sizes, seen = Counter(self.kept), set[Place]()
        places = (self.tensors, *self.own, *self.packing.values())
        for name, place in chain.from_iterable(named.items() for named in places):
            if place not in seen:
                sizes[name] += place.taken(gpu)
                seen.add(place)
        return sizes
