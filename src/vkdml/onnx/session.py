"""Whole models, with onnxruntime's calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import ModelProto, TypeProto, ValueInfoProto, inliner

from .. import functional
from ..errors import InvalidArgumentError
from ..operator import Device
from ..schedule import Options
from . import graphs
from .programs import Program
from .steps import Context, Scope


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model, as onnxruntime.NodeArg has it.

    type: such as "tensor(float)". shape: a number, the name of a dynamic dimension or None for each dimension.
    """

    name: str
    type: str
    shape: list[int | str | None]


class InferenceSession:
    """A model whose GRU, LSTM and RNN nodes run on a Vulkan device, and all else in onnxruntime on the CPU.

    Recurrent nodes may stand at the top level, in the bodies of If, Loop and Scan and in functions. The graph is cut once, at
    load; weights that initializers, constants or computations on them give are packed once. Shapes may change from call to
    call: what was compiled is kept for the last 8 combinations of time steps and batch rows of each node.

    Args:
        path_or_bytes: a model's file (with its external data beside it), its bytes, or a ModelProto.
        sess_options: onnxruntime.SessionOptions for what onnxruntime runs.
        providers, provider_options: onnxruntime's execution providers for that; the CPU if left out.
        device: a Device, or what Device() takes.
        options: what to force in the recurrent nodes' schedules.

    Raises:
        InvalidArgumentError: no model, or a recurrent node with wrong attributes or in an operator's body that is not If,
            Loop or Scan; the message names the node.
        OnnxRuntimeError: what onnxruntime cannot load; its message tells the node.
        DriverError: no device.
    """

    def __init__(self, path_or_bytes: str | bytes | os.PathLike[str] | ModelProto,
                 sess_options: onnxruntime.SessionOptions | None = None, providers: Sequence[Any] | None = None,
                 provider_options: Sequence[dict[Any, Any]] | None = None, *, device: Device | int | str | None = None,
                 options: Options = Options()) -> None:
        model = _load(path_or_bytes)
        if model.functions:
            model = inliner.inline_local_functions(model)
        if model.graph.sparse_initializer:
            raise InvalidArgumentError("InferenceSession", "sparse_initializer", model.graph.sparse_initializer[0].values.name,
                                       "none: dense initializers")
        sess_options = sess_options or _quiet_options()
        providers = providers or ["CPUExecutionProvider"]

        def open_session(serialized: bytes) -> onnxruntime.InferenceSession:
            return onnxruntime.InferenceSession(serialized, sess_options, providers, provider_options)

        self._device = functional.open_device("InferenceSession", device)
        context = Context(model.opset_import, model.ir_version, self._device, options, open_session)
        constants = {tensor.name for tensor in model.graph.initializer}
        inputs = {value.name: value for value in model.graph.input if value.name not in constants}
        self._inputs = [_node_arg(value, value.type) for value in inputs.values()]
        self._program = Program(model.graph, context, Scope.empty(), {name: value.type for name, value in inputs.items()})
        self._outputs = [_node_arg(value, kind) for value, kind in zip(model.graph.output, self._program.output_types)]

    @property
    def device(self) -> Device:
        """Where the recurrent nodes run."""
        return self._device

    def get_inputs(self) -> list[NodeArg]:
        """The inputs to feed: those that no initializer gives."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Run the model.

        Args:
            output_names: which outputs to return, in this order; all of them if None or empty.
            input_feed: an array (a list for a sequence, None for an empty optional) by the name of each input.

        Raises:
            InvalidArgumentError: a missing or unknown name, or arrays that a recurrent node cannot take; the message names it.
            OnnxRuntimeError: what onnxruntime refuses.
            DriverError: the driver failed.
        """
        _expect_names("input_feed", input_feed, self._program.inputs)
        inputs, outputs = self._program.inputs, self._program.outputs
        missing = [name for name in inputs if name not in input_feed]
        if missing:
            raise InvalidArgumentError("run", "input_feed", f"nothing for {missing[0]!r}", "all of " + ", ".join(inputs))
        _expect_names("output_names", output_names or (), outputs)
        results = dict(zip(outputs, self._program.run([input_feed[name] for name in inputs])))
        return [results[name] for name in output_names or outputs]


def _expect_names(argument: str, names: Sequence[str] | Mapping[str, Any], allowed: Sequence[str]) -> None:
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise InvalidArgumentError("run", argument, repr(unknown[0]), "one of " + ", ".join(allowed))


def _load(source: str | bytes | os.PathLike[str] | ModelProto) -> ModelProto:
    if isinstance(source, ModelProto):
        return source
    found = f"{len(source)} bytes" if isinstance(source, bytes) else repr(source)
    try:
        model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(Path(source), format="protobuf")
    except (DecodeError, OSError, TypeError) as error:
        raise InvalidArgumentError("InferenceSession", "path_or_bytes", f"{found} ({error})", "an ONNX model") from None
    if not model.graph.output:
        raise InvalidArgumentError("InferenceSession", "path_or_bytes", f"{found} without a graph", "an ONNX model")
    return model


def _quiet_options() -> onnxruntime.SessionOptions:
    """Threads that spin between a model's pieces would take the cores from a CPU driver and from each other. Warnings are
    off, because what an optimization could not do in a piece says little of the model.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _node_arg(value: ValueInfoProto, kind: TypeProto) -> NodeArg:
    """The declared shape, and a type that may have been found out."""
    tensor = value.type.tensor_type
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
    return NodeArg(value.name, graphs.type_name(kind), shape)
