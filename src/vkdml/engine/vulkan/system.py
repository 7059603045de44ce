"""What the package asks of the operating system, Linux with glibc, and child processes that os.fork makes.

A child process cannot use a device that its parent opened; what tries to raises DriverError at once. Only the forking thread
lives on in a child: the driver's threads are missing there, and a call into the driver, or the destructor of one of kp's
objects, would wait for them for ever. A lock that another thread held would stay held.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar
from weakref import WeakSet

from ...errors import DriverError, InvalidArgumentError

REMEDY = "on Debian and Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers; other systems: docs/install.md"
_LOADER = "libvulkan.so.1"


def load_vulkan() -> ctypes.CDLL:
    """The Vulkan loader. Raises DriverError where there is none."""
    try:
        return ctypes.CDLL(_LOADER)
    except OSError:
        raise DriverError(f"no Vulkan loader ({_LOADER}); install one and a driver, {REMEDY}") from None


def setting(operator: str, name: str, allowed: Collection[str]) -> str | None:
    """The value of a variable of the environment; None: it is not set, or empty. operator: in the error.

    Raises InvalidArgumentError for a value that is not allowed.
    """
    value = os.environ.get(name) or None
    if value is not None and value not in allowed:
        raise InvalidArgumentError(operator, name, repr(value), "one of " + ", ".join(allowed))
    return value


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


class _HeapInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


_libc: Any = ctypes.CDLL(None)
if hasattr(_libc, "mallinfo2"):  # since glibc 2.33
    _libc.mallinfo2.restype = _HeapInfo


def heap_bytes() -> int:
    """Bytes that the process has from malloc, all threads together; 0 where glibc is too old to say."""
    if not hasattr(_libc, "mallinfo2"):
        return 0
    info = _libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def trim_heap() -> None:
    """Give back to the system what free() has left with the process."""
    _libc.malloc_trim(0)


def end_without_destructors() -> None:
    """Have the process end without those of C++'s static objects, which a driver's threads may still use, and then crash."""
    _libc.on_exit(_libc._exit, None)  # called with the exit code, before what was registered earlier


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


@contextmanager
def said_after(seconds: float, text: str) -> Iterator[None]:
    """Print a line to stderr, if that is a terminal, once the block has taken so long."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(seconds, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    with suppress(RuntimeError):  # the system gives no thread
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class OfOneProcess:
    """Base of objects with memory or kernels on a device: to pickle one raises InvalidArgumentError."""

    def __reduce__(self) -> NoReturn:
        raise InvalidArgumentError("pickle", "object", f"a {type(self).__name__}, or what holds one, with memory on a device",
                                   "a Device, a layer, an ONNX session or a PyTorch module: make all else in each process")


class Closing:
    """Base of objects that can be closed, also by leaving a `with` block: whatever is asked of a closed one that it needs its
    memory for raises InvalidArgumentError. That costs nothing while it is open: a closed one has lost its attributes.
    """

    _of_memory: ClassVar[tuple[str, ...] | None] = None  # the attributes that it loses; None: all
    _is_closed = False

    def close(self) -> None:
        """Let go of all that it has. Once it is closed, to close it again does nothing."""
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

    if not TYPE_CHECKING:  # else type checkers would take any attribute
        __getattr__ = _missing


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


os.register_at_fork(after_in_child=_in_child)
