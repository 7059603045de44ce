"""onnxruntime's InferenceSession, with recurrent nodes on a Vulkan device unless its providers say otherwise."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from inspect import signature
from typing import Any
from weakref import WeakSet

import ml_dtypes
import numpy as np
import onnxruntime

from ...engine.vulkan.gpu import select_device
from ...engine.vulkan.system import Closing
from ...errors import InvalidArgumentError, NothingOnDeviceWarning
from ...operators.problem import Problem
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import open_device, shapes_to_warm_up
from .assignment import DEVICE, Assignment
from .exchange import PROVIDER, creation, original, register, session_calls, under_way
from .session_streams import SessionStream

_CPU = "CPUExecutionProvider"
_BOTH = [PROVIDER, _CPU]
_BFLOAT16 = 16  # ONNX's number of the type
_ERRORS = 3  # onnxruntime's severity
_REASONS = 8  # most notes of an exception
_FURTHER = "disabled_optimizers", "enable_fallback", "read_config_from_model"  # onnxruntime ignores other names

_log = logging.getLogger(__name__)


def _raising(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of onnxruntime's: in sessions of ours and of `prefer`, it raises our exceptions as they were raised."""
    @wraps(method)
    def call(session: Any, *arguments: Any, **named: Any) -> Any:
        if "_provider" not in vars(session):
            return method(session, *arguments, **named)
        with session_calls:
            try:
                return method(session, *arguments, **named)
            except Exception as error:
                raise (original(error) or error) from None
    return call


@contextmanager
def _creating(session: Any, device: Device | int | str | None = None, options: Options = Options()) -> Iterator[None]:
    """Let a session that onnxruntime makes here take our arguments and keep its provider. Raises the provider's errors."""
    register()  # again, if onnxruntime was asked to forget it
    made: list[Any] = []
    errors: list[BaseException] = []
    creation.settings, creation.made, creation.errors = (device, options), made, errors
    try:
        yield
    except Exception as error:
        for line in [line for provider in made for line in Assignment("", provider.assigned).refused][:_REASONS]:
            error.add_note(f"not on the device: {line}")  # perhaps onnxruntime cannot run this node either
        if not errors:
            raise
    finally:
        creation.settings, creation.made, creation.errors = (None, Options()), None, None
    if errors:  # onnxruntime may have gone on with the CPU
        raise errors[0]
    session._provider = made[-1] if PROVIDER in session.get_providers() else None
    if session._provider is None and device is not None:
        raise InvalidArgumentError("InferenceSession", "providers", session.get_providers(), f"{PROVIDER} among them")


def _tell(session: Any) -> None:
    """Log how much of a new session runs on the device, and warn its maker if nothing does."""
    found, names = InferenceSession.assignment(session), session.get_providers()
    _log.info("loaded a model: %s", found.headline)
    if found.on(DEVICE):
        _on_device.add(session)
    elif session._provider and (not _on_device or _CPU in names[:names.index(PROVIDER)]):
        reasons = [*found.refused, f"of {len(found.nodes)} nodes none is a GRU, LSTM or RNN"]
        warnings.warn(f"nothing runs on the Vulkan device: {reasons[0]}; `vkdml explain` and assignment() say more",
                      NothingOnDeviceWarning, stacklevel=3)


def _named(providers: Any, provider_options: Any, before_cpu: bool = False) -> tuple[Any, Any]:
    """Return copies of both arguments as one list, our provider with device for device_id, of which onnxruntime takes 0 alone.

    before_cpu: put our provider right before the CPU. Wrong arguments are returned as they are: onnxruntime refuses them.
    """
    try:
        pairs = zip(providers, provider_options, strict=True) if provider_options is not None else [
            one if isinstance(one, tuple) else (one, {}) for one in providers]
        entries = [(name, dict(options)) for name, options in pairs]
        own = dict(reversed(entries)).get(PROVIDER, {})  # the first one's
    except (TypeError, ValueError):
        return providers, provider_options
    names = [name for name, _ in entries]
    if "device_id" in own:
        own.setdefault("device", own.pop("device_id"))
    end = names.index(_CPU) if _CPU in names else len(names)
    if before_cpu and PROVIDER not in names[:end]:
        entries = [*entries[:end], (PROVIDER, own), *(entry for entry in entries[end:] if entry[0] != PROVIDER)]
    return entries, None


