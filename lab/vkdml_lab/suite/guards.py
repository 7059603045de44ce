"""Puts guards (words that no kernel may use) behind buffers. They begin as NaN, as does memory that only kernels use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from vkdml.engine.vulkan.gpu import Gpu
from vkdml.engine.vulkan.memory import COPIED, OWN, DeviceMemory, Kind

POISON = 2**32 - 1  # a NaN in each type
_KINDS_OF_POISON = 100  # several values, so that a NaN copied from one guard to another is noticed
_LEAST_BYTES, _MOST_BYTES = 4096, 2**20

are_wanted = True  # False if other tools check bounds, which would count guards as a part of the buffer


class Guards:
    """The guards of all buffers that were made in one `with guarded()`."""

    def __init__(self) -> None:
        self.buffers: list[tuple[DeviceMemory, int, int]] = []  # buffer, size that kernels know, poison

    def check(self) -> None:
        """Raise AssertionError if a guard (a word behind a buffer) has changed."""
        for buffer, size, poison in self.buffers:
            buffer.size_in_bytes = size + _guard_bytes(size)
            words = buffer.gpu.lock.work(buffer._fetch, (buffer.size_in_bytes // 4,), np.uint32)[size // 4:]
            buffer.size_in_bytes = size
            changed = np.flatnonzero(words != poison)
            assert not changed.size, (f"something was written behind a buffer of {size} bytes: {changed.size} words, the first "
                                      f"{4 * changed[0]} bytes behind its end")


def _guard_bytes(size: int) -> int:
    return min(max(_LEAST_BYTES, -(-size // 8) * 4), _MOST_BYTES)


@contextmanager
def guarded() -> Iterator[Guards]:
    """Guard all buffers made in this context. The driver takes guards as parts of buffers, so bounds checks hide nothing."""
    make, guards = DeviceMemory.__init__, Guards()
    if not are_wanted:
        yield guards
        return

    def make_larger(self: DeviceMemory, gpu: Gpu, size_in_bytes: int, kind: Kind = COPIED) -> None:
        make(self, gpu, size_in_bytes + _guard_bytes(size_in_bytes))
        poison = POISON - 0x10001 * (len(guards.buffers) % _KINDS_OF_POISON)
        words = np.full(self.size_in_bytes // 4, poison, np.uint32)
        if kind != OWN:
            words[:size_in_bytes // 4] = 0
        self._mapped[:] = words.view(np.uint8)  # a Buffer cannot count writes yet
        if self._has_other_memory:
            gpu.run_once(lambda submission: submission.upload(self))
        self.size_in_bytes = size_in_bytes
        guards.buffers.append((self, size_in_bytes, poison))

    with patch.object(DeviceMemory, "__init__", make_larger):
        yield guards
