"""What compiled operators may have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from ..spec.whole_numbers import power_of_two
from .device import Buffer, Gpu, Kernel
from .recent import Recent

_KERNELS_KEPT = 64


class PackedWeights:
    """The buffers that an initialization fills. Compiled operators whose plans fill them alike may share them."""

    def __init__(self, gpu: Gpu, sizes: Mapping[str, int]) -> None:
        self._gpu = gpu
        self._sizes = sizes
        self._buffers: dict[str, Buffer] | None = None
        self.is_initialized = not sizes

    @property
    def buffers(self) -> dict[str, Buffer]:
        """By name. Made when they are first asked for."""
        if self._buffers is None:
            self._buffers = {name: Buffer(self._gpu, size) for name, size in self._sizes.items()}
        return self._buffers


class Resources:
    """Buffers and kernels of operators that differ in T and B, and run one at a time.

    Buffers are shared by name and by size, rounded up to a power of two. So sequences of like lengths use the same buffers, and
    then the same kernels, which take long to make.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._buffers: WeakValueDictionary[Any, Buffer] = WeakValueDictionary()
        self.kernels: Recent[Kernel] = Recent(_KERNELS_KEPT)

    def buffer(self, name: str, size: int, most: int | None = None, layout: Any = None) -> Buffer:
        """most: what rounding up may come to, at most what a buffer can have. layout: what is not to be mixed."""
        limit = self._gpu.largest_buffer if most is None else min(most, self._gpu.largest_buffer)
        size = max(size, min(power_of_two(size), limit))
        key = (name, size, layout)
        buffer = self._buffers.get(key) or Buffer(self._gpu, size)
        self._buffers[key] = buffer
        return buffer
