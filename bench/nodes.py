"""A recurrent layer as a node of ONNX: what every library is asked, by the benchmark and by `vkdml conformance --target`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from onnx import helper

WEIGHTS = ("W", "R", "B", "P")  # initializers of a model, as in exported models; the others are its inputs
INPUTS = {"GRU": ("X", "W", "R", "B", "sequence_lens", "initial_h"), "RNN": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
          "LSTM": ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")}
OUTPUTS = {"GRU": ("Y", "Y_h"), "RNN": ("Y", "Y_h"), "LSTM": ("Y", "Y_h", "Y_c")}
GATES = {"GRU": 3, "RNN": 1, "LSTM": 4}
ACTIVATIONS = {"GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
ABSENT: dict[str, Any] = {"direction": "forward", "activations": None, "activation_alpha": None, "activation_beta": None,
                          "clip": None, "linear_before_reset": 0, "input_forget": 0, "layout": 0}


@dataclass(frozen=True)
class Node:
    """A node with its inputs. attributes: those given, but hidden_size. inputs: those given, by ONNX's names."""

    op: str
    attributes: Mapping[str, Any]
    inputs: Mapping[str, np.ndarray]

    def get(self, name: str) -> Any:
        """An attribute, or what ONNX takes where it is left out."""
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
        """Those of a last state and of Y."""
        t, d, b, h = self.steps, self.directions, self.batch, self.hidden
        return ((b, d, h), (b, t, d, h)) if self.get("layout") else ((d, b, h), (t, d, b, h))

    @property
    def outputs(self) -> tuple[str, ...]:
        return OUTPUTS[self.op]

    @property
    def activations(self) -> tuple[str, ...]:
        return tuple(self.get("activations") or ACTIVATIONS[self.op] * self.directions)

    @property
    def opset(self) -> int:
        return 22 if self.element == "bfloat16" else 14

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs of its model, in their order."""
        return {name: self.inputs[name] for name in INPUTS[self.op] if name in self.inputs and name not in WEIGHTS}

    @cached_property
    def proto(self) -> Any:
        names = [name if name in self.inputs else "" for name in INPUTS[self.op]]
        while not names[-1]:
            names.pop()
        return helper.make_node(self.op, names, list(self.outputs), hidden_size=self.hidden, **self.attributes)

    def model(self) -> bytes:
        """A serialized model of this node alone."""
        kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in self.inputs.items()}
        weights = [helper.make_tensor(name, kinds[name], self.inputs[name].shape, self.inputs[name].tobytes(), raw=True)
                   for name in WEIGHTS if name in self.inputs]
        state, y = self.shapes
        graph = helper.make_graph(
            [self.proto], self.op.lower(),
            [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in self.feeds.items()],
            [helper.make_tensor_value_info(name, kinds["X"], y if name == "Y" else state) for name in self.outputs], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                  ir_version=8 if self.opset < 22 else 10)
        return bytes(model.SerializeToString())


def literal(array: np.ndarray) -> str:
    """An array as Python text, each number in the fewest digits that give it back."""
    if not array.size:
        return f"zeros({array.shape})"
    wide = array.astype(np.float32 if array.dtype.name == "bfloat16" else array.dtype)
    text = np.array2string(wide, separator=", ", threshold=10**6, max_line_width=10**6, floatmode="unique")
    return re.sub(r"-(0\.)(?!\d)", r"\1", re.sub(r"\s+", " ", text)).replace("[ ", "[")


def numbers(node: Node) -> str:
    """Lines of numpy that make a node's inputs, as `arrays`."""
    listed = ", ".join(f'"{name}": {literal(array)}' for name, array in node.inputs.items())
    element = "float32" if node.element == "bfloat16" else node.element
    return (f"from numpy import array, inf, int32, nan, zeros, {element}\n"
            f"arrays = {{{listed}}}\n"
            f'arrays = {{n: array(values, int32 if n == "sequence_lens" else {element}) for n, values in arrays.items()}}\n')


def lines_of_onnx(node: Node) -> str:
    """Lines that make `arrays`, of the model's inputs, and `model`, its bytes."""
    attributes = "".join(f", {name}={value!r}" for name, value in node.attributes.items())
    weights = tuple(name for name in WEIGHTS if name in node.inputs)
    return (f"from onnx import helper as o, numpy_helper\n{numbers(node)}"
            f"node = o.make_node({node.op!r}, {list(node.proto.input)}, {list(node.outputs)}, "
            f"hidden_size={node.hidden}{attributes})\n"
            f"weights = [numpy_helper.from_array(arrays.pop(name), name) for name in {weights}]\n"
            "inputs = [o.make_tensor_value_info(n, o.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()]\n"
            f"outputs = [o.make_tensor_value_info(n, inputs[0].type.tensor_type.elem_type, None) for n in node.output]\n"
            f'graph = o.make_graph([node], "case", inputs, outputs, weights)\n'
            f'model = o.make_model(graph, opset_imports=[o.make_opsetid("", {node.opset})], ir_version=8)\n'
            "model = model.SerializeToString()\n")

