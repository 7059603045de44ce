"""What sessions and the provider have to hand to each other past onnxruntime, between which it stands.

An exception reaches onnxruntime as a text that ends with a token, by which `original` finds it again. A model's own texts stand
there, too, so no model can know a token.
"""

from __future__ import annotations

import importlib
import re
import secrets
import sys
import threading
import traceback
from typing import Any

import onnxruntime

from ...engine.vulkan.driver import Calls
from ...errors import MissingPackageError, install_line, printable
from ...planning.options import Options
from ..directml.device import Device

PROVIDER = "VkdmlExecutionProvider"
_SINCE = (1, 25)  # onnxruntime's version that knows registered providers by their names
_KEPT = 64  # exceptions that no caller has taken yet

extension: Any = importlib.import_module("._provider", __package__)  # which has no types
_registering = threading.Lock()
_errors: dict[str, BaseException] = {}  # by token
under_way: dict[Any, Any] = {}  # what asynchronous runs will call, with what they are fed
session_calls = Calls()  # of sessions: the process may end once they have come back from C++


class Creation(threading.local):
    """The session of ours that this thread makes. settings: its device and options. made: its providers. errors: its own."""

    settings: tuple[Device | int | str | None, Options] = None, Options()
    made: list[Any] | None = None
    errors: list[BaseException] | None = None


creation = Creation()


def message(error: BaseException) -> str:
    """Return the text with which onnxruntime passes an exception on."""
    linked: BaseException | None = error
    while linked and linked is not sys.exc_info()[1]:  # which the caller handles
        traceback.clear_frames(linked.__traceback__)  # they may have arrays in onnxruntime's memory
        linked = linked.__context__
    text = printable(f"{type(error).__name__}: {error}")
    if creation.errors is not None:
        creation.errors.append(error)
        return text
    token = secrets.token_hex(8)
    _errors[token] = error
    for old in list(_errors)[:-_KEPT]:
        _errors.pop(old, None)
    return f"{text} [vkdml error {token}]"


def original(raised: object) -> BaseException | None:
    """The exception of which onnxruntime's exception or text tells; None where it is onnxruntime's own."""
    found = [_errors.pop(token, None) for token in re.findall(r"\[vkdml error (\w+)\]", str(raised))]
    return next(filter(None, reversed(found)), None)


def register() -> None:
    """Make the provider known to onnxruntime, if it is not. Raises MissingPackageError for an onnxruntime that is too old."""
    if tuple(map(int, re.findall(r"\d+", onnxruntime.__version__)[:2])) < _SINCE:
        raise MissingPackageError(f"vkdml.onnx needs onnxruntime 1.25 or newer; found {onnxruntime.__version__}: "
                                  + install_line("onnx"))
    with _registering:
        if PROVIDER not in onnxruntime.get_available_providers():
            onnxruntime.register_execution_provider_library("vkdml", extension.__file__)
