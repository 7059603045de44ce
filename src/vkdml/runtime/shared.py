"""What compiled operators may share: packed weights, and a pool of buffers and kernels."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from weakref import WeakValueDictionary

from ..spec.whole_numbers import power_of_two
from .device import Buffer, Gpu, Kernel
from .recent import Recent

_KERNELS_KEPT = 64


class PackedWeights:
    """The buffers that an initialization fills. Compiled operators whose plans fill them alike may share them.

    sizes: bytes by the buffers' names in the plan.
    """

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


class Pool:
    """Buffers and kernels of operators that differ in T and B only, and run one at a time.

    Buffers are shared by name and by size, rounded up to a power of two. So sequences of about the same length use the same
    buffers, and with them the same kernels, which take long to make.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._buffers: WeakValueDictionary[Hashable, Buffer] = WeakValueDictionary()
        self.kernels: Recent[Kernel] = Recent(_KERNELS_KEPT)

    def buffer(self, name: str, size: int, most: int | None = None, layout: Hashable = None) -> Buffer:
        """A buffer of `size` bytes or more.

        most: bytes that rounding up may come to; by default as many as the device allows. layout: buffers whose contents
        outlive an execution are shared only where this is equal.
        """
        limit = self._gpu.info.max_storage_buffer_range
        size = max(size, min(power_of_two(size), limit, most or limit))
        key = (name, size, layout)
        buffer = self._buffers.get(key) or Buffer(self._gpu, size)
        self._buffers[key] = buffer
        return buffer
