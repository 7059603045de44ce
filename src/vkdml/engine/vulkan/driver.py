"""Calls into a device's driver through kp: their errors, their time limit, and lost devices; and the thread for executions in
the background.
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
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet, finalize

from ...errors import DeviceLostError, DriverError, InvalidArgumentError, OutOfMemoryError, VkdmlError, expect_ours, is_ours
from . import system

T = TypeVar("T")
P = ParamSpec("P")

_log = logging.getLogger(__name__)

TIMEOUT = 600.0  # a device is lost once an execution has run for so many seconds

# A driver that computes in this process waits for a core, and has not hung, while the process gets this share of one or more,
# which waiting alone does not take, and less than TIMEOUT in all
_STARVED = 1 / 500

# Signals' handlers run when a wait returns to Python, so each wait is short. Most executions end within the first
_WAIT_NANOSECONDS = 100_000_000

_FAILED, _RUNNING = "the Vulkan driver failed while", "running a submission"
_NO_MEMORY = "this process has no more memory while"

# Names of VkResult in kp's messages
_LOST = "DeviceLost"
_OUT_OF_MEMORY = ("OutOfHostMemory", "OutOfDeviceMemory", "OutOfPoolMemory")


_drivers: WeakSet[Driver] = WeakSet()

# The end of a process waits so many seconds at most for other threads' calls, and then for submissions
_FOR_CALLS, _FOR_SUBMISSIONS = 5, 2


class Calls:
    """Context of each call into C++ that lets other threads run. While the process ends, a thread that enters one gets
    SystemExit, but not within another such call, as PyTorch does not pass such exceptions on.

    Otherwise Python would end a daemon thread on its return from the call, which aborts the process.
    """

    _until = float("inf")  # when the process waits no longer for calls of any kind
    def __init__(self) -> None:
        self._threads: list[int] = []  # a thread's id for each call that it is in
        self._ending: int | None = None  # the thread that ends the process
        os.register_at_fork(after_in_child=self._in_child)

    def __enter__(self) -> None:
        thread = threading.get_ident()
        self._threads.append(thread)  # before the check, as the process may begin to end in between
        if self._ending is not None and self._ending != thread and self._threads.count(thread) == 1:
            self.__exit__()
            raise SystemExit

    def __exit__(self, *raised: object) -> None:
        self._threads.remove(threading.get_ident())

    def _in_child(self) -> None:
        self._threads[:] = [thread for thread in self._threads if thread == threading.get_ident()]

    def end(self) -> float:
        """Let no other thread enter, and wait for those inside. Returns the time until which this may wait."""
        self._ending, Calls._until = threading.get_ident(), min(Calls._until, time.monotonic() + _FOR_CALLS)
        _wait(lambda: not set(self._threads) - {self._ending}, Calls._until)
        return Calls._until


calls = Calls()

# Makes weakref register its own exit handler now, so that it runs after this module's: other threads may still use what its
# finalizers destroy, such as PyTorch's operators
finalize(calls, id, None).atexit = False


@atexit.register
def _end() -> None:
    """End the process: wait for other threads' calls and for submissions, but not long, as they may never end."""
    until = min(calls.end(), time.monotonic() + _FOR_SUBMISSIONS)
    for driver in _drivers:
        _wait(driver.has_ended, until)
        driver.abandon()


def _wait(is_over: Callable[[], bool], until: float) -> None:
    """Wait until a condition holds or a time has come, whatever signals' handlers raise: the process ends already."""
    while time.monotonic() < until:
        with suppress(BaseException):
            while not is_over() and time.monotonic() < until:
                time.sleep(0.001)
            return


# Advice after a driver's failure
_SMALLER = "Call with fewer steps or rows, or let go of buffers and layers; `vkdml explain` says what an operator takes"
_UNKNOWN = "Calls that follow may work; if it comes again, update the driver or take another device (`vkdml devices`)"


