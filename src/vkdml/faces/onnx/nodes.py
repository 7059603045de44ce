"""Recurrent nodes: attributes and inputs are checked by operator version, then run like those of the numpy functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import namedtupledict

from ...errors import InvalidArgumentError
from ...operators import cells, element_types
from ...operators.arguments import convert, onnx_shape
from ...operators.cells import Cell
from ...operators.element_types import ElementType
from ...operators.problem import WEIGHTS, Problem, check_lengths
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import Arrays, Session, Settings, shared_session

_CELLS: dict[str, Cell] = {cell.name: cell for cell in (cells.GRU, cells.LSTM, cells.RNN)}

# Attributes and their defaults, by the operator version that introduced them
_FIRST = {"activations": None, "activation_alpha": None, "activation_beta": None, "clip": None, "direction": "forward",
          "hidden_size": None, "output_sequence": 0}
_ATTRIBUTES: dict[str, dict[int, dict[str, Any]]] = {
    "GRU": {1: _FIRST, 3: {"linear_before_reset": 0}, 7: {}, 14: {"layout": 0}, 22: {}},
    "LSTM": {1: _FIRST | {"input_forget": 0}, 7: {}, 14: {"layout": 0}, 22: {}},
    "RNN": {1: _FIRST, 7: {}, 14: {"layout": 0}, 22: {}},
}
_REMOVED = {"output_sequence": 7}
_TYPES = {"activations": "STRINGS", "activation_alpha": "FLOATS", "activation_beta": "FLOATS", "clip": "FLOAT",
          "direction": "STRING"}  # all others: INT


def is_recurrent(node: onnx.NodeProto) -> bool:
    return node.op_type in _CELLS and node.domain in ("", "ai.onnx")


class RecurrentNode:
    """A GRU, LSTM or RNN node with checked attributes.

    session: keeps what is compiled for the node. device, options: what it runs on, and what to force in its plans.

    Raises InvalidArgumentError for any other node, and for an attribute that the operator's version does not allow.
    """

    def __init__(self, node: onnx.NodeProto, opset_version: int, session: Session,
                 device: Device | int | str | None = None, options: Options = Options()) -> None:
        self.operator = f"{node.op_type} node {node.name!r}" if node.name else f"{node.op_type} node"
        if not is_recurrent(node):
            raise InvalidArgumentError(self.operator, "op_type", f"{node.domain}:{node.op_type}", "one of " + ", ".join(_CELLS))
        self._node = node
        self._cell = _CELLS[node.op_type]
        self._version = _version(self.operator, node, opset_version)
        self._attributes = _attributes(self.operator, node, self._version)
        self._hidden_size = self._attributes.pop("hidden_size")
        self._attributes.pop("output_sequence", None)  # Y is given exactly when the node names it
        outputs = list(node.output)
        if not any(outputs) or len(outputs) > len(self._cell.outputs):
            raise InvalidArgumentError(self.operator, "output", outputs,
                                       f"1 to {len(self._cell.outputs)} names, at least one not empty")
        self._wanted = [bool(name) for name, _ in zip_longest(outputs, self._cell.outputs)]
        self._session, self._device, self._options = session, device, options
        self._last: tuple[list[Any], ElementType | None] = ([], None)  # how the last inputs that were taken as they are lay

    @property
    def fields(self) -> dict[str, str]:
        """The node's names of inputs and outputs, by DirectML field."""
        inputs = zip(_input_fields(self._cell), self._node.input)
        return {field: name for field, name in (*inputs, *zip(self._cell.outputs, self._node.output)) if name}

    @property
    def is_batch_first(self) -> bool:
        return bool(self._attributes.get("layout"))

    def problems(self) -> list[Problem]:
        """Problems of the last runs, each of the last few sizes once."""
        return self._session.problems()

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.operator, self._cell, self._attributes, self._wanted, self._device, self._options)

    def run(self, inputs: Sequence[Any] | Mapping[str, Any]) -> list[np.ndarray]:
        """The outputs that the node names. Arguments and errors: see `run_node`."""
        checked, _ = self.convert(inputs)
        x = checked["InputTensor"]
        if x is not None and x.ndim == 3 and 0 in x.shape[:2]:
            return self._zeros(x, checked)
        return self._session.run(self.operator, self.settings, checked)

    def _zeros(self, x: np.ndarray, arrays: Arrays) -> list[np.ndarray]:
        """Outputs of a run without time steps or rows: Y is empty, and last states are 0, as for rows of length 0. Refuses what
        a run with steps and rows would refuse.
        """
        settings = self.settings
        given = {field: array for field, array in arrays.items() if array is not None}
        weights = {field: array for field, array in given.items() if field in WEIGHTS}
        others = [field for field in given if field not in WEIGHTS]
        settings.problem(self.operator, weights | settings.zeros(weights, 1, 1, others))
        layout = settings.attributes["layout"]
        sizes = settings.sizes(weights, *x.shape[1::-1] if layout else x.shape[:2])
        for field in others:
            if given[field].shape != (shape := onnx_shape(self._cell, field, layout, sizes)):
                raise InvalidArgumentError(self.operator, self._cell.arguments[field], given[field].shape, str(shape))
        if "SequenceLengthsTensor" in given:
            check_lengths(self.operator, given["SequenceLengthsTensor"], sizes["T"])
        return [np.zeros(onnx_shape(self._cell, field, layout, sizes), x.dtype)
                for field, is_wanted in zip(self._cell.outputs, settings.wanted) if is_wanted]

    def warm_up(self, weights: Mapping[str, np.ndarray], t: int, b: int) -> None:
        """Make all that a run with these sizes needs. weights: by name."""
        self._session.prepare(self.operator, self.settings, self._example(weights, t, b))

    def problem(self, weights: Mapping[str, np.ndarray], t: int, b: int) -> Problem:
        """The problem of a run with these sizes. weights: by name."""
        return self.settings.problem(self.operator, self._example(weights, t, b))[0]

    def _example(self, weights: Mapping[str, np.ndarray], t: int, b: int) -> Arrays:
        """Checked inputs of these sizes, by field."""
        return self.convert(self.examples(weights, t, b))[0]

    def examples(self, weights: Mapping[str, np.ndarray], t: int, b: int) -> dict[str, np.ndarray]:
        """Inputs of these sizes, by name, the weights among them."""
        fields = self.fields
        given = {field: weights[name] for field, name in fields.items() if field in WEIGHTS}
        others = [field for field in self._cell.inputs if field in fields and field not in given]
        given |= self.settings.zeros(given, t, b, others)
        return {fields[field]: array for field, array in given.items()}

    def convert(self, inputs: Sequence[Any] | Mapping[str, Any]) -> tuple[Arrays, ElementType]:
        """The checked inputs by field, and their type. Those that lie as the last ones did are not checked again."""
        if not isinstance(inputs, Mapping) or any(name not in inputs for name in self._input_names.values()):
            return self._converted(inputs)
        given = {field: inputs[name] for field, name in self._input_names.items()}
        key = [(type(array), array.dtype, array.shape, array.strides) for array in given.values() if type(array) is np.ndarray]
        last, element = self._last
        if element is not None and key == last:
            return {**self._left_out, **given}, element
        checked, element = self._converted(inputs)
        if all(checked[field] is array for field, array in given.items()):
            self._last = key, element
        return checked, element

    @cached_property
    def _input_names(self) -> dict[str, str]:
        return {field: name for field, name in self.fields.items() if field in self._cell.inputs}

    @cached_property
    def _left_out(self) -> dict[str, None]:
        return dict.fromkeys(field for field in self._cell.inputs if field not in self._input_names)

    def _converted(self, inputs: Sequence[Any] | Mapping[str, Any]) -> tuple[Arrays, ElementType]:
        arrays = _inputs(self.operator, self._cell, self._node, inputs)
        _check_types(self.operator, self._cell, self._version, arrays)
        found = np.shape(arrays["RecurrenceTensor"])[-1:]
        if self._hidden_size is not None and found and found[0] != self._hidden_size:
            raise InvalidArgumentError(self.operator, "hidden_size", self._hidden_size, f"{found[0]}, the last dimension of R")
        return convert(self.operator, self._cell, arrays)


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
    results = RecurrentNode(node, opset, shared_session, named_device(device)).run(inputs)
    return namedtupledict("Outputs", [name for name in node.output if name])(*results)


