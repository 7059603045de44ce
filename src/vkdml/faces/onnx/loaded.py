"""A model that is ready to run: its programs, and what it says of itself."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import GraphProto, ModelProto

from ...engine.vulkan.store import Recent
from ...engine.vulkan.system import Lock
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import open_device
from . import models
from .assignment import Assignment
from .feeds import Inputs, node_arg
from .ort_sessions import Arguments, OrtSessions, with_fixed_sizes, with_given_initializers
from .programs import Program
from .steps import Context, Scope

_OVERRIDABLE_SINCE = 4  # the version of ONNX's files from which on an initializer may be an input's default
_NO_VERSION = 2**63 - 1  # what onnxruntime says of a model without a version
_OVERRIDDEN_KEPT = 2  # programs for initializers that are fed


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


class Loaded:
    """A model, and its programs. Raises what InferenceSession raises.

    device: a Device, or what Device() takes. program, inputs: those of a run to which no initializer is fed. overridable:
    the initializers that may be fed, as inputs.
    """

    def __init__(self, source: models.Source, arguments: Arguments, device: Device | int | str | None, options: Options,
                 allow_outside: bool) -> None:
        self.device = arguments.device if device is None else device
        opened = open_device("InferenceSession", self.device)
        model = models.load(source, arguments.sess_options, allow_outside)
        self.ort = OrtSessions(model, arguments)
        if self.ort.profile:
            weakref.finalize(self, self.ort.profile.end)
        model = with_given_initializers(with_fixed_sizes(model, self.ort), self.ort)
        self.metadata = ModelMetadata.of(model)
        constants = {tensor.name for tensor in model.graph.initializer}
        overridable = [value for value in model.graph.input
                       if value.name in constants and model.ir_version >= _OVERRIDABLE_SINCE]
        self.overridable = [node_arg(value, value.type) for value in overridable]
        self._model = model if overridable else None
        self._overridden: Recent[tuple[Program, Inputs]] = Recent(_OVERRIDDEN_KEPT)
        self._lock = Lock()
        self._context = Context(model.opset_import, model.ir_version, self.device, options, self.ort)
        graph = models.inferred(model).graph
        self.program, self.inputs = self._made(graph)
        self.outputs = [node_arg(value, kind) for value, kind in zip(graph.output, self.program.output_types)]
        self.assignment = Assignment(opened.info.name, tuple(self.program.assigned))
        self.ort.write_optimized(source)

    def programs(self) -> list[Program]:
        """Programs that were made so far."""
        with self._lock:
            return [self.program, *(program for program, _ in self._overridden.values())]

    def for_feed(self, input_feed: Any) -> tuple[Program, Inputs]:
        """The program that takes what is fed: inputs, and initializers that are inputs as well."""
        if self._model is None or not isinstance(input_feed, Mapping):
            return self.program, self.inputs
        fed = frozenset(arg.name for arg in self.overridable if arg.name in input_feed)
        if not fed:
            return self.program, self.inputs
        model = self._model
        with self._lock:
            return self._overridden.get(fed, lambda: self._made(models.inferred(models.without_initializers(model, fed)).graph))

    def _made(self, graph: GraphProto) -> tuple[Program, Inputs]:
        constants: Collection[str] = {tensor.name for tensor in graph.initializer}
        inputs = {value.name: value for value in graph.input if value.name not in constants}
        types = {name: value.type for name, value in inputs.items()}
        return Program(graph, self._context, Scope({}, {}), types), Inputs(list(inputs.values()))
