"""The errors that vkdml raises. For wrong arguments they name the operator, the field, what was found and what is allowed."""

from __future__ import annotations

import re
import reprlib
import traceback
from collections.abc import Callable
from enum import Enum
from importlib.metadata import requires
from importlib.util import find_spec
from typing import TypeVar

T = TypeVar("T")


_FIRST = reprlib.Repr()
_FIRST.maxtuple = _FIRST.maxlist = _FIRST.maxdict = _FIRST.maxset = 16
_FIRST.maxstring = _FIRST.maxother = _FIRST.maxlong = 1000


def shown(value: object, how: Callable[[object], str] = repr) -> str:
    """Write a caller's value for an error message. Long lists are shortened to their first items."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    try:
        return _FIRST.repr(value) if isinstance(value, list | tuple | dict | set) else how(value)
    except Exception:  # the value's own code may raise anything, and so may a number of thousands of digits
        return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """Write characters that could control a terminal, and halves of surrogates, as Python's escapes. Line breaks stay."""
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)


_OURS = "vkdml", "numpy", "contextlib", "concurrent"  # the last two pass on what a `with` block, or a thread, raises


def is_ours(error: BaseException, *others: str) -> bool:
    """Return whether an exception that is handled here comes from vkdml's own code, from extension modules that it calls, or
    from `others`: other packages. If not, a signal's handler or a finalizer raised it in between, whatever its class.
    """
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return all(module.partition(".")[0] in (*_OURS, *others) for module in modules)


def expect_ours(error: BaseException, *others: str) -> None:
    """Raise the exception again unless it `is_ours`."""
    if not is_ours(error, *others):
        raise error


def expect_no_thread(error: RuntimeError) -> None:
    """Raise an exception again unless the system gave no thread. An interrupt of a thread's start may end in another
    exception, of a lock that is not held: the interrupt is raised then.
    """
    expect_ours(error, "threading")
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    if last.f_code.co_name != "start":
        raise error.__context__ or error from None


class VkdmlError(Exception):
    """The base of all errors that vkdml raises."""


class InvalidArgumentError(VkdmlError, ValueError):
    """A descriptor, tensor, attribute or argument that cannot be accepted. Raised before any work."""

    def __init__(self, operator: str, field: str, found: object, expected: str) -> None:
        super().__init__(printable(f"{operator}: {field}: found {shown(found, str)}; expected {expected}"))
        self.operator = operator
        self.field = field
        self._arguments = (operator, field, found, expected)

    def __reduce__(self) -> tuple[type[InvalidArgumentError], tuple[str, str, str, str]]:
        """Keep all fields when pickled, as between processes: by default only the message would be kept."""
        operator, field, found, expected = self._arguments
        return type(self), (operator, field, shown(found, str), expected)

    def _render_traceback_(self) -> list[str]:
        """Write what IPython and notebooks show: the caller's frames and our first, since the mistake is the caller's."""
        frames = []
        for frame, line in traceback.walk_tb(self.__traceback__):
            module = frame.f_globals.get("__name__", "")
            frames += [] if module.startswith("IPython.") else [(frame, line)]
            if module.startswith("vkdml."):
                break
        lines = traceback.StackSummary.extract(iter(frames)).format() + traceback.format_exception_only(self)
        return ["Traceback (most recent call last):", *(line.rstrip() for line in lines)]


def check_type(operator: str, field: str, value: object, *allowed: type[T]) -> T:
    """Return the value. Raises InvalidArgumentError unless it is of one of the allowed classes."""
    if not isinstance(value, allowed):
        found = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise InvalidArgumentError(operator, field, found, " or ".join(cls.__name__ for cls in allowed))
    return value


def check_list(operator: str, field: str, values: object, *allowed: type[T]) -> list[T]:
    """Return the items of a list or tuple. Raises InvalidArgumentError for anything else, and for items of other classes."""
    if not isinstance(values, list | tuple):
        raise InvalidArgumentError(operator, field, type(values).__name__, f"a list of {allowed[0].__name__}")
    return [check_type(operator, f"{field}[{i}]", value, *allowed) for i, value in enumerate(values)]


class TorchArgumentError(InvalidArgumentError, RuntimeError):
    """A wrong call of a PyTorch module or operator, for which PyTorch raises a RuntimeError or a ValueError."""


class FieldError(InvalidArgumentError, TypeError):
    """A structure's field that is misspelled, missing or given twice."""


class DriverError(VkdmlError, RuntimeError):
    """No usable Vulkan loader, driver or device, a failure that the driver reported, or damaged shaders."""


class OutOfMemoryError(DriverError, MemoryError):
    """The device or its driver has no memory left. Smaller calls still work."""


class DeviceLostError(DriverError):
    """The driver lost the device, or did not finish within ten minutes. Everything made on the device is lost too.

    vkdml.Device() opens it again. Functions, layers and sessions that were given no Device do so automatically.
    """


COMPUTES_WRONGLY = "Update its driver or take another device (`vkdml devices`), and report what `vkdml selftest` says"


class VerificationError(DriverError):
    """Results differ from the float64 reference: the driver or the device computes wrongly."""


class MissingPackageError(VkdmlError, ImportError):
    """A package is not installed that this part of vkdml needs."""


def install_line(extra: str) -> str:
    """Write the pip command that installs the packages of one of vkdml's extras, however vkdml was installed: those that are
    missing, or all if none is.
    """
    given = [line.split(";") for line in requires("vkdml") or []]
    wanted = [package for package, *when in given if when == [f' extra == "{extra}"']]
    missing = [package for package in wanted if find_spec(re.split(r"\W", package)[0]) is None]
    return " ".join(["pip install", *(f"'{package}'" for package in missing or wanted)])


class NothingOnDeviceWarning(RuntimeWarning):
    """No part of an ONNX model or a PyTorch module runs on the Vulkan device."""
