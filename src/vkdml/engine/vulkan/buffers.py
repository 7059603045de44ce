"""Buffers: memory whose writes by host and device are counted."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from ...errors import InvalidArgumentError, shown
from ...operators.arguments import as_array
from ...operators.checks import integers
from .memory import COPIED, Bound, DeviceMemory, Kind, serials

Part = tuple[int, int]  # the bytes from the first number up to the second
_begin, _end = itemgetter(0), itemgetter(1)


class Parts:
    """A set of bytes of a buffer: parts in order, with gaps between them."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, begin: int, end: int) -> None:
        if begin == end or self._parts == [(begin, end)]:  # nearly always the whole buffer
            return
        first = bisect_left(self._parts, begin, key=_end)
        behind = bisect_right(self._parts, end, key=_begin)
        touched = self._parts[first:behind]
        if touched:
            begin, end = min(begin, touched[0][0]), max(end, touched[-1][1])
        self._parts[first:behind] = [(begin, end)]

    def remove(self, begin: int, end: int) -> None:
        if begin == end or not self._parts:
            return
        first = bisect_right(self._parts, begin, key=_end)
        behind = bisect_left(self._parts, end, key=_begin)
        left = [piece for one in self._parts[first:behind] for piece in ((one[0], begin), (end, one[1])) if piece[0] < piece[1]]
        self._parts[first:behind] = left


