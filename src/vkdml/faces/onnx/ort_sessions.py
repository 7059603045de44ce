"""onnxruntime's sessions of a model's parts, all with the arguments of the caller's session, and one profile of all nodes.

Source: the events that onnxruntime writes, those of Chrome's trace format; times in microseconds from the profile's start.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state

from ...errors import InvalidArgumentError, shown
from . import graphs
from .ort_values import array_of, of_onnxruntime, switched

PROVIDER = "VkdmlExecutionProvider"
_NAMED = ("sess_options", "providers", "provider_options", "device", "options", "allow_outside", "hide_provider")  # a session's
_OTHERS = ("disabled_optimizers", "enable_fallback", "read_config_from_model")
_HIDES = {"": False, "0": False, "1": True}  # what VKDML_HIDE_PROVIDER may say
_CONFIG = "ORT_LOAD_CONFIG_FROM_MODEL"  # set to 1, onnxruntime takes options from the model's metadata alone
_OF_FRONT = {"optimized_model_filepath": "", "intra_op_num_threads": 1, "inter_op_num_threads": 1}  # it runs nothing
_NO_SIZES = (0,) * 5  # sizes that no real initializer has
_IR_VERSION = 8  # old enough for every onnxruntime

_ERRORS = 3  # onnxruntime's severity


class Arguments:
    """What onnxruntime's sessions take besides the model, checked: raises InvalidArgumentError for what onnxruntime does not
    take. Names of providers are onnxruntime's to judge.

    providers: names with options, without PROVIDER. device: what the options of PROVIDER name. tells_provider: whether the
    session tells of PROVIDER. others: by keyword.
    """

    def __init__(self, sess_options: Any, providers: Any, provider_options: Any, hide_provider: Any, others: Mapping[str, Any]
                 ) -> None:
        if not isinstance(sess_options, onnxruntime.SessionOptions | None):
            raise _wrong("sess_options", type(sess_options).__name__, "a SessionOptions or None")
        for name in others:
            if name not in _OTHERS:
                raise _wrong(name, "an unknown argument", "one of " + ", ".join(_NAMED + _OTHERS))
        if os.environ.get(_CONFIG) == "1":
            raise _wrong(f"{_CONFIG} in the environment", 1, "0 or nothing: sess_options say how to run the model")
        told = os.environ.get("VKDML_HIDE_PROVIDER", "")
        if told not in _HIDES:
            raise _wrong("VKDML_HIDE_PROVIDER in the environment", repr(told), "0 or 1")
        if not isinstance(hide_provider, bool | None):
            raise _wrong("hide_provider", type(hide_provider).__name__, "True, False or None")
        found = _named_providers(providers, provider_options)
        hides = _HIDES[told] if hide_provider is None else hide_provider
        self.tells_provider = not hides or PROVIDER in dict(found)
        own = dict(found).get(PROVIDER, {})
        if not set(own) <= {"device"}:
            raise _wrong(f"options of {PROVIDER}", own, "device alone")
        self.sess_options: onnxruntime.SessionOptions = sess_options or _quiet_options()
        self.providers = [entry for entry in found if entry[0] != PROVIDER]
        self.device: str | None = own.get("device")
        self.others = others


def _wrong(argument: str, found: object, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError("InferenceSession", argument, found, allowed)


def _named_providers(providers: Any, provider_options: Any) -> list[tuple[str, dict[Any, Any]]]:
    """Each provider with its options, which stand beside its name or in provider_options."""
    for argument, value in (("providers", providers), ("provider_options", provider_options)):
        if isinstance(value, str) or not isinstance(value, Sequence | None):
            raise _wrong(argument, type(value).__name__, "a Sequence or None")
    entries = list(providers or ())
    if provider_options is not None:
        if len(entries) != len(provider_options):
            raise _wrong("provider_options", f"{len(provider_options)} entries", f"{len(entries)}, as of providers")
        entries = list(zip(entries, provider_options))
    found = [(entry, {}) if isinstance(entry, str) else entry for entry in entries]
    for entry in found:
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], dict)):
            raise _wrong("providers", shown(entry), "names, or names with dictionaries of options")
    return found


def expect_known(call: str, providers: Any, provider_options: Any) -> None:
    """Refuses names of providers that onnxruntime does not have in any build."""
    known = [PROVIDER, *onnxruntime.get_all_providers()]
    for name, _ in _named_providers(providers, provider_options):
        if name not in known:
            raise InvalidArgumentError(call, "providers", shown(name), "one of " + ", ".join(known))


def _quiet_options() -> onnxruntime.SessionOptions:
    """Options without spinning: threads that spin between pieces would keep the cores from a CPU driver and each other."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def has_adapter(run_options: onnxruntime.RunOptions) -> bool:
    """Whether the options have a LoRA adapter, whose weights onnxruntime takes for inputs of each session run with them."""
    try:
        _without_inputs().run(None, {}, run_options)
    except onnxruntime_pybind11_state.InvalidArgument:
        return True
    except onnxruntime_pybind11_state.Fail:  # their terminate flag ends every run
        pass
    return False


