"""Reading and checking models, before anything is made of them.

What is wrong with a model's graphs, besides its recurrent nodes' attributes, is onnxruntime's to say: it loads the model here
without its weights, and without making anything that runs. So the nodes that run on the Vulkan device are refused by the same
rules as all others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime
from google.protobuf.message import DecodeError, EncodeError, Message
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    external_data_helper,
    inliner,
)
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError
from onnxruntime.capi import onnxruntime_pybind11_state

from ...engine.vulkan import files
from ...errors import InvalidArgumentError, shown
from ..sessions import shared_sessions
from . import graphs
from .nodes import RecurrentNode, is_recurrent
from .ort_sessions import switched
from .ort_values import of_onnxruntime

_LARGEST_MODEL = 2**31 - 1  # bytes: protobuf's limit
_LARGE = 2**12  # bytes of an initializer that onnxruntime need not see to check a model: no shape or axes are in it

# What the package onnx raises for models that it cannot take. ValueError: also where they are larger than 2 GiB; RuntimeError:
# also where their bodies are too deep in one another
_ONNX_ERRORS = (DecodeError, EncodeError, InferenceError, KeyError, RuntimeError, TypeError, ValidationError, ValueError)

T = TypeVar("T")


Source: TypeAlias = str | bytes | os.PathLike[str] | ModelProto


def load(source: Source, sess_options: onnxruntime.SessionOptions, allow_outside: bool) -> ModelProto:
    """A model that onnxruntime accepts, without functions.

    allow_outside: whether its external data may be outside of its folder.

    Raises InvalidArgumentError and OnnxRuntimeError, which name the node or the field.
    """
    model = _inlined(_read(source, allow_outside))
    _check_recurrent(model.graph, model.opset_import)
    light = _of_onnx(lambda: _without_large_tensors(model).SerializeToString(), "graph")
    with switched(sess_options, enable_profiling=False):
        of_onnxruntime(onnxruntime_pybind11_state.InferenceSession, sess_options, light, False, False)
    return model


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


def _check_recurrent(graph: GraphProto, opset_imports: Sequence[OperatorSetIdProto]) -> None:
    """Check the attributes of the recurrent nodes in a graph, at any depth."""
    for node in graph.node:
        if is_recurrent(node):
            RecurrentNode(node, graphs.opset_version(opset_imports), shared_sessions)
        for body in graphs.bodies(node):
            _check_recurrent(body, opset_imports)


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


def _without_large_tensors(model: ModelProto) -> ModelProto:
    """A copy with inputs in the place of large initializers."""
    light = _copied(model, ModelProto(), "graph")
    _copied(model.graph, light.graph, "initializer")
    names = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) <= _LARGE:
            light.graph.initializer.append(tensor)
        elif tensor.name not in names:
            names.add(tensor.name)
            light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return light


def without_initializers(model: ModelProto, names: Collection[str]) -> ModelProto:
    """A copy whose inputs of these names must be fed."""
    others = _copied(model, ModelProto(), "graph")
    _copied(model.graph, others.graph, "initializer")
    others.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name not in names)
    return others


def _copied(message: Message, target: Any, without: str) -> Any:
    for field, value in message.ListFields():
        if field.name == without:
            continue
        if isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        elif isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).extend(value)
    return target


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
    return _of_onnx(lambda: inliner.inline_local_functions(copied, convert_version=True), "functions")


def _give_defaults(nodes: Iterable[NodeProto], defaults: Mapping[tuple[str, str], Sequence[AttributeProto]]) -> None:
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(attribute for attribute in defaults.get((node.domain, node.op_type), ())
                              if attribute.name not in given)
        for body in graphs.bodies(node):
            _give_defaults(body.node, defaults)


def inferred(model: ModelProto) -> ModelProto:
    """A copy with inferred types and shapes, also in bodies; the model itself where onnx cannot infer them."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except _ONNX_ERRORS:
        return model
