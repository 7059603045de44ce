"""Calls of a device's driver through kp's objects: what they raise, how long they may take, and when the device is lost; and a
thread for executions that nobody waits for at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet, finalize

from ...errors import DeviceLostError, DriverError, OutOfMemoryError, VkdmlError
from . import system

T = TypeVar("T")

_log = logging.getLogger(__name__)

TIMEOUT = 600.0  # seconds

# A signal's handler runs when a wait returns to Python. Most executions end within the first such wait
_WAIT_NANOSECONDS = 100_000_000

_FAILED, _RUNNING = "the Vulkan driver failed while", "running a submission"
_NO_MEMORY = "this process has no more memory while"

# What kp's messages have of VkResult
_LOST = "DeviceLost"
_OUT_OF_MEMORY = ("OutOfHostMemory", "OutOfDeviceMemory", "OutOfPoolMemory")


_drivers: WeakSet[Driver] = WeakSet()

_calling: list[int] = []  # the threads that are within a call that may run beside others, as often as they are
_ending: int | None = None  # the thread that ends the process

# When a process ends: seconds at most for all, for calls that other threads are in, and then for what is running
_FOR_CALLS, _FOR_SUBMISSIONS = 5, 2


def _in_child() -> None:
    _calling[:] = [thread for thread in _calling if thread == threading.get_ident()]


os.register_at_fork(after_in_child=_in_child)


class Calls:
    """Context of each call into C++ that lets other threads run. While the process ends, any other thread ends when it enters
    such a call; but not within another one, as PyTorch does not let such exceptions through.

    Python ends a daemon thread that comes back from such a call when the process has ended, and so aborts the process.
    """

    def __enter__(self) -> None:
        thread = threading.get_ident()
        _calling.append(thread)  # before it looks, as the process may begin to end in between
        if _ending is not None and _ending != thread and _calling.count(thread) == 1:
            self.__exit__()
            raise SystemExit

    def __exit__(self, *raised: object) -> None:
        _calling.remove(threading.get_ident())


calls = Calls()

# Has weakref register its own handler now, so that it comes after this one: what its finalizers take away, such as PyTorch's
# operators, other threads may be in
finalize(calls, id, None).atexit = False


@atexit.register
def _end() -> None:
    """The process ends, after an interrupt perhaps. What is running might not, and a driver's threads may be compiling it."""
    global _ending
    _ending = threading.get_ident()
    until = time.monotonic() + _FOR_CALLS
    _wait(lambda: not set(_calling) - {_ending}, until)
    until = min(until, time.monotonic() + _FOR_SUBMISSIONS)
    for driver in _drivers:
        _wait(driver.has_ended, until)
        driver.abandon()


def _wait(is_over: Callable[[], bool], until: float) -> None:
    """Wait until it is over, or until then, whatever signals' handlers raise: the process ends already."""
    while time.monotonic() < until:
        with suppress(BaseException):
            while not is_over() and time.monotonic() < until:
                time.sleep(0.001)
            return


# What to do after a failure
_SMALLER = "Call with fewer steps or rows, or let go of buffers and layers; `vkdml explain` says what an operator takes"
_UNKNOWN = "Calls that follow may work; if it comes again, update the driver or take another device (`vkdml devices`)"


