"""Device memory of one tensor, of which the host may have a copy, and parts of it."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ...errors import OutOfMemoryError
from .system import Closing, OfOneProcess

Kind = Literal["copied", "sent", "direct", "own", "shared"]
COPIED, SENT, DIRECT, OWN, SHARED = get_args(Kind)

serials = itertools.count(1)


class DeviceMemory(OfOneProcess, Closing):
    """Device memory for one tensor, for the engine's own use. Writes are not counted, so its contents count as unknown. In a
    Buffer they are counted.

    kind: "copied" if the host reads or writes it: uploads and readbacks copy between its copy and the device. If the host only
    writes it: "sent", whose copy is slow to read, or "direct", which is device memory that the host sees; "copied" if there is
    none of these. "own" if only kernels use it: it may hold anything at first, and has_copy is false. "shared" is like "own",
    but other APIs can import it. Where the device works in the host's memory, none is copied.
    """

    _of_memory = "_tensor", "_mapped"
    _is_counted = _is_exposed = False  # see Buffer
    _is_clear = False  # whether the word by which attempts give up is 0
    _mark: object = None  # identifies what an execution keeps there
    _imported: Any = None  # what another API has of shared memory, as long as it
    offset = 0  # the first byte that kernels see; a Range has this attribute too

    def __init__(self, gpu: Any, size_in_bytes: int, kind: Kind = COPIED) -> None:
        self.gpu, self.size_in_bytes = gpu, size_in_bytes
        self._serial = next(serials)
        gpu.memory.expect_more(gpu.bytes_of(size_in_bytes, kind))
        if (gpu.host_memory and kind not in (OWN, SHARED)) or gpu.only_written_types.get(kind, 0) < 0:
            kind = COPIED
        try:
            self._tensor = gpu.make_tensor(size_in_bytes, kind)
        except OutOfMemoryError:
            if kind not in gpu.only_written_types:
                raise
            kind = COPIED  # a device may have little memory that the host sees
            self._tensor = gpu.make_tensor(size_in_bytes, kind)
        self.kind, self.has_copy = kind, kind not in (OWN, SHARED)
        self._mapped = self._tensor.data().view(np.uint8) if self.has_copy else np.zeros(0, np.uint8)
        gpu.memory.take(self._tensor, gpu.bytes_of(size_in_bytes, kind))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.size_in_bytes} bytes on {self.gpu.info.name}>"

    @property
    def buffer(self) -> DeviceMemory:
        """This memory. A Range has this property too."""
        return self

    @property
    def stamp(self) -> int | None:
        """A number that grows with each change of the device's memory; None, as here, if it may change without notice."""
        return self._stamp_of(0, self.size_in_bytes)

    def _stamp_of(self, offset: int, size: int) -> int | None:
        """Return the stamp of a part of the memory."""
        return None

    def _mark_computed(self, offset: int = 0, size: int | None = None) -> None:
        """Do nothing: only Buffers count writes."""

    @property
    def _has_other_memory(self) -> bool:
        """Whether the host's copy is other memory than the device's."""
        return self.kind in (COPIED, SENT) and not self.gpu.host_memory

    def _put(self, flat: np.ndarray, offset: int = 0) -> None:
        """Write a flat array that fits to the host's copy, from byte `offset` on. The device must be open."""
        self._mapped.data[offset:offset + flat.nbytes] = flat.view(np.uint8).data  # half of the time of numpy's assignment

    def _take(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> np.ndarray:
        """Return a new array of the host's copy, which must have its bytes, from byte `offset` on."""
        return np.ndarray(shape, dtype, self._mapped, offset).copy()

    def _fetch(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> np.ndarray:
        """Read back the device's memory. Return a new array of it, from byte `offset` on."""
        if self._has_other_memory:
            self.gpu.run_once(lambda submission: submission.readback(self))
        return self._take(shape, dtype, offset)

    def _send(self) -> None:
        """Copy the host's copy to the device."""
        if self._has_other_memory:
            self.gpu.run_once(lambda submission: submission.upload(self))

    def upload(self, array: np.ndarray, offset: int = 0) -> None:
        """Write a flat array that fits to the device's memory, from byte `offset` on. The other bytes become the host's."""
        self._put(array, offset)
        self._send()


@dataclass(frozen=True)
class Range:
    """A part of memory, which kernels see as a buffer. offset: a multiple of DeviceInfo.storage_buffer_alignment."""

    buffer: DeviceMemory
    offset: int
    size_in_bytes: int

    @property
    def stamp(self) -> int | None:
        """The stamp of this part, as `Buffer.stamp`."""
        return self.buffer._stamp_of(self.offset, self.size_in_bytes)

    def _mark_computed(self) -> None:
        """Record that a dispatch has changed this part."""
        self.buffer._mark_computed(self.offset, self.size_in_bytes)


Bound = DeviceMemory | Range


def overlap(one: Bound, other: Bound) -> bool:
    """Return whether two parts have a byte in common."""
    return (one.buffer is other.buffer and one.offset < other.offset + other.size_in_bytes
            and other.offset < one.offset + one.size_in_bytes)


def contents_of(bound: Bound) -> Hashable:
    """Return a value that changes with a part's bytes; None if they may change without notice. It has the part's stamp and
    place, as one write may have given many parts the same stamp.
    """
    stamp = bound.stamp
    return None if stamp is None else (bound.buffer._serial, bound.offset, bound.size_in_bytes, stamp)
