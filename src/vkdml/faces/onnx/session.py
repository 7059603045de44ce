"""Whole models, with the interface of onnxruntime.InferenceSession."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, inliner

from ...errors import InvalidArgumentError
from ...planning.options import Options
from ...runtime.operator import Device
from ..sessions import open_device
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
    """A model whose GRU, LSTM and RNN nodes run on a Vulkan device, and all other nodes in onnxruntime on the CPU.

    Recurrent nodes may be at the top level, in the bodies of If, Loop and Scan, and in functions. The graph is divided once, at
    load. Constant weights are packed once: initializers, constants, and what is computed from these. Shapes may change from
    call to call: for each node, what was compiled is kept for the last 8 combinations of time steps and batch rows.

    Args:
        path_or_bytes: a model's file (with its external data beside it), its bytes, or a ModelProto.
        sess_options: onnxruntime.SessionOptions for the nodes that onnxruntime runs.
        providers, provider_options: onnxruntime's execution providers for these nodes; the CPU if left out.
        device: a Device, or an argument of Device().
        options: what to force in the plans of the recurrent nodes.

    Raises:
        InvalidArgumentError: no ONNX model; or a recurrent node with wrong attributes, or in a body of an operator other than
            If, Loop and Scan: the message names the node.
        OnnxRuntimeError: onnxruntime cannot load its part of the model; its message names the node.
        DriverError: no device.
    """

    def __init__(self, path_or_bytes: str | bytes | os.PathLike[str] | ModelProto,
                 sess_options: onnxruntime.SessionOptions | None = None, providers: Sequence[Any] | None = None,
                 provider_options: Sequence[dict[Any, Any]] | None = None, *, device: Device | int | str | None = None,
                 options: Options = Options()) -> None:
        model = _inferred(_inlined(_load(path_or_bytes)))
        sess_options = sess_options or _quiet_options()
        providers = providers or ["CPUExecutionProvider"]

        def open_session(serialized: bytes) -> onnxruntime.InferenceSession:
            return onnxruntime.InferenceSession(serialized, sess_options, providers, provider_options)

        self._device = open_device("InferenceSession", device)
        context = Context(model.opset_import, model.ir_version, self._device, options, open_session)
        constants = {tensor.name for tensor in model.graph.initializer}
        inputs = {value.name: value for value in model.graph.input if value.name not in constants}
        self._declared = list(inputs.values())
        self._inputs = [_node_arg(value, value.type) for value in inputs.values()]
        self._program = Program(model.graph, context, Scope({}, {}), {name: value.type for name, value in inputs.items()})
        self._outputs = [_node_arg(value, kind) for value, kind in zip(model.graph.output, self._program.output_types)]

    @property
    def device(self) -> Device:
        """Where the recurrent nodes run."""
        return self._device

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed: those without an initializer."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Run the model.

        Args:
            output_names: the outputs to return, in this order; all of them if None or empty.
            input_feed: an array for each input, by name; a list for a sequence, None for an empty optional.

        Returns:
            The outputs: arrays, or lists for sequences.

        Raises:
            InvalidArgumentError: a missing or unknown name, or an array that the model or a recurrent node cannot take; the
                message names it.
            OnnxRuntimeError: onnxruntime refused its inputs or failed.
            DriverError: the driver failed.
        """
        outputs = self._program.outputs
        _expect_names("output_names", output_names or (), outputs)
        fed = self._feed(input_feed)
        results = dict(zip(outputs, self._program.run(fed)))
        return [_own(results[name], fed) for name in output_names or outputs]

    def _feed(self, input_feed: Mapping[str, Any]) -> list[Any]:
        """The inputs in order. Refuses other types and sizes than the model declares."""
        if not isinstance(input_feed, Mapping):
            raise InvalidArgumentError("run", "input_feed", type(input_feed).__name__, "a dictionary of arrays by name")
        names = self._program.inputs
        _expect_names("input_feed", input_feed, names)
        missing = [name for name in names if name not in input_feed]
        if missing:
            raise InvalidArgumentError("run", "input_feed", f"nothing for {missing[0]!r}", "all of " + ", ".join(names))
        return [_checked(value, input_feed[value.name]) for value in self._declared]