class Driver:
    """The driver of one opened device.

    lost: why the device cannot be used any more; None if it can. running: kp's sequence that may still run. lock: held around
    all work on the device. forget: drops all that is kept on it. is_cpu: whether it computes in this process.
    """

    def __init__(self, name: str, forget: Callable[[], None], is_cpu: bool = False) -> None:
        self.lost: str | None = None
        self.lock = DeviceLock(self)
        self.timeout = TIMEOUT
        self._name, self.forget, self._is_cpu = name, forget, is_cpu
        self._manager: Any = None
        self.running: Any = None
        _drivers.add(self)

    def open(self, call: Callable[[], Any]) -> Any:
        """Open the device. Return kp's manager."""
        self._manager = self.make(f"opening {self._name}", call)
        return self._manager

    def make(self, doing: str, call: Callable[[], T]) -> T:
        """Make an object of kp's, which is never destroyed in a child process. doing: for errors."""
        return system.keep(self.call(doing, call))

    def call(self, doing: str, call: Callable[[], T]) -> T:
        """Call kp. Its errors become a DriverError that says what was being done."""
        self.check()
        try:
            with calls:
                return call()
        except RecursionError:  # the caller's; kp's errors are RuntimeErrors too
            raise
        except (RuntimeError, MemoryError) as error:
            expect_ours(error)
            raise self._failure(doing, error) from error

    def check(self) -> None:
        """Raise DriverError if the device cannot be used."""
        system.check()
        if self.lost is not None:
            raise DeviceLostError(self.lost)

    def run(self, sequence: Any, meanwhile: Callable[[], None] | None = None) -> None:
        """Submit kp's sequence and wait for its end. meanwhile: called in between.

        Exceptions of signals' handlers, such as KeyboardInterrupt, are raised at once. The submission then runs on, and the
        next user of the lock waits for it first.
        """
        begin = time.perf_counter()
        self.call(_RUNNING, partial(self._submit, sequence, meanwhile is None))
        if meanwhile is not None:
            meanwhile()
        if sequence.is_running():
            self.settle()
        self.running = None
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("a submission ran for %.3f ms", (time.perf_counter() - begin) * 1e3)

    def _submit(self, sequence: Any, waits: bool) -> None:
        self.running = sequence  # first, as a signal may come at any place
        sequence.eval_async()  # vkQueueSubmit, in kp
        if waits:
            sequence.eval_await(_WAIT_NANOSECONDS)  # vkWaitForFences

    def settle(self) -> None:
        """Wait for the running sequence. Raises DriverError when the driver fails or the device is lost."""
        sequence, begin, before = self.running, time.monotonic(), time.process_time()
        while sequence is not None and sequence.is_running():
            self.call(_RUNNING, lambda: sequence.eval_await(_WAIT_NANOSECONDS))
            if sequence.is_running() and time.monotonic() - begin >= self.timeout and not (
                    self._is_cpu and _STARVED * self.timeout < time.process_time() - before < self.timeout):
                raise self._lose(f"{_FAILED} {_RUNNING}: it has not ended within {self.timeout:g} s. Call "
                                 "with fewer steps or rows")
        self.running = None

    def has_ended(self) -> bool:
        """Return whether no sequence is running, after a moment's wait."""
        with suppress(RuntimeError, MemoryError):  # the device is lost, or another thread is in a call
            system.check()
            if self.running is not None and self.running.is_running():
                self.running.eval_await(_WAIT_NANOSECONDS)
                return not self.running.is_running()
        return True

    def abandon(self) -> None:
        """Never destroy the running sequence nor its device, and do not wait for it."""
        if self.running is not None and self.running.is_running():
            for used in (self._manager, self.running):
                system.never_destroy(used)
            system.end_without_destructors()

    def _failure(self, doing: str, error: Exception) -> DriverError:
        """Return the error to raise for an exception of kp's."""
        is_of_process = isinstance(error, MemoryError)
        text = f"{_NO_MEMORY if is_of_process else _FAILED} {doing}: {str(error).strip() or type(error).__name__}"
        if _LOST in text:
            return self._lose(text)
        is_memory = is_of_process or any(name in text for name in _OUT_OF_MEMORY)
        return OutOfMemoryError(f"{text}. {_SMALLER}") if is_memory else DriverError(f"{text}. {_UNKNOWN}")

    def _lose(self, reason: str) -> DeviceLostError:
        """Mark the device as lost and drop all that is kept on it. Return the error to raise."""
        self.lost = (f"{reason}. The device {self._name} is lost, with all that was made on it. vkdml.Device() opens it again; "
                     "calls that name no Device do so by themselves")
        _log.error("%s", self.lost)
        self.abandon()
        self.running = None
        self.forget()
        return DeviceLostError(self.lost)


class DeviceLock(system.Lock):
    """Reentrant lock around work on a device: all that touches its store, its scratch buffers or its queue runs within `work`.

    Entering waits for a sequence that an interrupted call left running. It raises if the device is lost, and during `work` of
    the same thread, which a signal's handler or a finalizer has interrupted: it would change what that work is using.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self._is_working = False
        self.notice = system.Notice()

    def __enter__(self) -> None:
        super().__enter__()
        if not self._is_working and self._driver.running is None and self._driver.lost is None:  # nearly always
            return
        try:
            if self._is_working:
                raise InvalidArgumentError("Device", "call", "a call within another one on this device, as of a signal's "
                                           "handler", "one after the other")
            self._driver.check()
            self._driver.settle()
        except BaseException:
            super().__exit__()
            raise

    def work(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function that works on the device, alone. Functions that it calls must not enter the lock.

        If a foreign exception comes through, such as a signal handler's, what is kept on the device may be inconsistent. It is
        dropped, unless a sequence runs.
        """
        with self:
            try:
                self._is_working = True
                self.notice.since = None
                return call(*arguments, **named)
            except BaseException as error:
                is_known = isinstance(error, (VkdmlError, MemoryError)) and is_ours(error)
                if not is_known and self._driver.running is None:
                    self._driver.forget()
                raise
            finally:
                self._is_working = False


def working(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Wrap a method of an object with a `gpu`, so that it runs within the lock's `work`."""
    @wraps(method)
    def within_work(self: Any, *arguments: P.args, **named: P.kwargs) -> T:
        made: T = self.gpu.lock.work(method, self, *arguments, **named)
        return made

    return within_work


_Work = tuple[Future[None], Callable[[], None]]
_Queue = SimpleQueue[_Work | None]  # None ends the thread


class Background:
    """Runs functions in a thread of its own, which starts with the first one and ends with this object.

    It is a daemon: a process that ends would wait for other threads with all their queued work, and for ever for one whose
    start was interrupted.
    """

    def __init__(self) -> None:
        self._queue: _Queue | None = None
        self._starting = threading.RLock()  # reentrant: a signal's handler may call `submit` during a start

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Queue a function. Raises RuntimeError if the system gives no thread. An interrupt may leave the function queued."""
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
        except BaseException:  # an interrupt; the thread may start nevertheless
            queue.put(None)
            raise
        return queue


def _work(queue: _Queue) -> None:
    while item := queue.get():
        future, work = item
        try:
            work()
        except SystemExit:  # see Calls
            future.set_exception(DriverError("the process ended before the execution did"))
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        del item, future, work  # they hold the device
