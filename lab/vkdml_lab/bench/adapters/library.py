"""What adapters share: a library as the conformance suite asks it, and one that loads ONNX models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.models import STATE_INPUTS, node_of
from vkdml_lab.bench.nodes import Node, literals
from vkdml_lab.bench.one_node import TEXT
from vkdml_lab.bench.runner import Runner, zero_arrays

Call = Callable[[Mapping[str, np.ndarray]], Sequence[Any]]


class Computes(ABC):
    """A library that computes nodes. description: its version and device. setup: how all programs of `code` begin."""

    description: dict[str, str]

    @property
    def setup(self) -> str:
        return ""

    @abstractmethod
    def compute(self, node: Node) -> dict[str, np.ndarray]:
        """A node's outputs by ONNX's names, in ONNX's shapes.

        Raises UnsupportedError for what cannot be said in the library's terms; what it raises itself is a refusal.
        """

    @abstractmethod
    def code(self, node: Node) -> str:
        """A program in the library's own terms, of few lines and without vkdml, that prints its outputs of a node."""


class OnnxLibrary(Computes):
    """A library that loads ONNX models. lines: a function run(model, arrays) that returns the outputs, for programs."""

    lines: str

    @property
    def setup(self) -> str:
        return f"{TEXT}\n{self.lines}"

    @abstractmethod
    def load(self, node: Node) -> Call:
        """A function from the inputs of a node's model to its outputs, as the library's own objects."""

    def to_numpy(self, outputs: Sequence[Any]) -> list[np.ndarray]:
        return list(outputs)

    def compute(self, node: Node) -> dict[str, np.ndarray]:
        return dict(zip(node.outputs, self.to_numpy(self.load(node)(node.feeds)), strict=True))

    def code(self, node: Node) -> str:
        said = [repr(node.op), literals(node), *([repr(node.element)] if node.element != "float32" else []),
                *(f"{name}={value!r}" for name, value in node.attributes.items())]
        return f"print(run(*one_node({', '.join(said)})))\n"

    def prepare(self, case: Case) -> dict[str, Runner]:
        """One way to call it: from numpy to numpy."""
        node = node_of(case)
        call, given = self.load(node), node.feeds
        return {"host": Runner(case, lambda *states: call({**given, **dict(zip(STATE_INPUTS, states))}),
                               lambda: zero_arrays(case), self.to_numpy)}