def _expect_names(argument: str, names: Sequence[str] | Mapping[str, Any], allowed: Sequence[str]) -> None:
    if isinstance(names, str):
        raise InvalidArgumentError("run", argument, repr(names), "a list of names")
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise InvalidArgumentError("run", argument, repr(unknown[0]), "one of " + ", ".join(allowed))


def _load(source: str | bytes | os.PathLike[str] | ModelProto) -> ModelProto:
    if isinstance(source, ModelProto):
        return source
    found = f"{len(source)} bytes" if isinstance(source, bytes) else repr(source)
    try:
        model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(Path(source), format="protobuf")
    except (DecodeError, OSError, TypeError, ValueError, onnx.checker.ValidationError) as error:
        raise InvalidArgumentError("InferenceSession", "path_or_bytes", f"{found} ({error})", "an ONNX model") from None
    if not model.graph.output:
        raise InvalidArgumentError("InferenceSession", "path_or_bytes", f"{found} without a graph", "an ONNX model")
    return model


def _inlined(model: ModelProto) -> ModelProto:
    """The model with calls of functions replaced by the functions' nodes. Default attributes are written to the calls first,
    because onnx's inliner ignores them.
    """
    if not model.functions:
        return model
    copied = ModelProto()
    copied.CopyFrom(model)
    defaults = {(function.domain, function.name): function.attribute_proto for function in copied.functions}
    for nodes in (copied.graph.node, *(function.node for function in copied.functions)):
        _give_defaults(nodes, defaults)
    return inliner.inline_local_functions(copied, convert_version=True)


def _give_defaults(nodes: Iterable[NodeProto], defaults: Mapping[tuple[str, str], Sequence[AttributeProto]]) -> None:
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(attribute for attribute in defaults.get((node.domain, node.op_type), ())
                              if attribute.name not in given)
        for body in graphs.bodies(node):
            _give_defaults(body.node, defaults)


def _inferred(model: ModelProto) -> ModelProto:
    """A copy with inferred shapes, also in bodies; the model itself where onnx cannot infer them."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError):  # ValueError: larger than protobuf's limit of 2 GiB
        return model


def _checked(declared: ValueInfoProto, value: Any) -> Any:
    """The value fed for an input, as an array. Refuses other types and sizes than declared; onnxruntime checks sequences."""
    if not declared.type.HasField("tensor_type"):
        return value
    if isinstance(value, onnxruntime.OrtValue):
        value = value.numpy()
    array = np.asarray(value)
    tensor = declared.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if array.dtype != dtype and not (tensor.elem_type == TensorProto.STRING and array.dtype.kind in "OUS"):
        raise InvalidArgumentError("run", f"input_feed: {declared.name}", array.dtype, str(dtype))
    sizes = _sizes(declared)
    fits = array.ndim == len(sizes) and all(size in (None, found) for size, found in zip(sizes, array.shape))
    if tensor.HasField("shape") and not fits:
        raise InvalidArgumentError("run", f"input_feed: {declared.name}", f"the shape {array.shape}",
                                   str(_node_arg(declared, declared.type).shape))
    return array


def _own(result: Any, fed: Sequence[Any]) -> Any:
    """The result, copied if it is a constant of the model or an array that was fed, so that the caller may write to it."""
    is_shared = isinstance(result, np.ndarray) and (not result.flags.writeable or any(result is value for value in fed))
    return result.copy() if is_shared else result


def _quiet_options() -> onnxruntime.SessionOptions:
    """Without spinning: threads that spin between a model's pieces would take the cores from a CPU driver and from each other.
    Without warnings: they are about optimizations of single pieces, which say little about the model.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _node_arg(value: ValueInfoProto, kind: TypeProto) -> NodeArg:
    """kind: the type, which may be inferred. The shape is the declared or inferred one."""
    names = [None if dim.dim_param.startswith("unk__") else dim.dim_param or None for dim in value.type.tensor_type.shape.dim]
    return NodeArg(value.name, graphs.type_name(kind),
                   [name if size is None else size for name, size in zip(names, _sizes(value))])


def _sizes(value: ValueInfoProto) -> list[int | None]:
    """The dimensions, None for those that may vary."""
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
            for dim in value.type.tensor_type.shape.dim]
