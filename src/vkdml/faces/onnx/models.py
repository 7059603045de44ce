"""Reading and checking models, before anything is made of them.

What is wrong with a model's graphs, besides its recurrent nodes' attributes, is onnxruntime's to say: it loads the model here
without its weights, and without making anything that runs. So the nodes that run on the Vulkan device are refused by the same
rules as all others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime
from google.protobuf.message import DecodeError, EncodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, TypeProto, external_data_helper, inliner
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError
from onnxruntime.capi import onnxruntime_pybind11_state

from ...engine.vulkan import files
from ...errors import InvalidArgumentError, shown
from ..sessions import shared_session
from . import graphs
from .feeds import NodeArg
from .nodes import RecurrentNode, is_recurrent
from .ort_values import of_onnxruntime, switched
from .quantized import dequantized

_LARGEST_MODEL = 2**31 - 1  # bytes: protobuf's limit
_LARGE = 2**12  # bytes of an initializer that onnxruntime need not see to check a model: no shape or axes are in it

_NO_VERSION = 2**63 - 1  # what onnxruntime says of a model without a version

# What the package onnx raises for models that it cannot take. ValueError: also where they are larger than 2 GiB; RuntimeError:
# also where their bodies are too deep in one another
_ONNX_ERRORS = (DecodeError, EncodeError, InferenceError, KeyError, RuntimeError, TypeError, ValidationError, ValueError)

T = TypeVar("T")
Source: TypeAlias = str | bytes | os.PathLike[str] | ModelProto


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says of itself, as onnxruntime.ModelMetadata has it."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]

    @staticmethod
    def of(model: ModelProto) -> ModelMetadata:
        version = model.model_version if model.HasField("model_version") else _NO_VERSION
        return ModelMetadata(model.producer_name, model.graph.name, model.domain, model.doc_string, model.graph.doc_string,
                             version, {entry.key: entry.value for entry in model.metadata_props})


def load(source: Source, allow_outside: bool) -> ModelProto:
    """A model without functions, whose recurrent nodes' attributes are right.

    allow_outside: whether its external data may be outside of its folder.

    Raises InvalidArgumentError, which names the node or the field.
    """
    model = dequantized(_inlined(_read(source, allow_outside)))
    for graph in graphs.nested(model.graph):
        for node in filter(is_recurrent, graph.node):
            RecurrentNode(node, graphs.opset_version(model.opset_import), shared_session)
    return model


def described(model: ModelProto, sess_options: onnxruntime.SessionOptions) -> tuple[dict[str, NodeArg], list[NodeArg]]:
    """Inputs, with the initializers among them, and outputs as onnxruntime has them. Raises OnnxRuntimeError where it refuses
    the model.
    """
    light = _of_onnx(lambda: _without_large_tensors(model).SerializeToString(), "graph")
    with switched(sess_options, enable_profiling=False):
        loaded = of_onnxruntime(onnxruntime_pybind11_state.InferenceSession, sess_options, light, False, False)
    inputs, others, outputs = ([NodeArg(arg.name, arg.type, arg.shape) for arg in args]
                               for args in (loaded.inputs_meta, loaded.overridable_initializers, loaded.outputs_meta))
    return {arg.name: arg for arg in inputs + others}, outputs


def array_of(tensor: TensorProto, graph: GraphProto) -> np.ndarray:
    """The array of an initializer."""
    field = f"initializer {tensor.name!r} of graph {graph.name!r}"
    if min(tensor.dims, default=0) < 0:
        raise InvalidArgumentError("InferenceSession", field, f"the shape {list(tensor.dims)}", "sizes from 0")
    return _of_onnx(lambda: onnx.numpy_helper.to_array(tensor), field)


def _of_onnx(call: Callable[[], T], field: str) -> T:
    """Call the package onnx; its exceptions become InvalidArgumentErrors."""
    try:
        return call()
    except _ONNX_ERRORS as error:
        said = f"{type(error).__name__}: {error}".strip()
        raise InvalidArgumentError("InferenceSession", field, said, "what ONNX allows there") from None


def _read(source: Source, allow_outside: bool) -> ModelProto:
    folder = None
    if isinstance(source, ModelProto):
        model, found = source, "a ModelProto"
    else:
        model, found = ModelProto(), f"{len(source)} bytes" if isinstance(source, bytes) else shown(source, str)
        try:
            if not isinstance(source, bytes):
                folder = Path(source).parent
                source = files.read(Path(source), _LARGEST_MODEL)
            if source[4:8] == b"ORTM":
                raise ValueError("a model in onnxruntime's own format, of which only onnxruntime can read the nodes")
            model.ParseFromString(source)
        except (DecodeError, OSError, TypeError, ValueError) as error:
            raise InvalidArgumentError("InferenceSession", "path_or_bytes", f"{found} ({error})", "an ONNX model") from None
    if not model.graph.output:
        raise InvalidArgumentError("InferenceSession", "path_or_bytes", f"{found} without a graph", "an ONNX model")
    return _with_external_data(model, folder, allow_outside)


def _with_external_data(model: ModelProto, folder: Path | None, allow_outside: bool) -> ModelProto:
    """The model, with its external data in it. folder: the model's; None: it is not in a file."""
    external = _of_onnx(lambda: list(filter(external_data_helper.uses_external_data, _tensors(model))), "graph")
    if not external:
        return model
    if folder is None:
        raise InvalidArgumentError("InferenceSession", "external_data", "a tensor in another file",
                                   "none in a model that is given as bytes or as a ModelProto: give its path")
    lengths: dict[Path, int] = {}
    loaded = 0
    for tensor in external:
        given = {entry.key: entry.value for entry in tensor.external_data}
        try:
            name = given.get("location", "")
            path = folder / name if allow_outside else files.inside(folder, name)
            lengths[path] = path.stat().st_size
            offset, length = (int(given[key]) if given.get(key) else None for key in ("offset", "length"))
            data = files.read_part(path, offset or 0, length)
            loaded += len(data)
            if loaded > max(_LARGEST_MODEL, sum(lengths.values())):
                raise ValueError(f"{loaded} bytes of {sum(lengths.values())}")
        except (OSError, ValueError) as error:
            raise InvalidArgumentError("InferenceSession", f"external_data of tensor {tensor.name!r}", f"{given} ({error})",
                                       "bytes of a file in the model's folder (allow_outside=True: anywhere)") from None
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.DEFAULT
        tensor.raw_data = data
    return model


