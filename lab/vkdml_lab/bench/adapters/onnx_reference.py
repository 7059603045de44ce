"""The adapter for the package onnx, which has an evaluator of its own."""

from __future__ import annotations

import onnx
from onnx.reference import ReferenceEvaluator

from vkdml_lab.bench.adapters.library import Call, OnnxLibrary
from vkdml_lab.bench.nodes import Node


class Library(OnnxLibrary):
    lines = ("import onnx\nfrom onnx.reference import ReferenceEvaluator\ndef run(model, arrays):\n"
             "    return ReferenceEvaluator(onnx.load_from_string(model)).run(None, arrays)\n")

    def __init__(self) -> None:
        self.description = {"version": onnx.__version__, "device": "CPU"}

    def load(self, node: Node) -> Call:
        evaluator = ReferenceEvaluator(onnx.load_from_string(node.model()))
        return lambda feeds: list(evaluator.run(None, dict(feeds)))