class Driver:
    """The driver of one opened device.

    lost: why the device cannot be used any more; None: it can. running: kp's sequence whose end was not seen yet. lock: around
    all work on the device. forget: lets go of all that is kept on it.
    """

    def __init__(self, name: str, forget: Callable[[], None]) -> None:
        self.lost: str | None = None
        self.lock = DeviceLock(self)
        self.timeout = TIMEOUT
        self._name, self.forget = name, forget
        self._manager: Any = None
        self.running: Any = None
        _drivers.add(self)

    def open(self, call: Callable[[], Any]) -> Any:
        """kp's manager of the device."""
        self._manager = self.make(f"opening {self._name}", call)
        return self._manager

    def make(self, doing: str, call: Callable[[], T]) -> T:
        """Make an object of kp's, which is never destroyed in a child process."""
        return system.keep(self.call(doing, call))

    def call(self, doing: str, call: Callable[[], T]) -> T:
        """Call kp. What it raises becomes a DriverError that says what was being done."""
        self.check()
        try:
            with calls:
                return call()
        except RecursionError:  # of the caller's, which is a RuntimeError, as kp's errors are
            raise
        except (RuntimeError, MemoryError) as error:
            raise self._failure(doing, error) from error

    def check(self) -> None:
        """Raises DriverError where the device cannot be used."""
        system.check()
        if self.lost is not None:
            raise DeviceLostError(self.lost)

    def run(self, sequence: Any) -> None:
        """Submit what a sequence of kp's has recorded, and wait for its end.

        An exception that a signal's handler raises, such as KeyboardInterrupt, gets through within a moment. What was submitted
        runs on then, and the lock waits for it first when it is next entered.
        """
        begin = time.perf_counter()

        def submit() -> None:
            self.running = sequence  # before, as a signal may come at any place
            sequence.eval_async()
            sequence.eval_await(_WAIT_NANOSECONDS)

        self.call(_RUNNING, submit)
        if sequence.is_running():
            self.settle()
        self.running = None
        _log.debug("a submission ran for %.3f ms", (time.perf_counter() - begin) * 1e3)

    def settle(self) -> None:
        """Wait for what is running. Raises DriverError when the driver fails or the device is lost."""
        sequence, begin = self.running, time.monotonic()
        while sequence is not None and sequence.is_running():
            self.call(_RUNNING, lambda: sequence.eval_await(_WAIT_NANOSECONDS))
            if sequence.is_running() and time.monotonic() - begin >= self.timeout:
                raise self._lose(f"{_FAILED} {_RUNNING}: it has not ended within {self.timeout:g} s. Call "
                                 "with fewer steps or rows")
        self.running = None

    def has_ended(self) -> bool:
        """Whether nothing is running. Waits for it a moment."""
        with suppress(RuntimeError, MemoryError):  # it is lost, or a call of another thread has not ended
            system.check()
            if self.running is not None and self.running.is_running():
                self.running.eval_await(_WAIT_NANOSECONDS)
                return not self.running.is_running()
        return True

    def abandon(self) -> None:
        """Let what is running outlive this process's objects: it must not be destroyed, and is not waited for."""
        if self.running is not None and self.running.is_running():
            for used in (self._manager, self.running):
                system.never_destroy(used)
            system.end_without_destructors()

    def _failure(self, doing: str, error: Exception) -> DriverError:
        """The error to raise for an exception of kp's."""
        is_of_process = isinstance(error, MemoryError)
        text = f"{_NO_MEMORY if is_of_process else _FAILED} {doing}: {str(error).strip() or type(error).__name__}"
        if _LOST in text:
            return self._lose(text)
        is_memory = is_of_process or any(name in text for name in _OUT_OF_MEMORY)
        return OutOfMemoryError(f"{text}. {_SMALLER}") if is_memory else DriverError(f"{text}. {_UNKNOWN}")

    def _lose(self, reason: str) -> DeviceLostError:
        """Give the device up: nothing on it can be used any more."""
        self.lost = (f"{reason}. The device {self._name} is lost, with all that was made on it. vkdml.Device() opens it anew; "
                     "calls that name no Device do so by themselves")
        _log.error("%s", self.lost)
        self.abandon()
        self.running = None
        self.forget()
        return DeviceLostError(self.lost)


class DeviceLock(system.Lock):
    """Lock around work on a device.

    Entering waits for what an interrupted call left running, and raises if the device is lost. After a
    foreign exception, as of a signal's handler, the cached state may be inconsistent, so it is dropped; not within a wait, nor
    where memory runs out, which would be a bad time to compile again.

    is_computing: whether the buffers that all executions share are in use. A signal's handler may enter again then.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self.is_computing = False

    def __enter__(self) -> None:
        super().__enter__()
        if self._driver.running is None and self._driver.lost is None:  # nearly always, and short calls are made often
            return
        try:
            self._driver.check()
            self._driver.settle()
        except BaseException:
            super().__exit__()
            raise

    def __exit__(self, *raised: Any) -> None:
        try:
            kind = raised[0] if raised else None
            if kind and not issubclass(kind, (VkdmlError, MemoryError)) and self._driver.running is None:
                self._driver.forget()
        finally:
            super().__exit__()


_Work = tuple[Future[None], Callable[[], None]]
_Queue = SimpleQueue[_Work | None]  # None: the thread ends


class Background:
    """Starts its thread with the first piece of work. The thread goes when nobody holds this any more.

    It is a daemon, as a process that ends joins the others, with all that is queued, and cannot join one whose start was
    interrupted: such a thread waits for work without end.
    """

    def __init__(self) -> None:
        self._queue: _Queue | None = None
        self._starting = threading.RLock()  # a signal's handler may call within a start

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Raises RuntimeError where the system gives no thread. An interrupt may leave the work queued."""
        future: Future[None] = Future()
        with self._starting:
            if self._queue is None:
                queue = self._start()
                self._queue = self._queue or queue
            self._queue.put((future, work))
        return future

    def _start(self) -> _Queue:
        queue: _Queue = SimpleQueue()
        try:
            threading.Thread(target=_work, args=(queue,), name="vkdml", daemon=True).start()
            finalize(self, queue.put, None).atexit = False
        except BaseException:  # an interrupt, perhaps of a start that goes on
            queue.put(None)
            raise
        return queue


def _work(queue: _Queue) -> None:
    while item := queue.get():
        future, work = item
        try:
            work()
        except SystemExit:  # see driver.Calls
            future.set_exception(DriverError("the process ended before the execution did"))
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        del item, future, work  # which hold the device