@cache
def _without_inputs() -> onnxruntime.InferenceSession:
    graph = helper.make_graph([], "none", [], [helper.make_tensor_value_info("none", TensorProto.FLOAT, [])],
                              [numpy_helper.from_array(np.float32(0), "none")])
    options = _quiet_options()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(_probe(graph), options, ["CPUExecutionProvider"])


def _probe(graph: GraphProto) -> bytes:
    """A model of nothing but initializers, which says what onnxruntime makes of options."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=_IR_VERSION)
    return bytes(model.SerializeToString())


class OrtSessions:
    """Opens onnxruntime's sessions of a model's parts.

    front: a session of the model's inputs, without its nodes. It gets the arguments as they are, so that onnxruntime judges
        them, and warns of them, once; the parts get what it made of them.
    profile: None unless the options enable profiling.
    """

    def __init__(self, model: ModelProto, arguments: Arguments) -> None:
        self._options = options = arguments.sess_options
        # -1: left to the process. Warnings of single parts say little about the model
        self._severity = _ERRORS if options.log_severity_level < 0 else options.log_severity_level
        self._given = {name: getattr(options, name) for name in _OF_FRONT}
        self._others = dict(arguments.others)
        self._parts: WeakSet[onnxruntime.InferenceSession] = WeakSet()
        self._numbers = count()
        self._providers = arguments.providers
        if not (self._providers or getattr(options, "has_providers", bool)()):
            self._providers = [("CPUExecutionProvider", {})]
        self.front = self._session(_front(model), **_OF_FRONT)
        self._providers = list(self.front.get_provider_options().items()) if self._providers else []
        self.profile = Profile(self.front) if options.enable_profiling else None
        if self.profile:
            weakref.finalize(self, self.profile.end)

    def _session(self, model: str | os.PathLike[str] | bytes, **values: Any) -> onnxruntime.InferenceSession:
        """A session of a model, with these values in the options."""
        with switched(self._options, **values):
            return of_onnxruntime(onnxruntime.InferenceSession, model, self._options, self._providers, **self._others)

    def open(self, serialized: bytes) -> onnxruntime.InferenceSession:
        """Open a session of a part of the model."""
        part = self._session(serialized, optimized_model_filepath="", enable_profiling=self.profile is not None,
                             profile_file_prefix=f"{self._options.profile_file_prefix}_part{next(self._numbers)}",
                             log_severity_level=self._severity)
        self._parts.add(part)
        if self.profile:
            self.profile.parts.append(part)
        return part

    def applied(self, model: ModelProto) -> ModelProto:
        """The model, or a copy with what the options have in the place of its own: sizes of inputs, and initializers."""
        shapes = {arg.name: arg.shape for arg in self.front.get_inputs()}
        fixed = [(place, axis, size) for place, value in enumerate(model.graph.input)
                 for axis, (dim, size) in enumerate(zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ())))
                 if isinstance(size, int) and not dim.HasField("dim_value")]
        given = self._given_initializers({tensor.name: tensor.data_type for tensor in graphs.initializers(model.graph)})
        if not fixed and not given:
            return model
        copied = ModelProto()
        copied.CopyFrom(model)
        for place, axis, size in fixed:
            copied.graph.input[place].type.tensor_type.shape.dim[axis].dim_value = size
        for tensor in graphs.initializers(copied.graph):
            if tensor.name in given:
                array = given[tensor.name]
                dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
                if (array.dtype, array.shape) != (dtype, shape):
                    raise _wrong("sess_options", f"{array.dtype} {array.shape} for the initializer {tensor.name!r}",
                                 f"{dtype} {shape}, as the model has it")
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        return copied

    def _given_initializers(self, kinds: Mapping[str, int]) -> dict[str, np.ndarray]:
        """What the options have in the place of a model's initializers. kinds: the types of all of them, by name."""
        if not kinds:
            return {}
        graph = helper.make_graph(
            [], "initializers", [], [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
            [TensorProto(name=name, data_type=kind, dims=_NO_SIZES) for name, kind in kinds.items()])
        session = self._session(_probe(graph), **_OF_FRONT, enable_profiling=False)
        values = of_onnxruntime(session.run_with_ort_values, None, {})
        return {name: of_onnxruntime(array_of, value) for name, value in zip(kinds, values) if value.shape() != list(_NO_SIZES)}

    def write_optimized(self, source: Any) -> None:
        """Have onnxruntime write the optimized model that the options ask for: it does when it loads the whole model.

        source: the model's file, its bytes, or a ModelProto.
        """
        if self._options.optimized_model_filepath:
            self._session(source.SerializeToString() if isinstance(source, ModelProto) else source, enable_profiling=False)

    def set_fallback(self, is_enabled: bool) -> None:
        """Set whether the CPU runs parts that a provider fails to run."""
        self._others["enable_fallback"] = is_enabled
        for part in self._parts:
            part.enable_fallback() if is_enabled else part.disable_fallback()

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        for session in (self.front, *self._parts):
            of_onnxruntime(session.set_ep_dynamic_options, options)

    def session_options(self) -> onnxruntime.SessionOptions:
        """A copy, as onnxruntime's sessions have one."""
        options = self.front.get_session_options()
        for name, value in self._given.items():
            setattr(options, name, value)
        return options

    def timed(self, node: NodeProto) -> AbstractContextManager[None]:
        """Time a run of a recurrent node for the profile."""
        return self.profile.node(node.name or node.op_type, node.op_type, PROVIDER) if self.profile else nullcontext()


def _front(model: ModelProto) -> bytes:
    """A model with as many outputs, all constants: onnxruntime says of their memory what it says of the model's."""
    constants = {tensor.name for tensor in model.graph.initializer}
    outputs = [f"{output.name}/constant" for output in model.graph.output]
    graph = helper.make_graph(
        [], model.graph.name, [value for value in model.graph.input if value.name not in constants],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in outputs],
        [numpy_helper.from_array(np.float32(0), name) for name in outputs])
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(4, model.ir_version)).SerializeToString()


