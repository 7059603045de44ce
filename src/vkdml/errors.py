"""The family of errors. What is refused is reported with the operator, the field, what was found and what is allowed."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from importlib.metadata import requires
from typing import TypeVar

T = TypeVar("T")


_FIRST = reprlib.Repr()
_FIRST.maxtuple = _FIRST.maxlist = _FIRST.maxdict = _FIRST.maxset = 16
_FIRST.maxstring = _FIRST.maxother = _FIRST.maxlong = 1000


def shown(value: object, how: Callable[[object], str] = repr) -> str:
    """A value of the caller's in an error's message. Of many items the first ones."""
    try:
        return _FIRST.repr(value) if isinstance(value, list | tuple | dict | set) else how(value)
    except Exception:  # raised by the value's own code, or for a number of thousands of digits
        return f"a {type(value).__name__}"


class VkdmlError(Exception):
    """Anything that vkdml refuses or cannot do."""


class InvalidArgumentError(VkdmlError, ValueError):
    """A descriptor, tensor, attribute or argument that cannot be accepted. Raised before any work."""

    def __init__(self, operator: str, field: str, found: object, expected: str) -> None:
        super().__init__(f"{operator}: {field}: found {shown(found, str)}; expected {expected}")
        self.operator = operator
        self.field = field
        self._arguments = (operator, field, found, expected)

    def __reduce__(self) -> tuple[type[InvalidArgumentError], tuple[str, str, str, str]]:
        """Let processes pass it on: by default an exception is made again from its message alone."""
        operator, field, found, expected = self._arguments
        return type(self), (operator, field, shown(found, str), expected)


def check_type(operator: str, field: str, value: object, *allowed: type[T]) -> T:
    """The value. Refuses one of another class than these."""
    if not isinstance(value, allowed):
        raise InvalidArgumentError(operator, field, type(value).__name__, " or ".join(cls.__name__ for cls in allowed))
    return value


def check_list(operator: str, field: str, values: object, *allowed: type[T]) -> list[T]:
    """The items of a list or tuple. Refuses anything else, and an item of another class than these."""
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
    """The driver gave the device up, or did not end within ten minutes. All that was made on it is lost with it.

    vkdml.Device() opens it anew. Functions, layers and sessions that name no Device do so by themselves.
    """


COMPUTES_WRONGLY = "Update its driver or take another device (`vkdml devices`), and report what `vkdml selftest` says"


class VerificationError(DriverError):
    """Results that are not those of the float64 reference: the driver or the device computes wrongly."""


class OnnxRuntimeError(VkdmlError, RuntimeError):
    """onnxruntime could not load or run its part of an ONNX model."""


class MissingPackageError(VkdmlError, ImportError):
    """A face that needs a package that is not installed."""


def install_line(extra: str) -> str:
    """The pip command for the packages of an extra of vkdml. It works however vkdml was installed."""
    given = [line.split(";") for line in requires("vkdml") or []]
    return " ".join(["pip install", *(f"'{package}'" for package, *when in given if when == [f' extra == "{extra}"'])])


class NothingOnDeviceWarning(RuntimeWarning):
    """Nothing of an ONNX model or a PyTorch module runs on the Vulkan device."""