class InferenceSession(Closing, onnxruntime.InferenceSession):
    """onnxruntime.InferenceSession. GRU, LSTM and RNN nodes run on a Vulkan device, and all other nodes in onnxruntime.

    Shapes may change from call to call: lengths and batches of about the same size share what is compiled. Sessions of one
    model share all of it. A session can be pickled and copied where sess_options were left out: another process loads the model
    again, from the same path, or the bytes, on the device that was given, or on its own default.

    Args:
        path_or_bytes: what onnxruntime takes; or a bytearray, or an onnx.ModelProto.
        sess_options: onnxruntime.SessionOptions. Without any, onnxruntime's threads sleep where they have nothing to do, and
            warnings are not logged.
        providers, provider_options: onnxruntime's execution providers; without any, VkdmlExecutionProvider and the CPU. A list
            or sess_options with others, without it among them, mean: not on the device.
        device: a Device, or an argument of Device(); else the provider's option "device".
        options: what to force in the plans of the recurrent nodes.
        others: onnxruntime's further arguments: disabled_optimizers, enable_fallback, read_config_from_model.

    Raises InvalidArgumentError for a wrong device or option of the provider, DriverError where there is no device, and what
    onnxruntime raises where it cannot load the model.

    Warns with a NothingOnDeviceWarning where the session has the provider, and no node of the model runs on the device, nor of
    any other session there is; or where the CPU stands before the provider in the list.
    """

    def __init__(self, path_or_bytes: Any, sess_options: onnxruntime.SessionOptions | None = None,
                 providers: Sequence[Any] | None = None, provider_options: Sequence[dict[Any, Any]] | None = None, *,
                 device: Device | int | str | None = None, options: Options = Options(), **others: Any) -> None:
        if not isinstance(options, Options):
            raise InvalidArgumentError("InferenceSession", "options", type(options).__name__, "vkdml.Options")
        for name in others.keys() - set(_FURTHER):
            warnings.warn(f"InferenceSession ignores {name}, as onnxruntime does", stacklevel=2)
        source = path_or_bytes.SerializeToString() if hasattr(path_or_bytes, "SerializeToString") else path_or_bytes
        source = bytes(source) if isinstance(source, bytearray) else source
        path = os.path.abspath(source) if isinstance(source, str | os.PathLike) else source
        self._given = path, *_named(providers, provider_options), {"device": device, "options": options, **others}
        self._has_options = sess_options is not None
        if sess_options is None:
            sess_options = onnxruntime.SessionOptions()
            sess_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            sess_options.log_severity_level = _ERRORS
        are_left_out = providers is None and not sess_options.has_providers()
        with _creating(self, device, options):
            super().__init__(source, sess_options, *((_BOTH, None) if are_left_out else self._given[1:3]), **others)
        self._has_bfloat16 = any("bfloat16" in arg.type for arg in (*self.get_inputs(), *self.get_outputs()))
        self._base = {*vars(self), "_base"}  # a subclass adds others
        _tell(self)

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Sequence[dict[Any, Any]] | None = None
                      ) -> None:
        """Load the model again, with other providers. The file must still be there."""
        self._given = self._given[0], *_named(providers, provider_options), self._given[3]
        with _creating(self, self._given[3]["device"], self._given[3]["options"]):
            super().set_providers(*_named(self._given[1] or _BOTH, self._given[2]))

    def __getstate__(self) -> dict[str, Any]:
        self._expect_open()
        if self._has_options:
            raise InvalidArgumentError("InferenceSession", "pickle", "a session with sess_options, which cannot be pickled",
                                       "one without; or make the session in each process")
        return {"given": self._given, "own": {name: value for name, value in vars(self).items() if name not in self._base}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        source, providers, provider_options, others = state["given"]
        InferenceSession.__init__(self, source, None, providers, provider_options, **others)
        self.__dict__.update(state["own"])

    @property
    def device(self) -> Device:
        """The device of the recurrent nodes: another one after it was lost, unless the caller named a Device."""
        return open_device("InferenceSession", self._expect_provider("device").given_device)

    def _expect_provider(self, call: str) -> Any:
        if self._provider is None:
            raise InvalidArgumentError("InferenceSession", call, f"providers without {PROVIDER}", "a session with it")
        return self._provider

    def assignment(self) -> Assignment:
        """Which nodes run on the device and which in onnxruntime: print(session.assignment()) shows a table."""
        provider = self._provider
        return Assignment(provider.device.info.name, provider.assigned) if provider else Assignment("", ())

    run_with_iobinding = _raising(onnxruntime.InferenceSession.run_with_iobinding)
    run_with_ort_values = _raising(onnxruntime.InferenceSession.run_with_ort_values)
    run_with_ortvaluevector = _raising(onnxruntime.InferenceSession.run_with_ortvaluevector)
    _run = _raising(onnxruntime.InferenceSession.run)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
            run_options: onnxruntime.RunOptions | None = None) -> list[Any]:
        """onnxruntime's run; arrays of bfloat16 go in and out, too.

        Raises InvalidArgumentError, which names the node, for an array that a recurrent node cannot take; DriverError where the
        driver fails; and what onnxruntime raises.
        """
        if not self._has_bfloat16:
            return self._run(output_names, input_feed, run_options)
        values = {name: _ort_value(value) for name, value in input_feed.items()}
        return [_array(value) for value in self.run_with_ort_values(output_names, values, run_options)]

    def run_async(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], callback: Callable[..., None],
                  user_data: Any, run_options: onnxruntime.RunOptions | None = None) -> None:
        """onnxruntime's run_async. Where the device's nodes failed, `callback` gets the exception in the place of a text."""
        def called(results: Any, data: Any, error: str) -> None:
            try:
                callback(results, data, original(error) or error)
            finally:
                under_way.pop(called, None)

        under_way[called] = feed = dict(input_feed)  # the run sees the arrays until it has ended
        try:
            super().run_async(output_names, feed, called, user_data, run_options)
        except BaseException:
            del under_way[called]
            raise

    def warm_up(self, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1) -> None:
        """Pack weights and compile all that the recurrent nodes need for these lengths and batches: runs compile nothing then.

        Nodes in bodies are among them; nodes whose weights are fed or computed from what is fed are not. Lengths and batches of
        about the same size share what is compiled, so a few of them are enough for a range.

        T: time steps as the recurrent nodes get them: a number, or several, such as range(10, 200, 10). B: batch rows:
        likewise. Each length is prepared with each batch size.

        Raises InvalidArgumentError for no T, no whole number from 1, or a node that cannot have these sizes, and DriverError.
        """
        for t, b in shapes_to_warm_up("InferenceSession", T, B):
            for run in self._expect_provider("warm_up").runs:
                run.warm_up(t, b)

    def explain(self, T: int | None = None, B: int | None = None) -> dict[str, list[Problem]]:
        """What the recurrent nodes on the device compute, by what errors call the nodes.

        Without T and B: what they computed in the runs so far, each of the last few sizes once. With T or B, or before a run:
        for T time steps and B batch rows; where one is left out, for what the model's own shapes say, or else 1. Nothing for a
        node whose weights are fed, or computed from what is fed. Raises InvalidArgumentError as warm_up does.
        """
        shapes_to_warm_up("InferenceSession", 1 if T is None else T, 1 if B is None else B)
        recurrent = self._expect_provider("explain").recurrent()
        found = {name: run.problems(node) for name, (run, node) in recurrent.items()}
        if T is None and B is None and any(found.values()):
            return found
        return {name: [problem] if (problem := node.problem(T, B)) else [] for name, (_, node) in recurrent.items()}

    def stream(self, carried: Mapping[str, str], output_names: Sequence[str] | None = None) -> SessionStream:
        """Return a stream: its steps run the model, and each hands values on to the next, as for sound that comes in pieces.

        carried: for each output that is handed on, the input that it becomes: {"h_out": "h_in"}. At first these inputs are
        zeros, and sizes that the model does not declare are 1; see SessionStream.state. output_names: the outputs to return; if
        None, all that are not handed on.

        Raises InvalidArgumentError for an unknown name, or an output and an input that are not tensors of numbers of one type.
        """
        return SessionStream(self, carried, output_names)