class Differences:
    """Tells where the host's copy of a buffer and the device's memory differ.

    of_host: parts that the host wrote last, at first all. of_device: parts that a dispatch wrote last.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.of_host, self.of_device = Parts(), Parts()
        self.of_host.add(0, size)

    def written_by_host(self, begin: int, end: int) -> None:
        self.of_host.add(begin, end)
        self.of_device.remove(begin, end)

    def exposed_to_host(self) -> None:
        """Count all but the parts in of_device as written by the host, which may now write anywhere without notice."""
        unread = list(self.of_device)
        self.of_host.add(0, self._size)
        for begin, end in unread:
            self.of_host.remove(begin, end)

    def written_by_device(self, begin: int, end: int) -> None:
        self.of_device.add(begin, end)
        self.of_host.remove(begin, end)

    def copied(self, begin: int, end: int) -> None:
        """Count the bytes [begin, end) as equal on both sides."""
        self.of_host.remove(begin, end)
        self.of_device.remove(begin, end)


class Buffer(DeviceMemory):
    """Device memory for one tensor, and a copy of it that the host can read and write between executions.

    Made by Device.create_buffer. `write` and `read` only touch the host's copy; CommandRecorder.record_upload and
    record_readback bring what is new to the device and back. `upload` and `download` do both at once. Where the host's memory
    is the device's, as of CPU drivers and GPUs in the processor, there is no copy, and uploads and readbacks do nothing.

    Host and device may write different parts. Uploads keep what a dispatch wrote, and readbacks keep what the host wrote.

    Use in a child process after os.fork, or once the device is lost, raises DriverError. `close`, or leaving a `with` block,
    frees the memory, at once or with the last recording that holds it. Later use, also by such recordings, raises
    InvalidArgumentError.

    gpu: its Gpu. kind: of its DeviceMemory. _is_exposed: whether the host may write to it without notice.
    """

    _is_counted = True

    def __init__(self, gpu: Any, size_in_bytes: int, kind: Kind = COPIED) -> None:
        super().__init__(gpu, size_in_bytes, kind)
        # The stamp of each part that was written since all of it was
        self._stamps = {(0, size_in_bytes): self._serial}

    def _stamp_of(self, offset: int, size: int) -> int | None:
        if self._is_exposed and not self._has_other_memory:
            return None
        stamps = self._stamps.copy()  # other threads may write to other parts meanwhile
        return max((stamp for (begin, end), stamp in stamps.items() if begin < offset + size and offset < end), default=0)

    @cached_property
    def _differences(self) -> Differences:
        """The differences of host and device, if _has_other_memory."""
        return Differences(self.size_in_bytes)

    def _mark_written(self, offset: int = 0, size: int | None = None) -> None:
        """Record that device memory (all of it, or a part) has changed or will be uploaded."""
        part = (offset, self.size_in_bytes if size is None else offset + size)
        if len(self._stamps) >= _MOST_STAMPS:
            self._stamps = _joined(self._stamps, self.size_in_bytes)
        if part == (0, self.size_in_bytes) or len(self._stamps) >= _MOST_STAMPS:
            part, self._stamps = (0, self.size_in_bytes), {}
        self._stamps[part] = next(serials)

    def _mark_computed(self, offset: int = 0, size: int | None = None) -> None:
        """Record that a dispatch has changed device memory (all of it, or a part)."""
        self._mark_written(offset, size)
        if self._has_other_memory:
            self._differences.written_by_device(offset, self.size_in_bytes if size is None else offset + size)

    def _mark_uploaded(self) -> None:
        """Record an upload before it starts, as even one that fails may change the buffer. Parts in of_device stay."""
        for begin, end in [(0, self.size_in_bytes)] if self._is_exposed else self._differences.of_host:
            self._mark_written(begin, end - begin)

    def _mark_copied(self, size: int | None = None) -> None:
        """Record that an upload or a readback of the first `size` bytes has ended; None: of all."""
        self._differences.copied(0, self.size_in_bytes if size is None else size)
        if self._is_exposed:
            self._differences.exposed_to_host()

    @property
    def _bytes(self) -> np.ndarray:
        """The host's copy. Raises DriverError in a child process or once the device is lost, when it may be unmapped."""
        self.gpu.driver.check()
        return self._mapped

    def host(self, dtype: Any = np.float32) -> np.ndarray:
        """The host's copy itself as a flat, writable array of a dtype, without bytes at the end that make no whole element.

        vkdml cannot track writes through the array. So if the device works in the host's memory, weights bound from this buffer
        are packed at each execution from then on. Elsewhere an upload copies all of the buffer, and is refused while a part
        that a dispatch wrote was not read back.

        The array may outlive the buffer. Once the device is lost, it keeps its contents.
        """
        dtype = _numbers("Buffer.host", dtype)
        array = self._bytes[:self.size_in_bytes // dtype.itemsize * dtype.itemsize].view(dtype)
        if not self._is_exposed:
            self.gpu.keep_open_for(self._tensor)  # the array holds the tensor
        self._is_exposed = True
        self._mark_written()
        self._differences.exposed_to_host()
        return array

    def write(self, array: np.ndarray, offset: int = 0) -> None:
        """Copy an array's elements, in C order, to the host's copy, from byte `offset` on.

        Raises InvalidArgumentError if they do not fit, or are not numbers in this machine's byte order.
        """
        self._write("Buffer.write", array, offset)

    def _write(self, call: str, array: np.ndarray, offset: int) -> None:
        room = self.size_in_bytes - self._checked_offset(call, offset)
        given = as_array(call, "array", array)
        if given.dtype.hasobject or not given.dtype.isnative or given.nbytes > room:  # before a copy: a view may have terabytes
            raise InvalidArgumentError(call, "array", f"{given.nbytes} bytes of {given.dtype}",
                                       f"native numbers, at most {room} bytes")
        self.gpu.driver.check()
        self._put(np.ascontiguousarray(given).reshape(-1), offset)

    def _put(self, flat: np.ndarray, offset: int = 0) -> None:
        super()._put(flat, offset)
        self._mark_written(offset, flat.nbytes)
        if self._has_other_memory:
            self._differences.written_by_host(offset, offset + flat.nbytes)

    def read(self, shape: Sequence[int], dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
        """Return a new array from the host's copy, from byte `offset` on. Raises InvalidArgumentError if it is too large."""
        return self._read("Buffer.read", shape, dtype, offset)

    def _read(self, call: str, shape: Sequence[int], dtype: Any, offset: int) -> np.ndarray:
        room = self.size_in_bytes - self._checked_offset(call, offset)
        dtype = _numbers(call, dtype)
        shape = integers(call, "shape", shape, 0)
        if math.prod(shape) * dtype.itemsize > room or len(shape) > _MOST_DIMENSIONS:
            raise InvalidArgumentError(call, "shape and dtype", (*shape, dtype.name),
                                       f"numbers, at most {room} bytes in {_MOST_DIMENSIONS} dimensions")
        self.gpu.driver.check()
        return self._take(shape, dtype, offset)

    def _checked_offset(self, call: str, offset: int) -> int:
        checked = offset if type(offset) is int and offset >= 0 else integers(call, "offset", (offset,), 0)[0]
        if checked > self.size_in_bytes:
            raise InvalidArgumentError(call, "offset", checked, f"at most {self.size_in_bytes}, the buffer's bytes")
        return checked

    def upload(self, array: np.ndarray, offset: int = 0) -> None:
        """Write as `write` does, then copy all host writes to the device. Raises as `write` and `host` do, and DriverError."""
        self._write("Buffer.upload", array, offset)
        self.gpu.lock.work(self._send)

    def _send(self) -> None:
        if self._has_other_memory:
            self._merge()
            self._mark_uploaded()
            self.gpu.run_once(lambda submission: submission.upload(self))
            self._mark_copied()

    def download(self, shape: Sequence[int], dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
        """Read back what dispatches wrote, then return a new array. Raises as `read` does, and DriverError."""
        return self.gpu.lock.work(self._fetch, shape, dtype, offset)

    def _fetch(self, shape: Sequence[int], dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
        if not self._has_other_memory:
            return self._read("Buffer.download", shape, dtype, offset)
        kept = self._unsent()
        self.gpu.run_once(lambda submission: submission.readback(self))
        self._mark_copied()
        try:
            return self._read("Buffer.download", shape, dtype, offset)
        finally:
            self._put_back(kept)

    def _merge(self) -> None:
        """Read back the parts that a dispatch wrote, before an upload, which copies all. Raises as `_expect_seen` does."""
        self._expect_seen(())
        if self._differences.of_device and not self._is_exposed:
            self._fetch((0,))

    def _expect_seen(self, computed: Iterable[Bound]) -> None:
        """Raise InvalidArgumentError if dispatches wrote parts that the host may have overwritten since (`host`). computed:
        parts that dispatches will have written.
        """
        unread = [*self._differences.of_device, *((part.offset, part.offset + part.size_in_bytes) for part in computed)]
        if self._is_exposed and unread and (0, self.size_in_bytes) not in unread:
            raise InvalidArgumentError("Buffer", "upload", "a part that a dispatch wrote, and an array of host()",
                                       "write() instead of that array, or a readback before the upload")

    def _unsent(self) -> list[tuple[int, np.ndarray]]:
        """Return copies of the parts that the host wrote last, to be `_put_back` after a readback, which copies all."""
        return [(begin, self._bytes[begin:end].copy()) for begin, end in self._differences.of_host]

    def _put_back(self, unsent: Iterable[tuple[int, np.ndarray]]) -> None:
        for begin, array in unsent:
            self._bytes[begin:begin + array.size] = array
            self._differences.written_by_host(begin, begin + array.size)


_MOST_DIMENSIONS = 32  # of an array; all versions of numpy allow so many
_MOST_STAMPS = 1000


def _joined(stamps: Mapping[tuple[int, int], int], size: int) -> dict[tuple[int, int], int]:
    """Give parts without a gap between them, such as rows of a tensor, one stamp. The whole buffer's stamp stays its own."""
    whole = (0, size)
    joined: list[tuple[int, int, int]] = []
    for (begin, end), stamp in sorted((part, stamp) for part, stamp in stamps.items() if part != whole):
        if joined and begin <= joined[-1][1]:
            before, until, newest = joined.pop()
            begin, end, stamp = before, max(end, until), max(stamp, newest)
        joined.append((begin, end, stamp))
    return {whole: stamps.get(whole, 0), **{(begin, end): stamp for begin, end, stamp in joined}}


def _numbers(call: str, dtype: Any) -> np.dtype:
    try:
        found = np.dtype(dtype)
    except Exception:  # numpy reads strings, shows values, and so raises almost anything
        raise InvalidArgumentError(call, "dtype", shown(dtype), "a dtype of numbers") from None
    if found.hasobject or not found.itemsize:
        raise InvalidArgumentError(call, "dtype", found, "a dtype of numbers")
    return found
