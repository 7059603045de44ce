"""Recurrent nodes: attributes and inputs are checked by operator version, then run like those of the numpy functions.

Sources: the ONNX operators GRU, versions 1, 3, 7, 14 and 22, LSTM and RNN, versions 1, 7, 14 and 22.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, zip_longest
from typing import Any

import numpy as np

from ...errors import InvalidArgumentError
from ...operators import cells, element_types
from ...operators.arguments import convert
from ...operators.cells import Cell
from ...operators.problem import LENGTHS, WEIGHTS, Problem, check_lengths
from ...planning.options import Options
from ..directml.device import Device
from ..sessions import Arrays, Session, Settings
from .graph_nodes import GraphNode

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
_MISSPELLED = "GRU", 1, "foward"  # the default of direction in ONNX's schema of GRU 1, which onnxruntime fills in
_TYPES = {"activations": list, "activation_alpha": list, "activation_beta": list, "clip": float, "direction": str}  # else int

Values = dict[str, Any]


class RecurrentNode:
    """A GRU, LSTM or RNN node with checked attributes, and what was compiled for it.

    session: keeps that. device, options: what it runs on, and what to force in its plans. constants: arrays by name, with all
    weights that are known before a run. declared: sizes of X, less than 1 where they may vary.

    Raises InvalidArgumentError for any other node, and for an attribute that the operator's version does not allow.
    """

    def __init__(self, node: GraphNode, session: Session, device: Device | int | str | None = None,
                 options: Options = Options(), constants: Mapping[str, np.ndarray] = {}, declared: Sequence[int] = ()) -> None:
        self.operator = str(node)
        if node.domain or node.op_type not in _CELLS:
            raise InvalidArgumentError(self.operator, "op_type", f"{node.domain}:{node.op_type}", "one of " + ", ".join(_CELLS))
        self.node, self.cell = node, _CELLS[node.op_type]
        versions = _ATTRIBUTES[node.op_type]
        if not isinstance(node.version, int | np.integer) or node.version < min(versions):
            raise InvalidArgumentError(self.operator, "opset_version", node.version, f"a whole number from {min(versions)}")
        self._version = max(version for version in versions if version <= node.version)  # the operator's in an opset
        self._attributes = _attributes(node, self._version)
        self.hidden_size = self._attributes.pop("hidden_size")
        self._attributes.pop("output_sequence", None)  # Y is given exactly when the node names it
        in_order = [field for field in self.cell.arguments if field in self.cell.inputs]
        for kind, names, most in (("input", node.inputs, in_order), ("output", node.outputs, self.cell.outputs)):
            if len(names) > len(most):
                raise InvalidArgumentError(self.operator, kind, names, f"at most {len(most)} names")
        self._given = {field: name for field, name in zip(in_order, node.inputs) if name}
        self._made = {field: name for field, name in zip(self.cell.outputs, node.outputs) if name}
        if (node.op_type, self._version) == ("GRU", 1) and "OutputSingleTensor" not in self._made:
            raise InvalidArgumentError(self.operator, "output", node.outputs, "Y_h among them, as version 1 requires")
        self.fields = {**self._given, **self._made}  # names by DirectML field
        self.inputs, self.outputs = list(self._given.values()), list(self._made.values())
        wanted = [bool(name) or not self._made for name, _ in zip_longest(node.outputs, self.cell.outputs)]
        self.settings = Settings(self.operator, self.cell, self._attributes, wanted, device, options)
        self._left_out = dict.fromkeys(field for field in self.cell.inputs if field not in self._given)
        self.session, self._constants, self._declared = session, constants, list(declared[:2]) or [0, 0]

    @property
    def directions(self) -> int:
        return 2 if self._attributes["direction"] == "bidirectional" else 1

    @property
    def is_batch_first(self) -> bool:
        return bool(self._attributes.get("layout"))

    def run(self, values: Mapping[str, Any]) -> Values:
        """The outputs that the node names, of inputs by name. Raises InvalidArgumentError for an input that the operator's
        version does not allow, and DriverError.
        """
        arrays = self.convert(values)
        x = arrays["InputTensor"]
        is_empty = x is not None and x.ndim == 3 and 0 in x.shape[:2]
        results = self._zeros(arrays) if is_empty else self.session.run(self.operator, self.settings, arrays)
        return dict(zip(self.outputs, results))

    def _zeros(self, arrays: Arrays) -> list[np.ndarray]:
        """Outputs of a run without time steps or rows: Y is empty, and last states are 0, as for rows of length 0. Refuses what
        a run refuses of as many steps or rows as no other size is.
        """
        given = {field: array for field, array in arrays.items() if array is not None}
        sizes = {size for array in given.values() for size in array.shape}
        other = next(size for size in count(1) if size not in sizes)
        stand_ins = {field: array if field in WEIGHTS else np.empty([size or other for size in array.shape], array.dtype)
                     for field, array in given.items()}
        _, shapes = self.settings.problem(self.operator, {**self._left_out, **stand_ins})
        if LENGTHS in given:
            check_lengths(self.operator, given[LENGTHS], given["InputTensor"].shape[self.is_batch_first])
        return [np.zeros([0 if size == other else size for size in shapes[field]], given["InputTensor"].dtype)
                for field in self._made]

    def warm_up(self, t: int, b: int) -> None:
        """Make all that a run with these sizes needs, unless weights are computed or fed."""
        if examples := self.examples(t, b):
            self.session.prepare(self.operator, self.settings, self.convert(examples))

    def problem(self, t: int | None, b: int | None) -> Problem | None:
        """The problem of a run, None if weights are computed or fed. t, b: if None, what the model declares, or else 1."""
        steps, rows = self._declared[::-1] if self.is_batch_first else self._declared
        examples = self.examples(t or max(steps, 1), b or max(rows, 1))
        return self.settings.problem(self.operator, self.convert(examples))[0] if examples else None

    def examples(self, t: int, b: int) -> dict[str, np.ndarray]:
        """Inputs of a run with these sizes, by name, the weights among them; none if weights are computed or fed."""
        known = self._constants
        weights = {field: known[name] for field, name in self._given.items() if field in WEIGHTS and name in known}
        others = [field for field in self._given if field not in weights]
        if set(others) & set(WEIGHTS):
            return {}
        arrays = {**weights, **self.settings.zeros(weights, t, b, others)}
        return {self._given[field]: array for field, array in arrays.items()}

    def convert(self, values: Mapping[str, Any]) -> Arrays:
        """The checked inputs by field. sequence_lens must be int32; X of a type that the operator's version has; all others of
        X's type.
        """
        given = {field: values[name] for field, name in self._given.items()}
        allowed = [row.name for row in element_types.ALL if row.onnx_since <= self._version]
        for field, array in given.items():
            dtype = str(getattr(array, "dtype", type(array).__name__))
            expected = ["int32"] if field == LENGTHS else allowed
            if dtype not in expected:
                raise InvalidArgumentError(self.operator, self.cell.arguments[field], dtype, " or ".join(expected))
            if field == "InputTensor":
                allowed = [dtype]
        found = np.shape(given["RecurrenceTensor"])[-1:] if "RecurrenceTensor" in given else ()
        if self.hidden_size is not None and found and found[0] != self.hidden_size:
            raise InvalidArgumentError(self.operator, "hidden_size", self.hidden_size, f"{found[0]}, the last dimension of R")
        return convert(self.operator, self.cell, {**self._left_out, **given})[0]


def _attributes(node: GraphNode, version: int) -> dict[str, Any]:
    allowed = {name: default for v, names in _ATTRIBUTES[node.op_type].items() if v <= version
               for name, default in names.items() if version < _REMOVED.get(name, version + 1)}
    given = {name: value for name, value in node.attributes.items() if (node.op_type, version, value) != _MISSPELLED}
    for name, value in given.items():
        if name not in allowed:
            raise InvalidArgumentError(str(node), f"attribute {name}",
                                       f"one that operator version {version} does not have", "one of " + ", ".join(allowed))
        kind = _TYPES.get(name, int)
        if not isinstance(value, kind):
            raise InvalidArgumentError(str(node), f"attribute {name}", type(value).__name__, f"one of type {kind.__name__}")
    return allowed | given