_on_device: WeakSet[onnxruntime.InferenceSession] = WeakSet()  # of which something runs there
_uses: set[ExitStack] = set()  # of `prefer` that have not been undone


def _ort_value(value: Any) -> onnxruntime.OrtValue:
    """An OrtValue in an array's memory."""
    if isinstance(value, np.ndarray) and value.dtype == ml_dtypes.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(value).view(np.uint16), _BFLOAT16)
    return value if isinstance(value, onnxruntime.OrtValue) else onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(value))


def _array(value: onnxruntime.OrtValue) -> np.ndarray:
    """The array of an OrtValue."""
    if value.element_type() != _BFLOAT16:
        return value.numpy()
    memory: Any = (ctypes.c_char * (math.prod(value.shape()) * 2)).from_address(value.data_ptr())
    return np.frombuffer(memory, ml_dtypes.bfloat16).reshape(value.shape()).copy()


# Sessions of other packages

def get_available_providers() -> list[str]:
    """onnxruntime's list, with VkdmlExecutionProvider first, as sessions prefer the first provider that can run a node."""
    return sorted(onnxruntime.get_available_providers(), key=lambda name: name != PROVIDER)


def prefer() -> ExitStack:
    """Make every onnxruntime.InferenceSession of this process prefer the Vulkan device to the CPU, also those of packages.

    New sessions have VkdmlExecutionProvider right before the CPU, whatever providers they are given. Providers before the CPU
    stay there, and sess_options that choose another provider than the CPU are left alone, as are sessions of
    vkdml.onnx.InferenceSession. Where the device fails, vkdml's exceptions are raised, and onnxruntime does not fall back.

    Returns what undoes this call, by close() or at the end of a `with` block; sessions prefer the device until all calls are
    undone. Threads may call it. Raises DriverError if there is no device.
    """
    select_device(None)
    _patch()
    undo = ExitStack()
    undo.callback(_uses.discard, undo)
    _uses.add(undo)
    return undo


