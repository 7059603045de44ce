"""The interface of onnx.backend.base.Backend, which onnx's own tests call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import BackendRep, namedtupledict
from onnxruntime.backend.backend import OnnxRuntimeBackend

from ...engine.vulkan.gpu import select_device
from ...errors import DriverError, InvalidArgumentError
from ..directml.device import Device
from ..sessions import shared_session
from .graph_nodes import GraphNode
from .nodes import RecurrentNode
from .session import InferenceSession


def run_node(node: onnx.NodeProto, inputs: Sequence[Any] | Mapping[str, Any], device: Device | int | str | None = None,
             outputs_info: Any = None, *, opset_version: int | None = None, **kwargs: Any) -> tuple[np.ndarray, ...]:
    """Run one GRU, LSTM or RNN node (onnx.backend.base.Backend.run_node).

    Args:
        node: a NodeProto of op type GRU, LSTM or RNN, of any operator version to 22.
        inputs: arrays by name; or in the order of the node's inputs, where those that the node leaves out are None or missing.
            Shapes as in ONNX. sequence_lens is int32; all others have one type: float32, float16, float64 or, from operator
            version 22 on, bfloat16.
        device: a Device, or what Device() takes. None, "CPU" and "CUDA" mean the default device: callers of
            onnx.backend name a kind of device, which has no meaning here.
        opset_version: the opset that the node is written for; by default the newest that the package onnx knows.

    Returns:
        A named tuple of the outputs that the node names, in their order and in X's type.

    Raises:
        InvalidArgumentError: an attribute or input that the operator's version does not allow.
        DriverError: no device, or the driver failed.
    """
    if not isinstance(node, onnx.NodeProto):
        raise InvalidArgumentError("run_node", "node", type(node).__name__, "an onnx.NodeProto")
    opset = onnx.defs.onnx_opset_version() if opset_version is None else opset_version
    names = list(node.input)
    own = RecurrentNode(_graph_node(node, opset), shared_session, _named_device(device))
    results = own.run(_by_name(own.operator, names, inputs))
    return namedtupledict("Outputs", own.outputs)(*results.values())


def _graph_node(node: onnx.NodeProto, opset: int) -> GraphNode:
    operator, names = f"{node.op_type} node {node.name!r}", [attribute.name for attribute in node.attribute]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(operator, f"attribute {name}", "a second one", "one")
    try:
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    except ValueError as error:  # a reference to a function's attribute outside of a function
        raise InvalidArgumentError(operator, "attribute", str(error), "a value") from None
    domain = "" if node.domain == "ai.onnx" else node.domain
    return GraphNode(node.name, node.op_type, domain, opset, list(node.input), list(node.output), [], attributes)


def _by_name(operator: str, names: Sequence[str], inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of a node, of which those in a list are in the order of the names, with or without those that are left out."""
    given = [name for name in names if name]
    if not isinstance(inputs, Mapping | Sequence):
        raise InvalidArgumentError(operator, "inputs", type(inputs).__name__, "a list of arrays, or a dictionary by name")
    if not isinstance(inputs, Mapping):
        if len(inputs) not in (len(names), len(given)):
            raise InvalidArgumentError(operator, "inputs", f"{len(inputs)} arrays", f"{len(names)}, one for each input")
        inputs = dict(zip(names if len(inputs) == len(names) else given, inputs))
    missing = [name for name in given if name not in inputs]
    if missing:
        raise InvalidArgumentError(operator, "inputs", f"none named {missing[0]!r}", "all of " + ", ".join(given))
    return {name: inputs[name] for name in given}


def _named_device(device: Device | int | str | None) -> Device | int | str | None:
    """The device, or None for "CPU" and "CUDA", the kinds of device that onnx.backend's callers name."""
    return None if isinstance(device, str) and device.split(":")[0] in ("CPU", "CUDA") else device


class VulkanBackend(OnnxRuntimeBackend):
    """An onnx.backend.base.Backend: onnxruntime's, with recurrent nodes on a Vulkan device."""

    @classmethod
    def prepare(cls, model: Any, device: Any = "CPU", **kwargs: Any) -> BackendRep:
        """Make a model ready to run, unless it is. model: a ModelProto, a path, or bytes; or a session, which keeps its device.

        Raises what `InferenceSession` raises.
        """
        if isinstance(model, str | bytes | os.PathLike | onnx.ModelProto):
            model = InferenceSession(model, device=_named_device(device))
        return super().prepare(model, device, **kwargs)

    run_node = staticmethod(run_node)

    @classmethod
    def supports_device(cls, device: Any) -> bool:
        """True for what Device() takes, and for "CPU", which means the default device here."""
        is_name = isinstance(device, str)
        if is_name and device.startswith("CUDA"):
            return False
        try:
            select_device(None if is_name and device.startswith("CPU") else device)
        except (DriverError, InvalidArgumentError):
            return False
        return True


prepare = VulkanBackend.prepare
run_model = VulkanBackend.run_model
supports_device = VulkanBackend.supports_device
is_compatible, run = VulkanBackend.is_compatible, run_model  # names of onnxruntime.backend
