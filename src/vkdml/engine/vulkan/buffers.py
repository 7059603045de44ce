"""Device memory, and parts of it."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import InvalidArgumentError, shown
from ...operators.checks import integers
from .system import Closing, OfOneProcess

Part = tuple[int, int]  # where it begins and ends


class Parts:
    """Parts of a buffer, in order, with gaps between them."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, begin: int, end: int) -> None:
        if begin == end:
            return
        first = bisect_left(self._parts, begin, key=_end)
        behind = bisect_right(self._parts, end, key=_begin)
        touched = self._parts[first:behind]
        if touched:
            begin, end = min(begin, touched[0][0]), max(end, touched[-1][1])
        self._parts[first:behind] = [(begin, end)]

    def remove(self, begin: int, end: int) -> None:
        if begin == end:
            return
        first = bisect_right(self._parts, begin, key=_end)
        behind = bisect_left(self._parts, end, key=_begin)
        left = [piece for one in self._parts[first:behind] for piece in ((one[0], begin), (end, one[1])) if piece[0] < piece[1]]
        self._parts[first:behind] = left


def _begin(part: Part) -> int:
    return part[0]


def _end(part: Part) -> int:
    return part[1]


class Differences:
    """of_host: what only the host's copy has, as the host wrote it last: at first all, which is zeros. of_device: what only the
    device has, as a dispatch wrote it last.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.of_host, self.of_device = Parts(), Parts()
        self.of_host.add(0, size)

    def written_by_host(self, begin: int, end: int) -> None:
        self.of_host.add(begin, end)
        self.of_device.remove(begin, end)

    def exposed_to_host(self) -> None:
        """The host holds a raw view and may write anywhere without notice."""
        unread = list(self.of_device)
        self.of_host.add(0, self._size)
        for begin, end in unread:
            self.of_host.remove(begin, end)

    def written_by_device(self, begin: int, end: int) -> None:
        self.of_device.add(begin, end)
        self.of_host.remove(begin, end)

    def copied(self, begin: int, end: int) -> None:
        """The range [begin, end) is now equal on both sides."""
        self.of_host.remove(begin, end)
        self.of_device.remove(begin, end)


_serials = itertools.count(1)


class Buffer(OfOneProcess, Closing):
    """Device memory for one tensor, and a copy of it that the host can read and write between executions.

    Made by Device.create_buffer. `write` and `read` only touch the host's copy; CommandRecorder.record_upload and
    record_readback bring what is new to the device and back. `upload` and `download` do both at once. Where the host's memory
    is the device's, as of CPU drivers and GPUs in the processor, there is no copy, and uploads and readbacks do nothing.

    Host and device may write different parts. What a dispatch wrote stays in uploads, and what the host wrote in readbacks.

    After os.fork a child process cannot use it, and nobody can once the device is lost: DriverError. `close`, or leaving a
    `with` block, gives its memory back: at once, or when the last recording that has it goes. What it is used for then,
    executions of such recordings too, raises InvalidArgumentError.

    gpu: its Gpu, whose module has this one below it. has_copy: whether the host reads or writes it. If not, it serves kernels
    only, and may hold anything at first. _is_exposed: whether the host may write to it unseen.
    """

    _of_memory = "_tensor", "_mapped"
    offset = 0  # of what kernels see: all of it, as a Range of it would be

    def __init__(self, gpu: Any, size_in_bytes: int, has_copy: bool = True) -> None:
        self.gpu = gpu
        self.size_in_bytes = size_in_bytes
        self.has_copy = has_copy
        self._serial = next(_serials)
        # Since all of it was written: of each part that was, by where it begins and ends
        self._stamps = {(0, size_in_bytes): self._serial}
        self._is_exposed = False
        gpu.memory.expect_more(gpu.bytes_of(size_in_bytes, has_copy))
        self._tensor = gpu.make_tensor(size_in_bytes, has_copy)
        self._mapped = self._tensor.data().view(np.uint8) if has_copy else np.zeros(0, np.uint8)
        gpu.memory.take(self._tensor, gpu.bytes_of(size_in_bytes, has_copy))

    def __repr__(self) -> str:
        return f"<Buffer of {self.size_in_bytes} bytes on {self.gpu.info.name}>"

    @property
    def buffer(self) -> Buffer:
        """The buffer itself, as a Range has one."""
        return self

    @property
    def stamp(self) -> int | None:
        """A number that grows with each change of the device's memory; None where the host can change it unseen."""
        return self._stamp_of(0, self.size_in_bytes)

    @property
    def contents(self) -> Hashable:
        """Equal as long as the same bytes are meant and nobody changed them; None where the host can change them unseen."""
        return _contents(self)

    def _stamp_of(self, offset: int, size: int) -> int | None:
        """The stamp of a part of it."""
        if self._is_exposed and not self._has_other_memory:
            return None
        stamps = self._stamps.copy()  # other threads may write to other parts meanwhile
        return max((stamp for (begin, end), stamp in stamps.items() if begin < offset + size and offset < end), default=0)

    @cached_property
    def _differences(self) -> Differences:
        """What host and device do not both have; only where _has_other_memory."""
        return Differences(self.size_in_bytes)

    @property
    def _has_other_memory(self) -> bool:
        """Whether the host's copy is not what the device has."""
        return self.has_copy and not self.gpu.host_memory

    def _mark_written(self, offset: int = 0, size: int | None = None) -> None:
        """Record that device memory (all of it, or a range) has changed or will be uploaded."""
        part = (offset, self.size_in_bytes if size is None else offset + size)
        if len(self._stamps) >= _MOST_STAMPS:
            self._stamps = _joined(self._stamps, self.size_in_bytes)
        if part == (0, self.size_in_bytes) or len(self._stamps) >= _MOST_STAMPS:
            part, self._stamps = (0, self.size_in_bytes), {}
        self._stamps[part] = next(_serials)

    def _mark_computed(self, offset: int = 0, size: int | None = None) -> None:
        """Record that a dispatch has changed all of it, or a range."""
        self._mark_written(offset, size)
        if self._has_other_memory:
            self._differences.written_by_device(offset, self.size_in_bytes if size is None else offset + size)

    def _mark_uploaded(self) -> None:
        """Record an upload, before it: it may fail and have changed the buffer nevertheless. What only the device has is
        merged: it does not change.
        """
        for begin, end in [(0, self.size_in_bytes)] if self._is_exposed else self._differences.of_host:
            self._mark_written(begin, end - begin)

    def _mark_copied(self) -> None:
        """Record that an upload or a readback has ended."""
        self._differences.copied(0, self.size_in_bytes)
        if self._is_exposed:
            self._differences.exposed_to_host()

    @property
    def _bytes(self) -> np.ndarray:
        """The host's copy: the driver's memory, which a child process may not have, nor anybody after the device is lost."""
        self.gpu.driver.check()
        return self._mapped

    def host(self, dtype: Any = np.float32) -> np.ndarray:
        """The host's copy itself as a flat, writable array of a dtype, without bytes at the end that make no whole element.

        Nobody sees what is written through the array. So where the device's memory is the host's, weights bound from this
        buffer are packed at each execution from then on. Elsewhere an upload brings all of the copy, and is refused where a
        dispatch wrote a part of the buffer that was not read back.

        The array may outlive the buffer. Once the device is lost it keeps what it has, which nobody else sees.
        """
        dtype = _numbers("Buffer.host", dtype)
        array = self._bytes[:self.size_in_bytes // dtype.itemsize * dtype.itemsize].view(dtype)
        if not self._is_exposed:
            self.gpu.keep_open_for(self._tensor)  # which the array holds
        self._is_exposed = True
        self._mark_written()
        self._differences.exposed_to_host()
        return array

    def write(self, array: np.ndarray, offset: int = 0) -> None:
        """Copy an array's elements, in C order, to the host's copy, so many bytes behind its start.

        Raises InvalidArgumentError if they do not fit, or are not numbers in this machine's byte order.
        """
        room = self.size_in_bytes - self._checked_offset("Buffer.write", offset)
        try:
            given = np.asarray(array)
        except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: of a PyTorch tensor with gradients
            raise InvalidArgumentError("Buffer.write", "array", error, "an array of numbers") from None
        if given.dtype.hasobject or not given.dtype.isnative or given.nbytes > room:  # before a copy: a view may have terabytes
            raise InvalidArgumentError("Buffer.write", "array", f"{given.nbytes} bytes of {given.dtype}",
                                       f"native numbers, at most {room} bytes")
        self.gpu.driver.check()
        self._put(np.ascontiguousarray(given).reshape(-1), offset)

    def _put(self, flat: np.ndarray, offset: int = 0) -> None:
        """The same as `write`, for a flat array that fits; the device is open."""
        self._mapped[offset:offset + flat.nbytes] = flat.view(np.uint8)
        self._mark_written(offset, flat.nbytes)
        if self._has_other_memory:
            self._differences.written_by_host(offset, offset + flat.nbytes)

    def read(self, shape: Sequence[int], dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
        """A new array from the host's copy, from so many bytes behind its start. Raises InvalidArgumentError for one that is
        larger.
        """
        room = self.size_in_bytes - self._checked_offset("Buffer.read", offset)
        dtype = _numbers("Buffer.read", dtype)
        shape = integers("Buffer.read", "shape", shape, 0)
        if math.prod(shape) * dtype.itemsize > room or len(shape) > _MOST_DIMENSIONS:
            raise InvalidArgumentError("Buffer.read", "shape and dtype", (*shape, dtype.name),
                                       f"numbers, at most {room} bytes in {_MOST_DIMENSIONS} dimensions")
        self.gpu.driver.check()
        return self._take(shape, dtype, offset)

    def _take(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> np.ndarray:
        """The same as `read`, for an array that is not larger; the device is open."""
        return np.ndarray(shape, dtype, self._mapped, offset).copy()

    def _checked_offset(self, call: str, offset: int) -> int:
        checked = offset if type(offset) is int and offset >= 0 else integers(call, "offset", (offset,), 0)[0]
        if checked > self.size_in_bytes:
            raise InvalidArgumentError(call, "offset", checked, f"at most {self.size_in_bytes}, the buffer's bytes")
        return checked

    def upload(self, array: np.ndarray, offset: int = 0) -> None:
        """`write`, then bring what the host has written to the device. Raises what `write` raises, DriverError, and
        InvalidArgumentError for what `host` says.
        """
        self.write(array, offset)
        with self.gpu.lock:
            if self._has_other_memory:
                self._merge()
                self._mark_uploaded()
                self._submit(lambda submission: submission.upload(self))
                self._mark_copied()

    def download(self, shape: Sequence[int], dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
        """A new array of what the device has. Its copy gets what is new there. Raises what `read` raises, and DriverError."""
        with self.gpu.lock:
            if not self._has_other_memory:
                return self.read(shape, dtype, offset)
            kept = self._unsent()
            self._submit(lambda submission: submission.readback(self))
            self._mark_copied()
            try:
                return self.read(shape, dtype, offset)
            finally:
                self._put_back(kept)

    def _merge(self) -> None:
        """Bring what only the device has to the host's copy, before an upload, which copies all.

        Raises InvalidArgumentError where that is a part, and nobody knows whether the host has written there since (`host`).
        """
        self._expect_seen(())
        if self._differences.of_device and not self._is_exposed:
            self.download((0,))

    def _expect_seen(self, computed: Iterable[Bound]) -> None:
        """Raises what `_merge` would raise after dispatches have written to these parts."""
        unread = [*self._differences.of_device, *((part.offset, part.offset + part.size_in_bytes) for part in computed)]
        if self._is_exposed and unread and (0, self.size_in_bytes) not in unread:
            raise InvalidArgumentError("Buffer", "upload", "a part that a dispatch wrote, and an array of host()",
                                       "write() instead of that array, or a readback before the upload")

    def _unsent(self) -> list[tuple[int, np.ndarray]]:
        """Parts that only the host's copy has, each with its offset; to be `_put_back` after a readback, which copies all."""
        return [(begin, self._bytes[begin:end].copy()) for begin, end in self._differences.of_host]

    def _put_back(self, unsent: Iterable[tuple[int, np.ndarray]]) -> None:
        for begin, array in unsent:
            self._bytes[begin:begin + array.size] = array
            self._differences.written_by_host(begin, begin + array.size)

    def _submit(self, record: Callable[[Any], None]) -> None:
        submission = self.gpu.create_submission()
        record(submission)
        submission.run()


_MOST_DIMENSIONS = 32  # of an array, in all versions of numpy
_MOST_STAMPS = 1000


def _joined(stamps: Mapping[tuple[int, int], int], size: int) -> dict[tuple[int, int], int]:
    """One stamp for parts without a gap between them, such as the rows of a tensor, but for that of the whole buffer."""
    whole = (0, size)
    joined: list[tuple[int, int, int]] = []
    for (begin, end), stamp in sorted((part, stamp) for part, stamp in stamps.items() if part != whole):
        if joined and begin <= joined[-1][1]:
            before, until, newest = joined.pop()
            begin, end, stamp = before, max(end, until), max(stamp, newest)
        joined.append((begin, end, stamp))
    return {whole: stamps.get(whole, 0), **{(begin, end): stamp for begin, end, stamp in joined}}


@dataclass(frozen=True)
class Range:
    """A part of a buffer, which kernels see as a buffer.

    offset: a multiple of DeviceInfo.storage_buffer_alignment.
    """

    buffer: Buffer
    offset: int
    size_in_bytes: int

    @property
    def gpu(self) -> Any:
        return self.buffer.gpu

    @property
    def stamp(self) -> int | None:
        """Stamp of this part, as `Buffer.stamp`."""
        return self.buffer._stamp_of(self.offset, self.size_in_bytes)

    @property
    def contents(self) -> Hashable:
        """Contents of this part, as `Buffer.contents`."""
        return _contents(self)

    def _mark_computed(self) -> None:
        """Record that a dispatch has changed this part."""
        self.buffer._mark_computed(self.offset, self.size_in_bytes)

    def read(self, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """A new array from the host's copy of this part."""
        return self.buffer.read(shape, dtype, self.offset)


Bound = Buffer | Range


def _contents(bound: Bound) -> Hashable:
    """A stamp alone does not say which bytes: one write may have filled many parts."""
    stamp = bound.stamp
    return None if stamp is None else (bound.buffer._serial, bound.offset, bound.size_in_bytes, stamp)


def overlap(one: Bound, other: Bound) -> bool:
    """Whether they have a byte in common."""
    return (one.buffer is other.buffer and one.offset < other.offset + other.size_in_bytes
            and other.offset < one.offset + one.size_in_bytes)


def _numbers(call: str, dtype: Any) -> np.dtype:
    try:
        found = np.dtype(dtype)
    except Exception:  # numpy reads strings, shows values, and so raises almost anything
        raise InvalidArgumentError(call, "dtype", shown(dtype), "a dtype of numbers") from None
    if found.hasobject or not found.itemsize:
        raise InvalidArgumentError(call, "dtype", found, "a dtype of numbers")
    return found