@cache
def _patch() -> None:
    """Change onnxruntime's class itself, once: packages may have imported it already, or have subclasses of it."""
    for name in ("__init__", "set_providers"):
        setattr(onnxruntime.InferenceSession, name, _preferring(getattr(onnxruntime.InferenceSession, name)))
    for name in ("run", "run_with_iobinding", "run_with_ort_values", "run_with_ortvaluevector"):
        setattr(onnxruntime.InferenceSession, name, _raising(getattr(onnxruntime.InferenceSession, name)))


def _preferring(method: Callable[..., None]) -> Callable[..., None]:
    """A method of onnxruntime's that makes a session, with our provider before the CPU where `prefer` is in use."""
    parameters = signature(method)

    @wraps(method)
    def call(session: Any, *arguments: Any, **named: Any) -> None:
        if not _uses or creation.made is not None:  # which a session of ours has
            return method(session, *arguments, **named)
        bound = parameters.bind(session, *arguments, **named)
        given = bound.arguments
        options = given.get("sess_options")
        is_chosen = not given.get("providers") and isinstance(options, onnxruntime.SessionOptions) and options.has_providers()
        if not is_chosen:
            given["providers"], given["provider_options"] = _named(
                given.get("providers") or [_CPU], given.get("provider_options"), before_cpu=True)
        with _creating(session):
            method(*bound.args, **bound.kwargs)
            if is_chosen and session.get_providers()[0] == _CPU:
                session.set_providers(*_named(session.get_providers(), None, before_cpu=True))
        _tell(session)
    return call
