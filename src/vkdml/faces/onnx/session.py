"""Whole models, with the interface of onnxruntime.InferenceSession."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, NoReturn
from weakref import WeakSet

import onnxruntime
from onnx import ModelProto
from onnxruntime.capi.onnxruntime_pybind11_state import OrtDevice, OrtValueVector

from ...engine.vulkan.store import Recent
from ...engine.vulkan.system import Closing, Lock
from ...errors import InvalidArgumentError, NothingOnDeviceWarning, OnnxRuntimeError
from ...operators.problem import Problem
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import open_device, shapes_to_warm_up
from . import models
from .assignment import DEVICE, Assignment
from .feeds import Inputs, IOBinding, NodeArg, expect_names, own
from .ort_sessions import PROVIDER, Arguments, OrtSessions, expect_known, has_adapter
from .ort_values import ort_value, write
from .programs import Program
from .session_streams import SessionStream
from .steps import Context, RecurrentStep, RunOptions, Scope

# Members that are onnxruntime's; a version of it has more of them than another
_ONNXRUNTIMES = ("create_ortvalue_from_shape_and_type", "get_input_epdevices", "get_input_memory_infos",
                 "get_output_memory_infos", "get_tuning_results", "release_captured_graph", "set_tuning_results")

_OVERRIDABLE_SINCE = 4  # the version of ONNX's files from which on an initializer may be an input's default
_OVERRIDDEN_KEPT = 2  # programs for initializers that are fed

_log = logging.getLogger(__name__)


class InferenceSession(Closing):
    """A model whose GRU, LSTM and RNN nodes run on a Vulkan device, and all other nodes in onnxruntime on the CPU.

    Recurrent nodes may be at the top level, in the bodies of If, Loop and Scan, and in functions. The graph is divided once, at
    load. Constant weights are packed once: initializers, constants, and what is computed from these. Shapes may change from
    call to call: lengths and batches of about the same size share what is compiled. Sessions of one model share all of it.

    A session of a path or of bytes can be pickled where sess_options were left out: another process loads the model again, from
    the same path, or the bytes. It opens the device that was given: the same, if a Device was, or its own default.

    Args:
        path_or_bytes: a model's file (with its external data beside it), its bytes, or a ModelProto.
        sess_options: onnxruntime.SessionOptions for the nodes that onnxruntime runs.
        providers, provider_options: onnxruntime's execution providers for these nodes; the CPU if left out. PROVIDER is one of
            them anyway; its option "device" is the argument device.
        device: a Device, or an argument of Device().
        options: what to force in the plans of the recurrent nodes.
        allow_outside: whether a model's external data may be outside of its folder, also by links. For models that you trust.
        hide_provider: whether get_providers and get_provider_options leave PROVIDER out unless `providers` names it. For
            programs that compare them with what they asked for. By default what VKDML_HIDE_PROVIDER in the environment says.
        others: onnxruntime's disabled_optimizers and enable_fallback; also its read_config_from_model, which does nothing.

    Raises:
        InvalidArgumentError: no ONNX model; or a recurrent node with wrong attributes, or in a body of an operator other than
            If, Loop and Scan: the message names the node.
        OnnxRuntimeError: onnxruntime cannot load its part of the model; its message names the node.
        DriverError: no device.

    Warns with a NothingOnDeviceWarning where no node of the model runs on the device, nor of any other session there is.
    """

    def __init__(self, path_or_bytes: models.Source | bytearray,
                 sess_options: onnxruntime.SessionOptions | None = None, providers: Sequence[Any] | None = None,
                 provider_options: Sequence[dict[Any, Any]] | None = None, *,
                 device: Device | int | str | None = None, options: Options = Options(), allow_outside: bool = False,
                 hide_provider: bool | None = None, **others: Any) -> None:
        source = bytes(path_or_bytes) if isinstance(path_or_bytes, bytearray) else path_or_bytes
        arguments = Arguments(sess_options, providers, provider_options, hide_provider, others)
        self._tells_provider = arguments.tells_provider
        self._device = arguments.device if device is None else device
        opened = open_device("InferenceSession", self._device)
        read = models.load(source, allow_outside)
        self._args, self._outputs = models.described(read, arguments.sess_options)
        self._ort = OrtSessions(read, arguments)
        model = self._ort.applied(read) if sess_options is not None else read
        if model is not read:
            self._args, self._outputs = models.described(model, arguments.sess_options)
        self._metadata = models.ModelMetadata.of(model)
        constants = {tensor.name for tensor in model.graph.initializer}
        self._overridable = [self._args[value.name] for value in model.graph.input
                             if value.name in constants and model.ir_version >= _OVERRIDABLE_SINCE]
        self._model = model if self._overridable else ModelProto()  # whose weights need not stay
        self._overridden: Recent[tuple[Program, Inputs]] = Recent(_OVERRIDDEN_KEPT)
        self._lock = Lock()
        self._context = Context(model.opset_import, model.ir_version, self._device, options, self._ort)
        self._program, self._inputs = self._made(model)
        self._assignment = Assignment(opened.info.name, tuple(self._program.assigned))
        self._ort.write_optimized(source)
        source = os.path.abspath(source) if isinstance(source, str | os.PathLike) else source
        self._given = source, sess_options, providers, provider_options
        self._keywords: dict[str, Any] = {"device": device, "options": options, "allow_outside": allow_outside,
                                          "hide_provider": hide_provider, **others}
        _log.info("loaded %r: %s", self._metadata.graph_name, self._assignment.headline)
        if self._assignment.on(DEVICE):
            _on_device.add(self)
        elif not _on_device:
            warnings.warn(f"nothing runs on the Vulkan device: of {len(self._assignment.nodes)} nodes none is ONNX's GRU, LSTM "
                          "or RNN; see session.assignment()", NothingOnDeviceWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        source, sess_options, *others = self._given
        if sess_options is not None:
            raise InvalidArgumentError("InferenceSession", "pickle", "a session with sess_options, which cannot be pickled",
                                       "one without; or make the session in each process")
        self._expect_source("InferenceSession", "pickle")
        return partial(type(self), **self._keywords), (source, None, *others)

    def _expect_source(self, call: str, field: str) -> None:
        if isinstance(self._given[0], ModelProto):
            raise InvalidArgumentError(call, field, "one of a ModelProto, which may have changed since",
                                       "one of a path or of bytes: model.SerializeToString()")

    def _made(self, model: ModelProto) -> tuple[Program, Inputs]:
        graph = models.inferred(model).graph
        constants: Collection[str] = {tensor.name for tensor in graph.initializer}
        inputs = {value.name: value for value in graph.input if value.name not in constants}
        types = {name: value.type for name, value in inputs.items()}
        return Program(graph, self._context, Scope({}, {}), types), Inputs(list(inputs.values()), self._args)

    @property
    def device(self) -> Device:
        """The device of the recurrent nodes: another one after it was lost, unless the caller named a Device."""
        return open_device("InferenceSession", self._device)

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed: those without an initializer."""
        return list(self._inputs.args)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that are inputs as well, from version 4 of ONNX's files on. A run to which some are fed uses a
        program of its own, which is made by the first such run and kept.
        """
        return list(self._overridable)

    def get_providers(self) -> list[str]:
        """What runs the nodes: PROVIDER the recurrent ones, unless it is hidden, and onnxruntime's execution providers the
        others.
        """
        return list(self.get_provider_options())

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options by provider; that of PROVIDER is the device."""
        ours = {PROVIDER: {"device": self.device.info.name}} if self._tells_provider else {}
        return {**ours, **self._ort.front.get_provider_options()}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Sequence[dict[Any, Any]] | None = None
                      ) -> None:
        """Load the model again, with other providers for the nodes that onnxruntime runs. The file must still be there."""
        source, sess_options, *_ = self._given
        self._expect_source("set_providers", "session")
        expect_known("set_providers", providers, provider_options)
        made = InferenceSession(source, sess_options, providers, provider_options, **self._keywords)
        self.__dict__.update(vars(made))  # all at once, and not where it failed

    def enable_fallback(self) -> None:
        """Have the CPU run what another of onnxruntime's providers fails to run, as it does at first."""
        self._ort.set_fallback(True)

    def disable_fallback(self) -> None:
        self._ort.set_fallback(False)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Set options of onnxruntime's providers."""
        self._ort.set_ep_dynamic_options(options)

    def get_session_options(self) -> onnxruntime.SessionOptions:
        """A copy, as onnxruntime's sessions have one."""
        return self._ort.session_options()

    def get_profiling_start_time_ns(self) -> int:
        """Start of the profile as onnxruntime has it, time.time_ns() on Linux; 0 where the options do not enable profiling."""
        return self._ort.front.get_profiling_start_time_ns()

    def end_profiling(self) -> str:
        """Write one file of what all nodes took, and return its name; "" where the options do not enable profiling."""
        profile = self._ort.profile
        return profile.end() if profile else ""

    def get_provider_graph_assignment_info(self) -> NoReturn:
        """Refused: onnxruntime's objects cannot tell of nodes that it does not run. `assignment` says it of all."""
        raise InvalidArgumentError("InferenceSession", "get_provider_graph_assignment_info", "a call", "assignment()")

    def __getattr__(self, name: str) -> Any:
        """What is onnxruntime's alone to say or to make, for all parts of the model."""
        return getattr(self._ort.front, name) if name in _ONNXRUNTIMES else self._missing(name)

    def get_modelmeta(self) -> models.ModelMetadata:
        return self._metadata

    def assignment(self) -> Assignment:
        """Which nodes run on the device and which elsewhere: print(session.assignment()) shows a table."""
        return self._assignment

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions = None
            ) -> list[Any]:
        """Run the model.

        Args:
            output_names: the outputs to return, in this order; all of them if None or empty.
            input_feed: an array for each input, by name, or a list or number that its type holds; a list for a sequence, None
                for an empty optional.
            run_options: onnxruntime.RunOptions for the nodes that onnxruntime runs.

        Returns:
            The outputs: arrays, or lists for sequences.

        Raises:
            InvalidArgumentError: a missing or unknown name, or an array that the model or a recurrent node cannot take; the
                message names it.
            OnnxRuntimeError: onnxruntime refused its inputs or failed.
            DriverError: the driver failed.
        """
        return self._prepared("run", output_names, input_feed, run_options)()

    def run_with_ort_values(self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, onnxruntime.OrtValue],
                            run_options: RunOptions = None) -> list[onnxruntime.OrtValue]:
        """`run`, with OrtValues in and out, on the CPU. Raises what `run` raises."""
        return [ort_value(result) for result in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that are bound before `run_with_iobinding`, all in the CPU's memory."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions = None) -> None:
        """`run` with what is bound. Raises what `run` raises."""
        if not isinstance(iobinding, IOBinding):
            raise InvalidArgumentError("run_with_iobinding", "iobinding", type(iobinding).__name__, "what io_binding returns")
        if iobinding.session is not self:
            raise InvalidArgumentError("run_with_iobinding", "iobinding", "another session's", "this session's")
        iobinding.run(run_options)

    def run_with_ortvaluevector(self, run_options: RunOptions, feed_names: Sequence[str], feeds: OrtValueVector,
                                fetch_names: Sequence[str], fetches: OrtValueVector, fetch_devices: Sequence[OrtDevice]
                                ) -> None:
        """`run`, with vectors of OrtValues in and out, on the CPU. Results are written to the memory of fetches, or added to
        them if they are empty. Raises what `run` raises.
        """
        if any(device.device_type() != OrtDevice.cpu() for device in fetch_devices):
            raise InvalidArgumentError("run_with_ortvaluevector", "fetch_devices", "another device", "the CPU alone")
        feed = dict(zip(feed_names, map(onnxruntime.OrtValue, feeds)))
        results = self.run(fetch_names, feed, run_options)
        if len(fetches) not in (0, len(results)):
            raise InvalidArgumentError("run_with_ortvaluevector", "fetches", len(fetches), f"none or {len(results)} of them")
        for place, (result, fetched) in enumerate(zip(results, map(onnxruntime.OrtValue, fetches))):
            write("run_with_ortvaluevector", f"fetches[{place}]", fetched, result)
        for result in results[len(fetches):]:
            fetches.push_back(ort_value(result)._get_c_value())

    def run_async(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
                  callback: Callable[[list[Any], Any, str], None], user_data: Any, run_options: RunOptions = None) -> None:
        """Run the model in a thread of its own, and return at once.

        Args:
            output_names, input_feed: as `run` has them. The arrays must not change until the run has ended.
            callback: is called in that thread with the outputs, user_data and "". Where the run failed, with an empty list,
                user_data and what was wrong.
            user_data: any object.
            run_options: as `run` has them.

        Raises:
            InvalidArgumentError: a missing or unknown name, or an array of another type or shape than the model declares.
        """
        if not callable(callback):
            raise InvalidArgumentError("run_async", "callback", type(callback).__name__, "a function")
        run = self._prepared("run_async", output_names, input_feed, run_options)
        values = list(input_feed.values())  # OrtValues: the run sees their memory

        def work() -> None:
            try:
                results, error = run(), ""
            except Exception as raised:  # nobody else would hear of it
                results, error = [], str(raised) or type(raised).__name__
            values.clear()
            callback(results, user_data, error)

        try:
            threading.Thread(target=work, name="vkdml run_async").start()
        except RuntimeError as error:
            raise OnnxRuntimeError(f"run_async: the system gave no thread: {error}; end some threads, or raise the "
                                   "limit (ulimit -u)") from error

    def warm_up(self, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1) -> None:
        """Pack weights and compile all that the recurrent nodes need for these lengths and batches: runs compile nothing then.

        Nodes in bodies are among them; nodes whose weights are fed or computed from what is fed are not. Lengths and batches of
        about the same size share what is compiled, so a few of them are enough for a range.

        Args:
            T: time steps as the recurrent nodes get them: a number, or several, such as range(10, 200, 10).
            B: batch rows: likewise. Each length is prepared with each batch size.

        Raises:
            InvalidArgumentError: no T, no whole number from 1, or a node that cannot have these sizes.
            DriverError: the driver failed.
        """
        for t, b in shapes_to_warm_up("InferenceSession", T, B):
            for step in self._program.on_device():
                step.warm_up(t, b)

    def _problems(self, T: int | None = None, B: int | None = None) -> dict[str, Problem | None]:
        """What the recurrent nodes compute for T time steps and B batch rows, as they get them; by what errors call the nodes.

        T, B: where left out, what the model's own shapes say, or else 1.

        None for a node whose weights are fed or computed from what is fed. Raises InvalidArgumentError as warm_up does.
        """
        shapes_to_warm_up("InferenceSession", 1 if T is None else T, 1 if B is None else B)
        return {name: step.problem(T, B) for name, step in _recurrent(self._program)}

    def _problems_so_far(self) -> dict[str, list[Problem]]:
        """What the recurrent nodes computed in the runs so far, each of the last few sizes once; by what errors call them."""
        found: dict[str, list[Problem]] = {}
        with self._lock:
            programs = [self._program, *(program for program, _ in self._overridden.values())]
        for program in programs:
            for name, step in _recurrent(program):
                found.setdefault(name, []).extend(step.problems())
        return found

    def stream(self, carried: Mapping[str, str], output_names: Sequence[str] | None = None) -> SessionStream:
        """Runs of which each begins with what the one before ended with, as for sound that comes in pieces.

        Where an output is the last state of a recurrent node at the top level, and the input is its initial state, both
        directly, the state stays on the device. Other values are handed on as numpy arrays.

        Args:
            carried: for each output that is handed on, the input that it becomes: {"h_out": "h_in"}. At first these inputs are
                zeros, and sizes that the model does not declare are 1; see SessionStream.state.
            output_names: the outputs to return; if None, all that are not handed on.

        Raises:
            InvalidArgumentError: an unknown name, or an output and an input that are not tensors of numbers of one type.
        """
        return SessionStream(self._program, carried, output_names, self._inputs, self._outputs)

    def _prepared(self, call: str, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions
                  ) -> Callable[[], list[Any]]:
        """A run whose arguments were checked."""
        if not isinstance(run_options, (onnxruntime.RunOptions, NoneType)):
            raise InvalidArgumentError(call, "run_options", type(run_options).__name__, "onnxruntime.RunOptions or None")
        if run_options is not None and has_adapter(run_options):
            raise InvalidArgumentError(call, "run_options", "an adapter", "none: feed what onnxruntime.AdapterFormat."
                                       "read_adapter(path).get_parameters() returns, with the inputs")
        program, inputs = self._for_feed(input_feed)
        names = expect_names("output_names", output_names, program.outputs) or program.outputs
        fed = inputs.feed(input_feed)

        def run() -> list[Any]:
            results = dict(zip(program.outputs, program.run(fed, run_options)))
            return [own(results[name], fed) for name in names]

        return run

    def _for_feed(self, input_feed: Any) -> tuple[Program, Inputs]:
        """The program that takes what is fed: inputs, and initializers that are inputs as well."""
        fed = isinstance(input_feed, Mapping) and frozenset(arg.name for arg in self._overridable if arg.name in input_feed)
        if not fed:
            return self._program, self._inputs
        with self._lock:
            return self._overridden.get(fed, lambda: self._made(models.without_initializers(self._model, fed)))


_on_device: WeakSet[InferenceSession] = WeakSet()  # of which something runs there


def _recurrent(program: Program) -> Iterator[tuple[str, RecurrentStep]]:
    """The recurrent steps by name, made unique."""
    names = Counter[str]()
    for step in program.recurrent():
        name = step.node.operator
        names[name] += 1
        yield f"{name} ({names[name]})" if names[name] > 1 else name, step
