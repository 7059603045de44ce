"""os.fork: a child process cannot use a device that its parent opened. What tries to raises DriverError at once.

Only the forking thread lives on in a child. The driver's threads are missing there, and a call into the driver, or the
destructor of one of kp's objects, would wait for them for ever. A lock that another thread held would stay held.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

from ...errors import DriverError, InvalidArgumentError
from . import system

T = TypeVar("T")

_made: WeakSet[Any] = WeakSet()  # kp's objects
_locks: WeakSet[Lock] = WeakSet()
_has_opened = False  # a device, or tried to
_parent_has_opened = False


def check() -> None:
    """Raises DriverError in a child process whose parent had opened a device."""
    if _parent_has_opened:
        raise DriverError("this process was forked from one that had opened a Vulkan device, which it cannot use: start it by "
                          "multiprocessing's method 'spawn' or 'forkserver' (PyTorch: DataLoader's multiprocessing_context), "
                          "or open no device before the fork")


def begin() -> None:
    """Note that a device is about to be opened."""
    global _has_opened
    check()
    _has_opened = True


def keep(made: T) -> T:
    """An object of kp's, so that it is never destroyed in a child process. Returns it."""
    _made.add(made)
    return made


def never_destroy(made: object) -> None:
    """Not even when nobody refers to it any more, nor at the process's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


class OfOneProcess:
    """What cannot be pickled, as it has memory or kernels on a device. Raises InvalidArgumentError."""

    def __reduce__(self) -> NoReturn:
        raise InvalidArgumentError("pickle", "object", f"a {type(self).__name__}, or what holds one, with memory on a device",
                                   "a Device, a layer, an ONNX session or a PyTorch module: make all else in each process")


class Lock:
    """A reentrant lock around work on a device. In a child process nobody holds it, and `check` comes first."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def take_from_other_threads(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()

    def __enter__(self) -> None:
        check()
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


def _in_child() -> None:
    global _parent_has_opened
    _parent_has_opened = _has_opened
    for made in _made:
        never_destroy(made)
    for lock in _locks:
        lock.take_from_other_threads()


system.after_fork_in_child(_in_child)
