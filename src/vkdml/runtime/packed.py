"""Packed weights: the buffers that the kernels of a compiled operator multiply by."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .buffers import Bound, Buffer, parts
from .device import Gpu

# Of each part of a buffer that they were packed from, what Bound.contents says
Contents = tuple[Hashable, ...]


@dataclass(eq=False)
class Known:
    """What is known of packed weights. It holds no buffer, so it can be kept as long as somebody else's buffer lives.

    is_initialized: whether an initializer has filled them. contents: of the memory that they were packed from at an execution.
    kept: the stamp of the caller's resource at the time. owned: the bytes that an initializer packed, by field, where
    executions are checked.
    """

    is_initialized: bool = False
    contents: Contents | None = None
    kept: int | None = None
    owned: dict[str, np.ndarray] = field(default_factory=dict)


class PackedWeights:
    """The buffers that packing fills. Made when they are first asked for, or parts of a caller's persistent resource.

    whose: the operator's name in errors. sizes: bytes by the buffers' names in the plan. within: the caller's resource. known:
    of what is there; objects with the same one are equal.
    """

    def __init__(self, gpu: Gpu, whose: str, sizes: Mapping[str, int], within: Bound | None = None, known: Known | None = None
                 ) -> None:
        self._gpu = gpu
        self._whose = whose
        self.sizes = sizes
        self.within = within
        self._known = known or Known(is_initialized=not sizes)
        self._buffers: Mapping[str, Bound] | None = parts(whose, within, sizes) if within else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedWeights) and self._known is other._known

    def __hash__(self) -> int:
        return hash(self._known)

    @property
    def owned(self) -> dict[str, np.ndarray]:
        """The bytes that an initializer packed, by field, where executions are checked."""
        return self._known.owned

    @property
    def resource_stamp(self) -> int | None:
        """Of what is packed in the caller's resource; None: it is the package's own, or the host can change it unseen. What is
        written between the buffers changes none.
        """
        stamps = [part.stamp for part in self.buffers.values()] if self.within else []
        return max((stamp for stamp in stamps if stamp is not None), default=None)

    @property
    def is_initialized(self) -> bool:
        """Whether an initializer has filled them, and nobody has written to the caller's resource since."""
        return self._known.is_initialized and self._known.kept == self.resource_stamp

    @is_initialized.setter
    def is_initialized(self, is_initialized: bool) -> None:
        self._known.is_initialized, self._known.kept = is_initialized, self.resource_stamp

    @property
    def contents(self) -> Contents | None:
        """Of the memory that they were packed from at an execution; None where nobody knows, or somebody has written to the
        caller's resource since.
        """
        is_exposed = self.within is not None and self.resource_stamp is None
        return self._known.contents if self._known.kept == self.resource_stamp and not is_exposed else None

    @contents.setter
    def contents(self, contents: Contents | None) -> None:
        self._known.contents, self._known.kept = contents, self.resource_stamp

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