class Profile:
    """A profile while it is written. front: the session that names the file."""

    def __init__(self, front: onnxruntime.InferenceSession) -> None:
        self._front = front
        self.parts: list[onnxruntime.InferenceSession] = []
        self._nodes: list[dict[str, Any]] = []
        self._folder = Path.cwd()  # onnxruntime has opened its files there
        self._start = start = front.get_profiling_start_time_ns()
        # The start is by one of these clocks: the one in onnxruntime's documentation, or the other from libstdc++
        self._clock = min((time.monotonic_ns, time.time_ns), key=lambda clock: abs(clock() - start))

    @contextmanager
    def node(self, name: str, op_type: str, provider: str) -> Iterator[None]:
        """Time a run of a node that onnxruntime does not know of."""
        begin = self._clock()
        yield
        end = self._clock()
        self._nodes.append({
            "cat": "Node", "pid": os.getpid(), "tid": threading.get_native_id(), "dur": (end - begin) // 1000,
            "ts": (begin - self._start) // 1000, "ph": "X", "name": f"{name}_kernel_time",
            "args": {"op_name": op_type, "provider": provider}})

    def end(self) -> str:
        """Write the file. Returns its name; "" if it is written already."""
        name = self._front.end_profiling()
        if not name:
            return ""
        path = self._folder / name
        events = json.loads(path.read_text()) + self._nodes
        for part in self.parts:
            later = (part.get_profiling_start_time_ns() - self._start) // 1000
            file = self._folder / part.end_profiling()
            events += [{**event, "ts": event["ts"] + later} for event in json.loads(file.read_text())]
            file.unlink()
        lines = map(json.dumps, sorted(events, key=lambda event: event["ts"]))
        path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
        return name
