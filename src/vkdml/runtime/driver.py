"""Calls of a device's driver through kp's objects: what they raise, how long they may take, and when the device is lost."""

from __future__ import annotations

import atexit
import logging
import math
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

from ..errors import DeviceLostError, DriverError, InvalidArgumentError, OutOfMemoryError, VkdmlError
from . import fork

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DEFAULT_TIMEOUT = 600.0  # seconds

# A signal's handler runs when a wait returns to Python. Most executions end within the first such wait
_WAIT_NANOSECONDS = 100_000_000

_FAILED, _RUNNING = "the Vulkan driver failed while", "running a submission"

# What kp's messages have of VkResult
_LOST = "DeviceLost"
_OUT_OF_MEMORY = ("OutOfHostMemory", "OutOfDeviceMemory", "OutOfPoolMemory")


def timeout_of_environment() -> float:
    """VKDML_TIMEOUT_SECONDS, or ten minutes. Raises InvalidArgumentError for what is no number above 0."""
    text = os.environ.get("VKDML_TIMEOUT_SECONDS") or str(_DEFAULT_TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise InvalidArgumentError("Device", "VKDML_TIMEOUT_SECONDS", repr(text), "a number of seconds above 0")
    return seconds


_drivers: WeakSet[Driver] = WeakSet()


@atexit.register
def _end() -> None:
    """The process ends, after an interrupt perhaps. What is running might not."""
    for driver in _drivers:
        driver.abandon()


# What to do after a failure
_SMALLER = "Call with fewer steps or rows, or let go of buffers and layers; `vkdml explain` says what an operator takes"
_UNKNOWN = "Calls that follow may work; if it comes again, update the driver or take another device (`vkdml devices`)"


class Driver:
    """Of one opened device.

    lost: why the device cannot be used any more; None: it can. running: kp's sequence whose end was not seen yet. lock: around
    all work on the device. forget: lets go of all that is kept on it.
    """

    def __init__(self, name: str, forget: Callable[[], None]) -> None:
        self.lost: str | None = None
        self.lock = DeviceLock(self)
        self.timeout = timeout_of_environment()
        self._name, self.forget = name, forget
        self._manager: Any = None
        self.running: Any = None
        _drivers.add(self)

    def open(self, call: Callable[[], Any]) -> Any:
        """kp's manager of the device."""
        self._manager = self.make(f"opening {self._name}", call)
        return self._manager

    def make(self, doing: str, call: Callable[[], T]) -> T:
        """An object of kp's."""
        return fork.keep(self.call(doing, call))

    def call(self, doing: str, call: Callable[[], T]) -> T:
        """Call kp. What it raises becomes a DriverError that says what was being done."""
        self.check()
        try:
            return call()
        except (RuntimeError, MemoryError) as error:
            raise self._failure(doing, error) from error

    def check(self) -> None:
        """Raises DriverError where the device cannot be used."""
        fork.check()
        if self.lost is not None:
            raise DeviceLostError(self.lost)

    def run(self, sequence: Any) -> None:
        """Submit what a sequence of kp's has recorded, and wait for its end.

        An exception that a signal's handler raises, such as KeyboardInterrupt, gets through within a moment. What was submitted
        runs on then, and the lock waits for it first when it is next entered.
        """
        if not _log.isEnabledFor(logging.DEBUG):
            self._run(sequence)
            return
        begin = time.perf_counter()
        self._run(sequence)
        _log.debug("a submission ran for %.3f ms", (time.perf_counter() - begin) * 1e3)

    def _run(self, sequence: Any) -> None:
        self.check()
        self.running = sequence  # before, as a signal may come at any place
        try:
            sequence.eval_async()
            sequence.eval_await(_WAIT_NANOSECONDS)
        except (RuntimeError, MemoryError) as error:
            raise self._failure(_RUNNING, error) from error
        if sequence.is_running():
            self.settle()
        self.running = None

    def settle(self) -> None:
        """Wait for what is running. Raises DriverError when the driver fails or the device is lost."""
        sequence, begin = self.running, time.monotonic()
        while sequence is not None and sequence.is_running():
            self.call(_RUNNING, lambda: sequence.eval_await(_WAIT_NANOSECONDS))
            if sequence.is_running() and time.monotonic() - begin >= self.timeout:
                raise self._lose(f"{_FAILED} {_RUNNING}: it has not ended within {self.timeout:g} s. Set VKDML_TIMEOUT_SECONDS "
                                 "in the environment to wait longer, or call with fewer steps or rows")
        self.running = None

    def abandon(self) -> None:
        """Let what is running outlive this process's objects: it must not be destroyed, and is not waited for."""
        if self.running is not None and self.running.is_running():
            for used in (self._manager, self.running):
                fork.never_destroy(used)

    def _failure(self, doing: str, error: Exception) -> DriverError:
        """What to raise for what kp raised."""
        text = f"{_FAILED} {doing}: {str(error).strip() or type(error).__name__}"
        if _LOST in text:
            return self._lose(text)
        is_memory = isinstance(error, MemoryError) or any(name in text for name in _OUT_OF_MEMORY)
        return OutOfMemoryError(f"{text}. {_SMALLER}") if is_memory else DriverError(f"{text}. {_UNKNOWN}")

    def _lose(self, reason: str) -> DeviceLostError:
        """From here on nothing on this device can be used."""
        self.lost = (f"{reason}. The device {self._name} is lost, with all that was made on it. vkdml.Device() opens it anew; "
                     "calls that name no Device do so by themselves")
        _log.error("%s", self.lost)
        self.abandon()
        self.running = None
        self.forget()
        return DeviceLostError(self.lost)


class DeviceLock(fork.Lock):
    """Around work on a device.

    Entering waits for what an interrupted call left running, and raises if the device is lost. What other exceptions than
    vkdml's own leave half done is forgotten: those of signals' handlers may come at any place. In a wait nothing is half done.
    Nor where memory runs out, which would be a bad time to compile again.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver

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
            is_half_done = bool(raised) and raised[0] is not None and not issubclass(raised[0], (VkdmlError, MemoryError))
            if is_half_done and self._driver.running is None:
                self._driver.forget()
        finally:
            super().__exit__()
