"""Services of the operating system (Linux with glibc), objects that can be closed, and child processes of os.fork.

A child process cannot use a device that its parent opened: DriverError. Only the forking thread lives on in a child. A call
into the driver, or a destructor of kp's objects, would wait for ever for the driver's threads, and another thread's lock would
stay held.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar
from weakref import WeakSet

from ...errors import DriverError, InvalidArgumentError, expect_no_thread

REMEDY = "on Debian and Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers; other systems: docs/install.md"
_LOADER = "libvulkan.so.1"


def load_vulkan() -> ctypes.CDLL:
    """Load the Vulkan loader. Raises DriverError if there is none."""
    try:
        return ctypes.CDLL(_LOADER)
    except OSError:
        raise DriverError(f"no Vulkan loader ({_LOADER}); install one and a driver, {REMEDY}") from None


def setting(operator: str, name: str, allowed: Collection[str]) -> str | None:
    """Return the value of an environment variable; None if it is not set, or empty. operator: for the error.

    Raises InvalidArgumentError for a value that is not allowed.
    """
    value = os.environ.get(name) or None
    if value is not None and value not in allowed:
        raise InvalidArgumentError(operator, name, repr(value), "one of " + ", ".join(allowed))
    return value


class _HeapInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


_PROBE_BYTES = 2**24
_libc: Any = ctypes.CDLL(None)
_libc.malloc.restype, _libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
if hasattr(_libc, "mallinfo2"):  # since glibc 2.33
    _libc.mallinfo2.restype = _HeapInfo


def heap_bytes() -> int | None:
    """Return the bytes that the process has from malloc; None if it is unknown: glibc is too old, or malloc is not glibc's."""
    return _glibc_heap_bytes() if _is_glibc_heap() else None


def _glibc_heap_bytes() -> int:
    info = _libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


@cache
def _is_glibc_heap() -> bool:
    """Whether glibc counts what malloc gives. A library that is loaded before it, such as jemalloc, may have its own malloc."""
    if not hasattr(_libc, "mallinfo2"):
        return False
    before, block = _glibc_heap_bytes(), _libc.malloc(_PROBE_BYTES)
    counted = _glibc_heap_bytes() - before
    _libc.free(block)
    return counted >= _PROBE_BYTES


def trim_heap() -> None:
    """Return freed heap memory to the system."""
    _libc.malloc_trim(0)


def end_without_destructors() -> None:
    """Make the process end without the destructors of C++'s static objects: a driver's threads may still use those."""
    _libc.on_exit(_libc._exit, None)  # called with the exit code, before what was registered earlier


T = TypeVar("T")

_made: WeakSet[Any] = WeakSet()  # kp's objects
_locks: WeakSet[Lock] = WeakSet()
_has_opened = False  # whether this process has opened a device, or tried to
_parent_has_opened = False


def check() -> None:
    """Raise DriverError in a child process whose parent had opened a device."""
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
    """Make sure that an object of kp's is never destroyed in a child process. Return the object."""
    _made.add(made)
    return made


def never_destroy(made: object) -> None:
    """Keep an object for ever, even beyond the end of Python."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


def is_terminal(file: Any) -> bool:
    """Return whether a file is a terminal. Of what replaces sys.stderr, Python demands write() only."""
    try:
        return bool(file.isatty())
    except Exception:  # None and closed files raise, too
        return False


class Notice:
    """A line on stderr, if that is a terminal, once blocks of one call have taken some seconds: one line a call.

    since: when the call's first block began; None before that, infinity once the line is printed.
    """

    since: float | None = None

    @contextmanager
    def after(self, seconds: float, text: str) -> Iterator[None]:
        """Print the text within the block, or else a later block its own."""
        if self.since == math.inf or not is_terminal(sys.stderr):
            yield
            return
        self.since = self.since or time.monotonic()
        timer = threading.Timer(max(0, self.since + seconds - time.monotonic()), self._print, [text])
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError as error:  # the system gives no thread
            expect_no_thread(error)
        try:
            yield
        finally:
            timer.cancel()

    def _print(self, text: str) -> None:
        self.since = math.inf
        print(text, file=sys.stderr)


class OfOneProcess:
    """Base of objects with memory or kernels on a device. Pickling one raises InvalidArgumentError."""

    def __reduce__(self) -> NoReturn:
        raise InvalidArgumentError("pickle", "object", f"a {type(self).__name__}, or what holds one, with memory on a device",
                                   "a Device, a layer, an ONNX session or a PyTorch module: make all else in each process")


class Closing:
    """Base of objects that `close`, or leaving a `with` block, closes. Using the memory of a closed one raises
    InvalidArgumentError. Open objects pay nothing for that: a closed one has lost its attributes.
    """

    _of_memory: ClassVar[tuple[str, ...] | None] = None  # the attributes that close() deletes; None: all
    _is_closed = False

    def close(self) -> None:
        """Free its memory. Closing it again does nothing."""
        for name in list(self.__dict__) if self._of_memory is None else self._of_memory:
            self.__dict__.pop(name, None)
        self._is_closed = True

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _expect_open(self) -> None:
        if self._is_closed:
            kind = type(self).__name__
            raise InvalidArgumentError(kind, "object", f"a closed {kind}", "an open one")

    def _missing(self, name: str) -> NoReturn:
        if name[:2] != "__":
            self._expect_open()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    if not TYPE_CHECKING:  # type checkers would accept any attribute
        __getattr__ = _missing


class Lock:
    """A reentrant lock around work on a device. It is free in a child process, where entering raises as `check` does."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def take_from_other_threads(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()

    def __enter__(self) -> None:
        if _parent_has_opened:
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


os.register_at_fork(after_in_child=_in_child)
