"""Tests bench/accuracy.py, which measures errors in ULP (units in the last place): its problems and its report."""

import json

import numpy as np
import pytest

from vkdml.operators import cells
from vkdml_lab.bench import accuracy


@pytest.mark.parametrize("cell", [cells.GRU, cells.LSTM, cells.RNN], ids=lambda cell: cell.name)
def test_other_libraries_get_the_same_problem(cell):
    """ONNX Runtime and PyTorch give the reference's results, so each gets all biases, and the gates in its own order."""
    arrays = accuracy.problem(cell, "float32", accuracy.Size(5, 7), 0)
    expected = getattr(accuracy.reference, cell.kernel)(**arrays, **accuracy.attributes(cell, None))[0]
    for run in (accuracy.by_onnxruntime, accuracy.by_torch):
        np.testing.assert_allclose(run(cell, arrays, None), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.device
@pytest.mark.thorough
def test_the_report(tmp_path, capsys):
    assert accuracy.main(["--quick", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / accuracy.DATA).read_text())
    assert {row["element"] for row in found["rows"]} == {"float32", "float16", "bfloat16", "float64"}
    assert {row["operator"] for row in found["rows"]} == {"GRU", "LSTM", "RNN", "sum"}
    for row in found["rows"]:
        for name, error in row["largest"].items():
            assert (error is None) == (name == accuracy.ONNXRUNTIME and row["element"] in ("bfloat16", "float64"))
        assert 0 < row["usual"]["vkdml"] <= row["largest"]["vkdml"] < (0.51 if "16" in row["element"] else 5000)
    assert len(found["activations"]) == len(accuracy.ACTIVATIONS)
    text = (tmp_path / accuracy.MARKDOWN).read_text()
    assert f"({accuracy.PICTURE})" in text
    assert (tmp_path / accuracy.PICTURE).read_bytes().startswith(b"\x89PNG")
