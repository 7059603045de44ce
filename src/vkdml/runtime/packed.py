"""Packed weights: the buffers that the kernels of a compiled operator multiply by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .buffers import Bound, Buffer, parts
from .device import Gpu


class PackedWeights:
    """The buffers that packing fills. Made when they are first asked for, or parts of a caller's persistent resource.

    whose: the operator's name in errors. sizes: bytes by the buffers' names in the plan. within: the caller's resource.

    owned: the bytes that an initializer packed, by field, where executions are checked.
    """

    def __init__(self, gpu: Gpu, whose: str, sizes: Mapping[str, int], within: Bound | None = None) -> None:
        self._gpu = gpu
        self._whose = whose
        self.sizes = sizes
        self.owned: dict[str, np.ndarray] = {}
        self.within = within
        self._buffers: Mapping[str, Bound] | None = parts(whose, within, sizes) if within else None
        self._is_initialized = not sizes
        self._stamps: tuple[int, ...] | None = None
        self._kept = self._resource_stamp

    @property
    def _resource_stamp(self) -> int | None:
        return self.within.stamp if self.within else None

    @property
    def is_initialized(self) -> bool:
        """Whether an initializer has filled them, and nobody has written to the caller's resource since."""
        return self._is_initialized and self._kept == self._resource_stamp

    @is_initialized.setter
    def is_initialized(self, is_initialized: bool) -> None:
        self._is_initialized, self._kept = is_initialized, self._resource_stamp

    @property
    def stamps(self) -> tuple[int, ...] | None:
        """Of the memory that they were packed from at an execution; None where nobody knows, or somebody has written to the
        caller's resource since.
        """
        is_exposed = self.within is not None and self._resource_stamp is None
        return self._stamps if self._kept == self._resource_stamp and not is_exposed else None

    @stamps.setter
    def stamps(self, stamps: tuple[int, ...] | None) -> None:
        self._stamps, self._kept = stamps, self._resource_stamp

    @property
    def missing(self) -> Mapping[str, int]:
        """Bytes of those that are not made yet, by name."""
        return self.sizes if self._buffers is None else {}

    @property
    def buffers(self) -> Mapping[str, Bound]:
        """By name. Raises InvalidArgumentError where the device has no room for them."""
        with self._gpu.lock:
            if self._buffers is None:
                self._gpu.memory.make_room(self._whose, self.sizes)
                self._buffers = {name: Buffer(self._gpu, size, has_copy=False) for name, size in self.sizes.items()}
            return self._buffers
