"""ONNX on a Vulkan device: recurrent nodes, and models made of them. Needs the package `onnx` (pip install 'vkdml[onnx]').

The module is a backend as onnx.backend.base.Backend describes: `prepare`, `run_model`, `run_node`, `supports_device`.

Sources: the ONNX operators GRU, versions 1, 3, 7, 14 and 22, LSTM and RNN, versions 1, 7, 14 and 22.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

try:
    import onnx
    from onnx.backend.base import Backend, BackendRep, namedtupledict
    from onnx.numpy_helper import to_array
except ImportError:
    raise ImportError("vkdml.onnx needs the package onnx: pip install onnx") from None

from . import cells, element_types
from .cells import Cell
from .device import select_device
from .errors import DriverError, InvalidArgumentError
from .functional import recurrent
from .operator import Device

_CELLS: dict[str, Cell] = {cell.name: cell for cell in (cells.GRU, cells.LSTM, cells.RNN)}

# Attributes and their defaults, by the operator version that brought them in
_FIRST = {"activations": None, "activation_alpha": None, "activation_beta": None, "clip": None, "direction": "forward",
          "hidden_size": None, "output_sequence": 0}
_ATTRIBUTES: dict[str, dict[int, dict[str, Any]]] = {
    "GRU": {1: _FIRST, 3: {"linear_before_reset": 0}, 7: {}, 14: {"layout": 0}, 22: {}},
    "LSTM": {1: _FIRST | {"input_forget": 0}, 7: {}, 14: {"layout": 0}, 22: {}},
    "RNN": {1: _FIRST, 7: {}, 14: {"layout": 0}, 22: {}},
}
_REMOVED = {"output_sequence": 7}


def run_node(node: onnx.NodeProto, inputs: Sequence[Any] | Mapping[str, Any], device: Device | int | str | None = None,
             outputs_info: Any = None, *, opset_version: int | None = None, **kwargs: Any) -> tuple[np.ndarray, ...]:
    """Run one GRU, LSTM or RNN node (onnx.backend.base.Backend.run_node).

    Args:
        node: a NodeProto of op type GRU, LSTM or RNN, of any operator version to 22.
        inputs: arrays in the order of the node's inputs, with None for those left out or without them; or by name.
            sequence_lens int32; all others of one type: float32, float16, float64, or, from version 22, bfloat16.
        device: a Device, or its index or a part of its name; the default one if None, "CPU" or "CUDA" (what
            onnx.backend's callers pass by default has no meaning here).
        opset_version: the opset that the node is written for; by default the newest that `onnx` knows.

    Returns:
        A named tuple of the outputs that the node names, in their order and in X's type.

    Raises:
        InvalidArgumentError: an attribute or input that the operator's version does not allow.
        DriverError: no device, or the driver failed.
    """
    if not isinstance(node, onnx.NodeProto):
        raise InvalidArgumentError("run_node", "node", type(node).__name__, "an onnx.NodeProto")
    operator, cell = _cell(node)
    version = _version(operator, node, opset_version)
    arrays = _inputs(operator, cell, node, inputs)
    _check_types(operator, cell, version, arrays)
    attributes = _attributes(operator, node, version)
    _check_hidden_size(operator, attributes.pop("hidden_size"), arrays)
    attributes.pop("output_sequence", None)  # Y is given exactly when the node names it
    names = _outputs(operator, cell, node)
    results = recurrent(operator, cell, arrays, attributes,
                        [bool(name) for name in names], _device(device))
    return namedtupledict("Outputs", [name for name in names if name])(*results)


def _cell(node: onnx.NodeProto) -> tuple[str, Cell]:
    """The node's name in errors, and its cell."""
    operator = f"{node.op_type} node {node.name!r}" if node.name else f"{node.op_type} node"
    if node.op_type not in _CELLS or node.domain not in ("", "ai.onnx"):
        raise InvalidArgumentError(operator, "op_type", f"{node.domain}:{node.op_type}", "one of " + ", ".join(_CELLS))
    return operator, _CELLS[node.op_type]


def _device(device: Device | int | str | None) -> Device | int | str | None:
    """onnx.backend's callers name a kind of device by default; that means nothing here."""
    return None if str(device).split(":")[0] in ("CPU", "CUDA") else device


class PreparedModel(BackendRep):
    """A checked model whose nodes are all GRU, LSTM or RNN. Made by `prepare`."""

    def __init__(self, model: onnx.ModelProto, device: Device | int | str | None) -> None:
        self._graph = model.graph
        self._opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
        self._device = device
        self._constants = {tensor.name: to_array(tensor) for tensor in model.graph.initializer}

    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **kwargs: Any) -> tuple[np.ndarray, ...]:
        """Run on arrays in the order of the graph's inputs that are no initializers, or by name.

        Returns a named tuple of the graph's outputs. Raises what `run_node` raises.
        """
        names = [value.name for value in self._graph.input if value.name not in self._constants]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise InvalidArgumentError("run", "inputs", f"{len(inputs)} arrays", f"{len(names)}: {', '.join(names)}")
            inputs = dict(zip(names, inputs))
        values = self._constants | dict(inputs)
        for node in self._graph.node:
            results = run_node(node, values, self._device, opset_version=self._opset)
            values |= dict(zip(filter(None, node.output), results))
        outputs = [value.name for value in self._graph.output]
        return namedtupledict("Outputs", outputs)(*[values[name] for name in outputs])


