"""Files that others may have written: only regular ones are read, no more of them than there is, and none outside of a folder.

Everything here raises OSError or ValueError, for the caller to say which of its arguments names the file.
"""

from __future__ import annotations

import math
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

_SECONDS_TO_WRITE = 3600  # no process takes longer to write a file

# numpy's readers of the header of a .npy file, by the format's version. Version 3 is for structures with names in Unicode only
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}



def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read. Others are refused, and not waited for: a pipe may have no writer, a device no end."""
    return _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")


def open_to_write(path: Path) -> BinaryIO:
    """A new file, or one that is emptied."""
    file = _regular(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666), "wb")
    file.truncate()
    return file


def cache_folder(name: str) -> Path | None:
    """The folder of this name for what later processes use: in XDG_CACHE_HOME, or else in ~/.cache. None: there is no home."""
    with suppress(RuntimeError):
        given = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (given if given.is_absolute() else Path.home() / ".cache") / "vkdml" / name
    return None


def others_write(status: os.stat_result) -> bool:
    """Whether somebody else can have written a file or folder."""
    is_ours = status.st_uid in (os.geteuid(), 0) and not stat.S_ISLNK(status.st_mode)
    return not is_ours or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def others_write_to(path: Path) -> bool:
    """Whether somebody else can have written what is there."""
    try:
        return others_write(path.lstat())
    except OSError:
        return False


def write_whole(path: Path, content: bytes) -> None:
    """A file that appears whole or not at all, in the place of what was there, in a folder for this user alone."""
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
    """Remove what processes left that were killed while they wrote."""
    for path in folder.glob("*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _SECONDS_TO_WRITE:
                path.unlink()


def _regular(descriptor: int, mode: Literal["rb", "wb"]) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    return os.fdopen(descriptor, mode)


def length(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def read(path: Path, most: int | None = None) -> bytes:
    """All of a file. most: refuse a longer one."""
    with open_regular(path) as file:
        size = length(file)
        if most is not None and size > most:
            raise ValueError(f"{size} bytes, more than {most}")
        return _read(file, size)


def read_part(path: Path, offset: int, size: int | None) -> bytes:
    """So many bytes from there, or all."""
    with open_regular(path) as file:
        rest = length(file) - offset
        if offset < 0 or rest < 0 or not 0 <= (rest if size is None else size) <= rest:
            raise ValueError(f"bytes {offset} to {'the end' if size is None else offset + size} of {offset + rest}")
        file.seek(offset)
        return _read(file, rest if size is None else size)


def _read(file: BinaryIO, size: int) -> bytes:
    try:
        return file.read(size)
    except MemoryError:
        raise ValueError(f"{size} bytes, more than there is memory") from None


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy file, in this machine's byte order."""
    with open_regular(path) as file:
        try:
            _check_npy(file)
            file.seek(0)
            return _native(np.lib.format.read_array(file, allow_pickle=False))
        except OSError:
            raise
        except Exception as error:  # numpy evaluates the header as Python, and so raises almost anything
            raise ValueError(str(error) or type(error).__name__) from None


def read_npz(path: Path) -> list[np.ndarray]:
    """The arrays of a .npz file, in order, in this machine's byte order."""
    with open_regular(path) as file:
        try:
            with np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
                return [_native(arrays[name]) for name in arrays.files]
        except OSError:
            raise
        except Exception as error:  # as above, and what zipfile and zlib raise
            raise ValueError(str(error) or type(error).__name__) from None


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_npy(file: BinaryIO) -> None:
    """Refuse what the header says, before memory is allocated for it."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format")
    shape, _, dtype = _HEADERS[version](file)
    rest, needed = length(file) - file.tell(), math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and (not dtype.itemsize or min(shape, default=0) < 0 or needed > rest):
        raise ValueError(f"an array {shape} of {dtype} in {rest} bytes")


def inside(folder: Path, name: str) -> Path:
    """The path of what a name in a file of this folder means, with links followed. Refuses one outside of the folder."""
    root = folder.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"a path outside of {root}")
    return path
