"""Packed weights: the buffers that the kernels of a compiled operator multiply by."""

from __future__ import annotations

from collections.abc import Mapping

from .device import Buffer, Gpu


class PackedWeights:
    """The buffers that packing fills. Made when they are first asked for.

    whose: the operator's name in errors. sizes: bytes by the buffers' names in the plan.

    is_initialized: whether an initializer has filled them. stamps: of the buffers that they were packed from at an execution;
    None where nobody knows.
    """

    def __init__(self, gpu: Gpu, whose: str, sizes: Mapping[str, int]) -> None:
        self._gpu = gpu
        self._whose = whose
        self.sizes = sizes
        self._buffers: dict[str, Buffer] | None = None
        self.is_initialized = not sizes
        self.stamps: tuple[int, ...] | None = None

    @property
    def missing(self) -> Mapping[str, int]:
        """Bytes of those that are not made yet, by name."""
        return self.sizes if self._buffers is None else {}

    @property
    def buffers(self) -> dict[str, Buffer]:
        """By name. Raises InvalidArgumentError where the device has no room for them."""
        with self._gpu.lock:
            if self._buffers is None:
                self._gpu.memory.make_room(self._whose, self.sizes)
                self._buffers = {name: Buffer(self._gpu, size, has_copy=False) for name, size in self.sizes.items()}
            return self._buffers
