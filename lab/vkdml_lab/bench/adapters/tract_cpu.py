"""The adapter for Sonos's tract, on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tract

from vkdml_lab.bench.adapters.library import Call, OnnxLibrary
from vkdml_lab.bench.nodes import Node
from vkdml_lab.bench.runner import UnsupportedError


class Library(OnnxLibrary):
    lines = ('import tract\ndef run(model, arrays):\n    open("case.onnx", "wb").write(model)\n'
             '    found = tract.onnx().load("case.onnx").into_model().into_runnable().run([*arrays.values()])\n'
             "    return [output.to_numpy() for output in found]\n")

    def __init__(self) -> None:
        self.description = {"version": version("tract"), "device": "CPU"}

    def load(self, node: Node) -> Call:
        if node.element == "bfloat16":
            raise UnsupportedError("bfloat16: tract's Python has no array of it")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(node.model())
            run = tract.onnx().load(path).into_model().into_runnable()

        def call(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            return [output.to_numpy() for output in run.run([np.ascontiguousarray(array) for array in feeds.values()])]

        return call
