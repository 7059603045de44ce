"""The adapter for any Python function that computes a node's outputs from its operator, attributes and inputs."""

from __future__ import annotations

import sys
from importlib import import_module

import numpy as np

from vkdml_lab.bench.adapters.library import Computes
from vkdml_lab.bench.nodes import ABSENT, Node, numbers
from vkdml_lab.bench.runner import UnsupportedError
from vkdml_lab.processes import UnavailableError


class Library(Computes):
    """A function f(op, attributes, inputs) -> outputs, as a library. name: module.function. folder: the module's folder."""

    def __init__(self, name: str, folder: str = "") -> None:
        sys.path.insert(0, folder)
        self._module, _, self._name = name.rpartition(".")
        module = import_module(self._module)
        if not callable(getattr(module, self._name, None)):
            raise UnavailableError(f"{self._module} has no function {self._name}")
        self._function = getattr(module, self._name)
        self.description = {"version": str(getattr(module, "__version__", "")), "device": name}

    def compute(self, node: Node) -> dict[str, np.ndarray]:
        attributes = {**ABSENT, **node.attributes, "op": node.op, "hidden_size": node.hidden}
        try:
            outputs = self._function(node.op, attributes, dict(node.inputs))
        except NotImplementedError as error:
            raise UnsupportedError(str(error) or "NotImplementedError") from None
        return {name: np.asarray(array) for name, array in outputs.items()}

    def code(self, node: Node) -> str:
        attributes = {**ABSENT, **node.attributes, "op": node.op, "hidden_size": node.hidden}
        return (f"from {self._module} import {self._name}\n{numbers(node)}"
                f"print({self._name}({node.op!r}, {attributes!r}, arrays))\n")