def named_device(device: Device | int | str | None) -> Device | int | str | None:
    """The device, or None for "CPU" and "CUDA", the kinds of device that onnx.backend's callers name."""
    return None if isinstance(device, str) and device.split(":")[0] in ("CPU", "CUDA") else device


def _version(operator: str, node: onnx.NodeProto, opset: int) -> int:
    """The version of the node's operator in an opset."""
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
            raise InvalidArgumentError(operator, f"attribute {attribute.name}",
                                       f"one that operator version {version} does not have", "one of " + ", ".join(allowed))
        expected = _TYPES.get(attribute.name, "INT")
        if attribute.type != onnx.AttributeProto.AttributeType.Value(expected) or attribute.name in given:
            found = "a second one" if attribute.name in given else onnx.AttributeProto.AttributeType.Name(attribute.type)
            raise InvalidArgumentError(operator, f"attribute {attribute.name}", found, f"one, of type {expected}")
        given[attribute.name] = attribute_value(operator, attribute)
    return allowed | given


def attribute_value(operator: str, attribute: onnx.AttributeProto) -> Any:
    """Value of an attribute. operator: its name in errors."""
    try:
        return _plain(onnx.helper.get_attribute_value(attribute))
    except ValueError as error:  # a reference to a function's attribute outside of a function, or text that is not UTF-8
        raise InvalidArgumentError(operator, f"attribute {attribute.name}", str(error), "a value") from None


def _plain(value: Any) -> Any:
    """The value with bytes decoded to text. An empty list becomes None, as it means the same as an absent attribute."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value] or None
    return value


def _input_fields(cell: Cell) -> list[str]:
    """DirectML fields of a cell's inputs, in ONNX's order."""
    return [field for field in cell.arguments if field in cell.inputs]


def _inputs(operator: str, cell: Cell, node: onnx.NodeProto, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by DirectML field, for the node's inputs in ONNX's order."""
    fields = _input_fields(cell)
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
    """sequence_lens must be int32; X of a type that the operator's version has; all others of X's type."""
    allowed = [row.name for row in element_types.ALL if row.onnx_since <= version]
    for field, array in arrays.items():
        if array is None:
            continue
        dtype = _type_name(getattr(array, "dtype", type(array).__name__))
        expected = ["int32"] if field == "SequenceLengthsTensor" else allowed
        if dtype not in expected:
            raise InvalidArgumentError(operator, cell.arguments[field], dtype, " or ".join(expected))
        if field == "InputTensor":
            allowed = [dtype]


@cache
def _type_name(dtype: Any) -> str:
    """numpy takes a microsecond or two to say it."""
    return str(dtype)
