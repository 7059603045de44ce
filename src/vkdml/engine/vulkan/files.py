"""Safe access to files that others may have written, and the files of compiled pipelines.

Functions raise OSError or ValueError; callers add which of their arguments named the file.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ...planning.device_info import DeviceInfo

_SECONDS_TO_WRITE = 3600  # no process takes longer to write a file


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read. Refuse others without waiting: a pipe may have no writer, a device no end."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ValueError("not a regular file")
    return os.fdopen(number, "rb")


def cache_folder(name: str) -> Path | None:
    """Return vkdml's cache folder of a name, in XDG_CACHE_HOME or else in ~/.cache; None if there is no home."""
    with suppress(RuntimeError):
        given = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (given if given.is_absolute() else Path.home() / ".cache") / "vkdml" / name
    return None


def others_write_to(path: Path) -> bool:
    """Return whether other users can have written a file or folder."""
    try:
        status = path.lstat()
    except OSError:
        return False
    is_ours = status.st_uid in (os.geteuid(), 0) and not stat.S_ISLNK(status.st_mode)
    return not is_ours or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, which appears whole or not at all, in a folder that only this user can access."""
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)  # whatever the umask says
    number, name = tempfile.mkstemp(".tmp", dir=path.parent)
    try:
        with open(number, "wb") as file:
            file.write(content)
        os.replace(name, path)
        _sweep(path.parent)
    except BaseException:  # an interrupt, too
        with suppress(OSError):
            os.unlink(name)
        raise


def _sweep(folder: Path) -> None:
    """Remove unfinished files of processes that were killed while they wrote."""
    for path in folder.glob("*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _SECONDS_TO_WRITE:
                path.unlink()


def length(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def read(path: Path, most: int | None = None) -> bytes:
    """Return the contents of a file. most: refuse a file with more bytes."""
    with open_regular(path) as file:
        size = length(file)
        if most is not None and size > most:
            raise ValueError(f"{size} bytes, more than {most}")
        try:
            return file.read(size)
        except MemoryError:
            raise ValueError(f"{size} bytes, more than there is memory") from None


_MOST_BYTES = 32 * 2**20  # of all files with pipelines together
_HEADER = struct.Struct("<IIII16s")  # VkPipelineCacheHeaderVersionOne: its length, 1, vendor, device, UUID
_CHECKSUM = struct.Struct("<I")
_WORTH = 4  # a file is written once compiling has taken so many times as long as writing


class PipelineFile:
    """Keeps the pipelines that a device's driver has compiled (VkPipelineCache's data) for later processes, for drivers that
    keep none themselves. A file that cannot be read, is damaged or is another driver's counts as missing.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        self._unsaved = 0.0  # seconds of compiling since the last write
        self._seconds = 0.001  # seconds that a write takes
        folder = cache_folder("pipelines")
        about = (info.name, info.driver, info.driver_version, info.vendor, info.device_id, info.pipeline_cache_uuid)
        digest = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
        self._path = folder / f"{digest}.bin" if folder and not others_write_to(folder) else None

    def read(self) -> bytes:
        """Return the initial data of the device's VkPipelineCache; empty if none is kept."""
        if self._path is None or others_write_to(self._path):
            return b""
        try:
            content = read(self._path, _CHECKSUM.size + _MOST_BYTES)
        except (OSError, ValueError):
            return b""
        data = content[_CHECKSUM.size:]
        is_whole = content == _CHECKSUM.pack(zlib.crc32(data)) + data
        return data if is_whole and self._is_of_device(data) else b""

    def made(self, seconds: float, data: Callable[[], bytes]) -> None:
        """Note that compiling a pipeline took some seconds. Write the file if enough was compiled since the last write.

        data: returns the VkPipelineCache's data.
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
            write_whole(self._path, _CHECKSUM.pack(zlib.crc32(content)) + content)
            _drop_oldest(self._path.parent)
        self._unsaved, self._seconds = 0.0, time.perf_counter() - begin

    def _is_of_device(self, data: bytes) -> bool:
        """Return whether data has the header of this device and driver."""
        if len(data) < _HEADER.size:
            return False
        size, version, *found = _HEADER.unpack_from(data)
        own = [self._info.vendor, self._info.device_id, bytes.fromhex(self._info.pipeline_cache_uuid)]
        return size == _HEADER.size and version == 1 and found == own


def _drop_oldest(folder: Path) -> None:
    """Remove the oldest files, of former drivers, until the folder is within its bound."""
    found = sorted(((path.stat(), path) for path in folder.iterdir()), key=lambda one: one[0].st_mtime, reverse=True)
    total = 0
    for status, path in found:
        total += status.st_size
        if total > _CHECKSUM.size + _MOST_BYTES:
            path.unlink()
