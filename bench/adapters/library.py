"""What adapters share: a library as the conformance suite asks it, and one that loads ONNX models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench.cases import Case
from bench.models import STATE_INPUTS, node_of
from bench.nodes import Node, lines_of_onnx
from bench.runner import Runner, zero_arrays

Call = Callable[[Mapping[str, np.ndarray]], Sequence[Any]]


class Computes(ABC):
    """A library that computes nodes. description: its version and device."""

    description: dict[str, str]

    @abstractmethod
    def compute(self, node: Node) -> dict[str, np.ndarray]:
        """A node's outputs by ONNX's names, in ONNX's shapes.

        Raises UnsupportedError for what cannot be said in the library's terms; what it raises itself is a refusal.
        """

    @abstractmethod
    def code(self, node: Node) -> str:
        """A program in the library's own terms, of few lines and without vkdml, that prints its outputs of a node."""


class OnnxLibrary(Computes):
    """A library that loads ONNX models. lines: what runs `model` on `arrays` and prints the outputs, for `code`."""

    lines: str

    @abstractmethod
    def load(self, node: Node) -> Call:
        """A function from the inputs of a node's model to its outputs, as the library's own objects."""

    def to_numpy(self, outputs: Sequence[Any]) -> list[np.ndarray]:
        return list(outputs)

    def compute(self, node: Node) -> dict[str, np.ndarray]:
        return dict(zip(node.outputs, self.to_numpy(self.load(node)(node.feeds)), strict=True))

    def code(self, node: Node) -> str:
        return lines_of_onnx(node) + self.lines

    def prepare(self, case: Case) -> dict[str, Runner]:
        """One way to call it: from numpy to numpy."""
        node = node_of(case)
        call, given = self.load(node), node.feeds
        return {"host": Runner(case, lambda *states: call({**given, **dict(zip(STATE_INPUTS, states))}),
                               lambda: zero_arrays(case), self.to_numpy)}
