"""Base classes of adapters: Computes, for libraries that compute nodes, and OnnxLibrary, for those that load ONNX models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.nodes import Node, literals
from vkdml_lab.bench.one_node import TEXT
from vkdml_lab.bench.runner import Runner, zero_arrays

Call = Callable[[Mapping[str, np.ndarray]], Sequence[Any]]
STATE_INPUTS = ("initial_h", "initial_c")


def node_of(case: Case, dtype: str = "float32") -> Node:
    """Return a case as an ONNX node. Its initial states are 0, but calls may replace them."""
    lengths = {"sequence_lens": case.lengths.astype(np.int32)} if case.ragged else {}
    arrays = {name: array.astype(dtype) for name, array in case.arrays().items()}
    return Node(case.cell.upper(), case.attributes, {**arrays, **lengths, **dict(zip(STATE_INPUTS, zero_arrays(case, dtype)))})


def from_numpy(case: Case, call: Call, given: Mapping[str, np.ndarray],
               to_numpy: Callable[[Sequence[Any]], list[np.ndarray]] = list) -> Runner:
    """Return a Runner on numpy arrays. call: computes outputs. given: its inputs; each call replaces the initial states."""
    return Runner(case, lambda *states: call({**given, **dict(zip(STATE_INPUTS, states))}),
                  lambda: zero_arrays(case, given["X"].dtype), to_numpy)


class Computes(ABC):
    """A library that computes ONNX nodes. description: its version and device. setup: source that each program begins with."""

    description: dict[str, str]

    @property
    def setup(self) -> str:
        return ""

    @abstractmethod
    def compute(self, node: Node) -> dict[str, np.ndarray]:
        """Return a node's outputs by ONNX's names, in ONNX's shapes.

        Raises UnsupportedError if the library cannot express the node. The library's own errors count as refusals.
        """

    @abstractmethod
    def code(self, node: Node) -> str:
        """Return the source of a short program that computes a node with this library alone, and prints the outputs."""


class OnnxLibrary(Computes):
    """A library that loads ONNX models. lines: source of a function run(model, arrays) -> outputs, which code() uses."""

    lines: str

    @property
    def setup(self) -> str:
        return f"{TEXT}\n{self.lines}"

    @abstractmethod
    def load(self, node: Node) -> Call:
        """Load a node's model. Returns a function from inputs, by ONNX's names, to outputs, as the library's own objects."""

    def to_numpy(self, outputs: Sequence[Any]) -> list[np.ndarray]:
        return list(outputs)

    def compute(self, node: Node) -> dict[str, np.ndarray]:
        return dict(zip(node.outputs, self.to_numpy(self.load(node)(node.feeds)), strict=True))

    def code(self, node: Node) -> str:
        said = [repr(node.op), literals(node), *([repr(node.element)] if node.element != "float32" else []),
                *(f"{name}={value!r}" for name, value in node.attributes.items())]
        return f"print(run(*one_node({', '.join(said)})))\n"

    def prepare(self, case: Case) -> dict[str, Runner]:
        """Return {"host": Runner}, as there is only one way to call the layer: from numpy to numpy."""
        node = node_of(case)
        return {"host": from_numpy(case, self.load(node), node.feeds, self.to_numpy)}