def _tensors(message: Message) -> Iterator[TensorProto]:
    """All tensors in a message, at any depth."""
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                yield from _tensors(inner)


def widen(message: Message) -> bool:
    """Put float32 in the place of float16 in a model, or a part of one. Returns whether there was any."""
    if isinstance(message, TensorProto) and message.data_type == TensorProto.FLOAT16:
        message.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(message).astype(np.float32), message.name))
        return True
    if isinstance(message, TypeProto.Tensor) and message.elem_type == TensorProto.FLOAT16:
        message.elem_type = TensorProto.FLOAT
        return True
    if isinstance(message, AttributeProto) and message.name in ("to", "dtype") and message.i == TensorProto.FLOAT16:
        message.i = TensorProto.FLOAT
        return True
    inner = [value for field, value in message.ListFields() if field.message_type is not None]
    found = [widen(part) for value in inner for part in ([value] if isinstance(value, Message) else value)]
    return any(found)


def _without_large_tensors(model: ModelProto) -> ModelProto:
    """A copy with inputs in the place of large initializers."""
    large = {tensor.name: tensor for tensor in model.graph.initializer if len(tensor.raw_data) > _LARGE}
    light = without_initializers(model, large)
    light.graph.input.extend(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
                             for name, tensor in large.items() if name not in {value.name for value in model.graph.input})
    return light


def without_initializers(model: ModelProto, names: Collection[str]) -> ModelProto:
    """A copy, of what is computed, whose inputs of these names must be fed."""
    graph = model.graph
    others = onnx.helper.make_graph(
        graph.node, graph.name, graph.input, graph.output, [one for one in graph.initializer if one.name not in names],
        value_info=graph.value_info, sparse_initializer=graph.sparse_initializer)
    return onnx.helper.make_model(others, opset_imports=model.opset_import, ir_version=model.ir_version)


def _inlined(model: ModelProto) -> ModelProto:
    """The model with calls of functions replaced by the functions' nodes. Default attributes are written to the calls first,
    because onnx's inliner ignores them.
    """
    if not model.functions:
        return model
    copied = ModelProto()
    copied.CopyFrom(model)
    defaults = {(function.domain, function.name): function.attribute_proto for function in copied.functions}
    for part in (copied.graph, *copied.functions):
        for node in chain.from_iterable(inner.node for inner in graphs.nested(part)):
            given = {attribute.name for attribute in node.attribute}
            node.attribute.extend(attribute for attribute in defaults.get((node.domain, node.op_type), ())
                                  if attribute.name not in given)
    return _of_onnx(lambda: inliner.inline_local_functions(copied, convert_version=True), "functions")


def inferred(model: ModelProto) -> ModelProto:
    """A copy with inferred types and shapes, also in bodies; the model itself where onnx cannot infer them."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except _ONNX_ERRORS:
        return model