class VulkanBackend(Backend):
    """onnx.backend.base.Backend for models whose nodes are all GRU, LSTM or RNN."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: Any = "CPU", **kwargs: Any) -> PreparedModel:
        """Check a model. Raises InvalidArgumentError for a node that is not recurrent, naming it."""
        super().prepare(model, device, **kwargs)
        for node in model.graph.node:
            _cell(node)
        return PreparedModel(model, device)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: Any = "CPU", outputs_info: Any = None, **kwargs: Any
                 ) -> tuple[np.ndarray, ...]:
        return run_node(node, inputs, device, outputs_info, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """"CPU", by which onnx.backend's callers mean the default, or the index or a part of the name of a Vulkan device."""
        try:
            return device == "CPU" or select_device(device) is not None
        except DriverError:
            return False


prepare = VulkanBackend.prepare
run_model = VulkanBackend.run_model
supports_device = VulkanBackend.supports_device


def _version(operator: str, node: onnx.NodeProto, opset_version: int | None) -> int:
    """The operator version that an opset has."""
    opset = onnx.defs.onnx_opset_version() if opset_version is None else opset_version
    versions = _ATTRIBUTES[node.op_type]
    if not isinstance(opset, int) or opset < min(versions):
        raise InvalidArgumentError(operator, "opset_version", opset, f"a whole number from {min(versions)}")
    return max(version for version in versions if version <= opset)


def _attributes(operator: str, node: onnx.NodeProto, version: int) -> dict[str, Any]:
    allowed = {name: default for v, names in _ATTRIBUTES[node.op_type].items() if v <= version
               for name, default in names.items() if version < _REMOVED.get(name, version + 1)}
    given = {}
    for attribute in node.attribute:
        if attribute.name not in allowed:
            raise InvalidArgumentError(operator, f"attribute {attribute.name}", f"it in operator version {version}",
                                       "one of " + ", ".join(allowed))
        try:
            given[attribute.name] = _plain(onnx.helper.get_attribute_value(attribute))
        except ValueError as error:  # a reference outside of a function, or text that is no UTF-8
            raise InvalidArgumentError(operator, f"attribute {attribute.name}", str(error), "a value") from None
    return allowed | given


def _plain(value: Any) -> Any:
    """Bytes as text, and an empty list as the absent attribute it stands for."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value] or None
    return value


def _check_hidden_size(operator: str, hidden_size: int | None, arrays: Mapping[str, Any]) -> None:
    found = np.shape(arrays["RecurrenceTensor"])[-1:]
    if hidden_size is not None and found and found[0] != hidden_size:
        raise InvalidArgumentError(operator, "hidden_size", hidden_size, f"{found[0]}, the last dimension of R")


def _inputs(operator: str, cell: Cell, node: onnx.NodeProto, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by DirectML field, for the node's inputs in ONNX's order."""
    fields = [field for field in cell.arguments if field in cell.inputs]
    names = list(node.input)
    if len(names) > len(fields):
        raise InvalidArgumentError(operator, "input", f"{len(names)} inputs", f"at most {len(fields)}")
    given = [name for name in names if name]
    if not isinstance(inputs, Mapping | Sequence):
        raise InvalidArgumentError(operator, "inputs", type(inputs).__name__, "a list of arrays, or a dictionary by name")
    if isinstance(inputs, Mapping):
        missing = [name for name in given if name not in inputs]
        if missing:
            raise InvalidArgumentError(operator, "inputs", f"none named {missing[0]!r}", "all of " + ", ".join(given))
        values = [inputs[name] if name else None for name in names]
    elif len(inputs) == len(names):
        values = [value if name else None for name, value in zip(names, inputs)]
    elif len(inputs) == len(given):
        rest = iter(inputs)
        values = [next(rest) if name else None for name in names]
    else:
        raise InvalidArgumentError(operator, "inputs", f"{len(inputs)} arrays", f"{len(names)}, one for each input of the node")
    return dict.fromkeys(fields) | dict(zip(fields, values))


def _check_types(operator: str, cell: Cell, version: int, arrays: Mapping[str, Any]) -> None:
    """sequence_lens int32, all else of X's type, one that the operator's version has."""
    allowed = [row.name for row in element_types.ALL if row.onnx_since <= version]
    for field, array in arrays.items():
        if array is None:
            continue
        dtype = str(getattr(array, "dtype", type(array).__name__))
        expected = ["int32"] if field == "SequenceLengthsTensor" else allowed
        if dtype not in expected:
            raise InvalidArgumentError(operator, cell.arguments[field], dtype, " or ".join(expected))
        if field == "InputTensor":
            allowed = [dtype]


def _outputs(operator: str, cell: Cell, node: onnx.NodeProto) -> list[str]:
    names = list(node.output)
    if not any(names) or len(names) > len(cell.outputs):
        raise InvalidArgumentError(operator, "output", names, f"1 to {len(cell.outputs)} names, at least one not empty")
    return names + [""] * (len(cell.outputs) - len(names))
