"""Buffers with words behind them that no kernel may touch, and poison where none may read in a way that matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from vkdml.engine.vulkan.gpu import Buffer, Gpu

POISON = 2**32 - 1  # a NaN in each type
_KINDS_OF_POISON = 100  # so that a NaN that was read behind one buffer and written behind another is seen
_LEAST_BYTES, _MOST_BYTES = 4096, 2**20

are_wanted = True  # not where something else looks at bounds, which would take them for a part of the buffer


class Guards:
    """Of all buffers that were made meanwhile."""

    def __init__(self) -> None:
        self.buffers: list[tuple[Buffer, int, int]] = []  # with the bytes that kernels know of, and the poison

    def check(self) -> None:
        """Fails where a word behind a buffer has changed."""
        for buffer, size, poison in self.buffers:
            buffer.size_in_bytes = size + _guard_bytes(size)
            words = buffer.download((buffer.size_in_bytes // 4,), np.uint32)[size // 4:]
            buffer.size_in_bytes = size
            changed = np.flatnonzero(words != poison)
            assert not changed.size, (f"something was written behind a buffer of {size} bytes: {changed.size} words, the first "
                                      f"{4 * changed[0]} bytes behind its end")


def _guard_bytes(size: int) -> int:
    return min(max(_LEAST_BYTES, -(-size // 8) * 4), _MOST_BYTES)


@contextmanager
def guarded() -> Iterator[Guards]:
    """The driver's bounds checks hide nothing: it knows of larger buffers. What only kernels use is full of poison too."""
    make, guards = Buffer.__init__, Guards()
    if not are_wanted:
        yield guards
        return

    def make_larger(self: Buffer, gpu: Gpu, size_in_bytes: int, has_copy: bool = True, is_direct: bool = False) -> None:
        make(self, gpu, size_in_bytes + _guard_bytes(size_in_bytes))
        poison = POISON - 0x10001 * (len(guards.buffers) % _KINDS_OF_POISON)
        words = np.full(self.size_in_bytes // 4, poison, np.uint32)
        if has_copy:
            words[:size_in_bytes // 4] = 0
        self.write(words)
        self._send()
        self.size_in_bytes = size_in_bytes
        guards.buffers.append((self, size_in_bytes, poison))

    Buffer.__init__ = make_larger  # type: ignore[method-assign]
    try:
        yield guards
    finally:
        Buffer.__init__ = make  # type: ignore[method-assign]
