"""Runs ONNX's own backend tests of GRU, LSTM and RNN nodes, with ONNX's runner and tolerances."""

import re
from unittest import mock

import numpy as np
import pytest
from onnx.backend.test import BackendTest
from onnx.backend.test.case import node
from onnx.backend.test.case.node import gru, lstm, rnn  # noqa: F401  (adds their cases to those of node)

from vkdml.onnx import VulkanBackend
from vkdml_lab.suite import recording

pytestmark = pytest.mark.device

RECURRENT = r"test_(gru|lstm|rnn|simple_rnn)_.*_cpu$"  # "cpu" is the runner's name of the default device


class RecordingBackend(VulkanBackend):
    """The backend under test. It stores the node's operator, which ONNX's runner does not pass to its comparison."""

    @classmethod
    def prepare(cls, model, *args, **kwargs):
        (node,) = model.graph.node
        cls.operator, cls.outputs = node.op_type, [name for name in node.output if name]
        return super().prepare(model, *args, **kwargs)


class RecordingRunner(BackendTest):
    @classmethod
    def assert_similar_outputs(cls, ref_outputs, outputs, rtol, atol, *args, **kwargs):
        found, expected = (dict(zip(RecordingBackend.outputs, map(np.asarray, arrays), strict=True)) for arrays in (outputs, ref_outputs))
        recording.compare(RecordingBackend.operator, ref_outputs[0].dtype.name, ["ONNX backend test"], found, expected, (rtol, atol))
        super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, *args, **kwargs)


def cases(kind):
    """Return the cases of recurrent nodes. Replaces a function that makes those of all nodes, which takes tens of seconds."""
    return node._NodeTestCases if kind == "node" else []


with mock.patch("onnx.backend.test.runner.load_model_tests", cases):
    OnnxBackendNodeModelTest = RecordingRunner(RecordingBackend, __name__).test_cases["OnnxBackendNodeModelTest"]
for name in [name for name in vars(OnnxBackendNodeModelTest) if name.startswith("test_") and not re.match(RECURRENT, name)]:
    delattr(OnnxBackendNodeModelTest, name)  # the runner would list other devices as skipped


def test_they_are_there():
    names = [name for name in vars(OnnxBackendNodeModelTest) if name.startswith("test_")]
    assert len(names) >= 15
    assert {name.split("_")[1] for name in names} == {"gru", "lstm", "rnn", "simple"}
