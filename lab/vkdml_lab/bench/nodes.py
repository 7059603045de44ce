"""Node: a recurrent layer as a node of ONNX with its inputs, which libraries compute for `vkdml conformance --target`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkdml_lab.bench.one_node import one_node

WEIGHTS = ("W", "R", "B", "P")  # initializers of an exported model; the others are its inputs
INPUTS = {"GRU": ("X", "W", "R", "B", "sequence_lens", "initial_h"), "RNN": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
          "LSTM": ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")}
OUTPUTS = {"GRU": ("Y", "Y_h"), "RNN": ("Y", "Y_h"), "LSTM": ("Y", "Y_h", "Y_c")}
GATES = {"GRU": 3, "RNN": 1, "LSTM": 4}
ACTIVATIONS = {"GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
ABSENT: dict[str, Any] = {"direction": "forward", "activations": None, "activation_alpha": None, "activation_beta": None,
                          "clip": None, "linear_before_reset": 0, "input_forget": 0, "layout": 0}


@dataclass(frozen=True)
class Node:
    """An ONNX node with its inputs, by name. op: GRU, LSTM or RNN. attributes: those that are set, except hidden_size."""

    op: str
    attributes: Mapping[str, Any]
    inputs: Mapping[str, np.ndarray]

    def get(self, name: str) -> Any:
        """Return the value of an attribute, or ONNX's default if the node does not set it."""
        return self.attributes.get(name, ABSENT[name])

    @property
    def steps(self) -> int:
        return int(self.inputs["X"].shape[1 if self.get("layout") else 0])

    @property
    def batch(self) -> int:
        return int(self.inputs["X"].shape[0 if self.get("layout") else 1])

    @property
    def hidden(self) -> int:
        return int(self.inputs["R"].shape[2])

    @property
    def directions(self) -> int:
        return int(self.inputs["R"].shape[0])

    @property
    def element(self) -> str:
        return self.inputs["X"].dtype.name

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of each last state, and the shape of Y."""
        t, d, b, h = self.steps, self.directions, self.batch, self.hidden
        return ((b, d, h), (b, t, d, h)) if self.get("layout") else ((d, b, h), (t, d, b, h))

    @property
    def outputs(self) -> tuple[str, ...]:
        return OUTPUTS[self.op]

    @property
    def activations(self) -> tuple[str, ...]:
        return tuple(self.get("activations") or ACTIVATIONS[self.op] * self.directions)

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The arrays that a run of the model takes, by name, in order: all inputs but the weights, which the model contains."""
        return {name: self.inputs[name] for name in INPUTS[self.op] if name in self.inputs and name not in WEIGHTS}

    def model(self) -> bytes:
        """Return a serialized ONNX model that consists of this node."""
        return bytes(one_node(self.op, dict(self.inputs), self.element, **self.attributes)[0])


def literal(array: np.ndarray) -> str:
    """Return Python code for an array: nested lists of numbers, each with the fewest digits that restore it."""
    if not array.size:
        return f"zeros({array.shape})"
    wide = array.astype(np.float32 if array.dtype.name == "bfloat16" else array.dtype)
    text = np.array2string(wide, separator=", ", threshold=10**6, max_line_width=10**6, floatmode="unique")
    return re.sub(r"-(0\.)(?!\d)", r"\1", re.sub(r"\s+", " ", text)).replace("[ ", "[")


def literals(node: Node) -> str:
    """Return Python code for a dict of a node's inputs by name, in which arrays are nested lists."""
    return "{" + ", ".join(f'"{name}": {literal(array)}' for name, array in node.inputs.items()) + "}"


def numbers(node: Node) -> str:
    """Return Python code that assigns a dict of a node's inputs by name, as numpy arrays, to the variable `arrays`."""
    element = "float32" if node.element == "bfloat16" else node.element
    return (f"from numpy import array, inf, int32, nan, zeros, {element}\n"
            f"arrays = {literals(node)}\n"
            f'arrays = {{n: array(values, int32 if n == "sequence_lens" else {element}) for n, values in arrays.items()}}\n')
