"""The pipelines that a driver has compiled, kept on disk for later processes: VkPipelineCache's data, a file for each device
with its present driver. Most drivers of GPUs keep their own; where one does not, each process would compile all anew.

What cannot be read, is torn or is of another driver is as if it were not there; what cannot be written is not kept.
"""

from __future__ import annotations

import hashlib
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...planning.device_info import DeviceInfo
from . import files

_MOST_BYTES = 32 * 2**20  # of all files
_HEADER = struct.Struct("<IIII16s")  # VkPipelineCacheHeaderVersionOne: its length, 1, vendor, device, UUID
_CHECKSUM = struct.Struct("<I")
_WORTH = 4  # compiling that takes so many times as long as writing it down


class PipelineFile:
    """The file of one opened device."""

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        self._unsaved = 0.0  # seconds of compiling
        self._seconds = 0.001  # that writing takes
        folder = files.cache_folder("pipelines")
        about = (info.name, info.driver, info.driver_version, info.vendor, info.device_id, info.pipeline_cache_uuid)
        digest = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
        self._path = folder / f"{digest}.bin" if folder and not files.others_write_to(folder) else None

    def read(self) -> bytes:
        """What to make the device's cache with; empty where there is nothing."""
        if self._path is None or files.others_write_to(self._path):
            return b""
        try:
            content = files.read(self._path, _CHECKSUM.size + _MOST_BYTES)
        except (OSError, ValueError):
            return b""
        data = content[_CHECKSUM.size:]
        is_whole = content == _CHECKSUM.pack(zlib.crc32(data)) + data
        return data if is_whole and self._is_of_device(data) else b""

    def made(self, seconds: float, data: Callable[[], bytes]) -> None:
        """A pipeline was compiled within so many seconds. Writes down all that the cache has once that is worth it; what is not
        written when the process ends is less than that.
        """
        self._unsaved += seconds
        if self._path is None or self._unsaved < _WORTH * self._seconds:
            return
        begin = time.perf_counter()
        content = data()
        if len(content) <= _HEADER.size or len(content) > _MOST_BYTES or not self._is_of_device(content):
            self._path = None  # the driver puts nothing into it, or too much
            return
        with suppress(OSError):
            files.write_whole(self._path, _CHECKSUM.pack(zlib.crc32(content)) + content)
            _drop_oldest(self._path.parent)
        self._unsaved, self._seconds = 0.0, time.perf_counter() - begin

    def _is_of_device(self, data: bytes) -> bool:
        """Whether a driver's header says that it is for this device and driver."""
        if len(data) < _HEADER.size:
            return False
        size, version, *found = _HEADER.unpack_from(data)
        own = [self._info.vendor, self._info.device_id, bytes.fromhex(self._info.pipeline_cache_uuid)]
        return size == _HEADER.size and version == 1 and found == own


def _drop_oldest(folder: Path) -> None:
    """Keep the folder within its bound: files of former drivers go."""
    found = sorted(((path.stat(), path) for path in folder.iterdir()), key=lambda one: one[0].st_mtime, reverse=True)
    total = 0
    for status, path in found:
        total += status.st_size
        if total > _CHECKSUM.size + _MOST_BYTES:
            path.unlink()
