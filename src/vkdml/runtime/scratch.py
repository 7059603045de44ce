"""Buffers that hold nothing from one execution to the next: those of all networks of a device are the same ones."""

from __future__ import annotations

from collections import Counter

from ..spec.whole_numbers import power_of_two
from .device import Buffer, Gpu
from .store import Lease

_LEAST_BYTES = 256


class Scratch:
    """Hands out buffers, each once. Sizes are rounded up to powers of two: other lengths and batches have the same ones.

    lease: of whoever uses them.
    """

    def __init__(self, gpu: Gpu, lease: Lease, taken: Counter[tuple[int, bool]] | None = None) -> None:
        self._gpu, self._lease = gpu, lease
        self._taken: Counter[tuple[int, bool]] = Counter(taken)  # how many, by size and whether for the host

    def beside(self) -> Scratch:
        """Another one, for buffers that are none of those handed out so far."""
        return Scratch(self._gpu, self._lease, self._taken)

    def buffer(self, size: int, has_copy: bool = True) -> Buffer:
        """Of `size` bytes or more. has_copy: whether the host reads or writes it."""
        size = max(size, min(power_of_two(max(size, _LEAST_BYTES)), self._gpu.info.max_storage_buffer_range))
        copies = 1 + (has_copy and not self._gpu.host_memory)
        self._taken[size, has_copy] += 1
        return self._gpu.store.get(("scratch", size, has_copy, copies, self._taken[size, has_copy]),
                                   lambda: Buffer(self._gpu, size, has_copy), size * copies, self._lease)
