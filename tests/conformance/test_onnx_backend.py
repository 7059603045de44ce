"""The official ONNX backend node tests of the operators that this package has."""

import contextlib
import io
import warnings

import numpy as np
import pytest
from onnx.backend.test.loader import load_model_tests

from tests.support import ATOL, RTOL
from vkdml.onnx import run_node


def cases():
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it makes the cases of every operator, some of which divide by zero
        return [case for case in load_model_tests(kind="node") if case.name.startswith(("test_gru_", "test_lstm_", "test_rnn_", "test_simple_rnn_"))]


CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_official(case):
    (node,) = case.model.graph.node
    for inputs, expected in case.data_sets:
        results = run_node(node, inputs, opset_version=case.model.opset_import[0].version)
        for result, wanted in zip(results, expected, strict=True):
            assert result.shape == wanted.shape
            np.testing.assert_allclose(result, wanted, rtol=RTOL, atol=ATOL)


def test_they_are_there():
    found = {case.model.graph.node[0].op_type for case in CASES}
    assert found == {"GRU", "LSTM", "RNN"}
    assert len(CASES) >= 15
