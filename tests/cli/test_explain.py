"""The command `vkdml explain`: where a model's nodes run, the sizes that they get, plans, memory and times."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import vkdml
from tests.faces.onnx.support import GRU, IF, H, I, model, weights
from tests.test_cli import run
from vkdml.operators import cells
from vkdml_lab.suite.support import make_desc

pytestmark = pytest.mark.device

DECLARED = """g (float[7,B,3] x) => (float[T,7,D,4] y) {
    a = Transpose <perm=[1,0,2]> (x)
    y = GRU <hidden_size=4, layout=1> (a, W, R, B) }"""
FED = GRU.format("GRU <hidden_size=4>").replace("float[T,B,3] x", "float[T,B,3] x, float[1,12,3] W, float[1,12,4] R, float[1,24] B")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, proto in {"declared": model(DECLARED, weights()), "fed": model(FED), "if": model(IF, weights())}.items():
        onnx.save(proto, f"{name}.onnx")
    for name, array in {"x": np.ones((6, 2, I), np.float32), "true": np.array(True), **weights()}.items():
        np.save(f"{name}.npy", array)


def explain(capsys, *arguments):
    code, out, _ = run(capsys, "explain", *arguments)
    assert code == 0
    return out


def as_json(capsys, *arguments):
    return json.loads(explain(capsys, *arguments, "--json"))


def test_an_operator(capsys, device):
    arguments = ["lstm-100x2x64x48", "--type", "float16"]
    out, report = explain(capsys, *arguments), as_json(capsys, *arguments)
    for text in (device.info.name, "LSTM: T 100, B 2, I 64, H 48, float16, forward", "schedule", "packed recurrent weights"):
        assert text in out
    (found,) = report["operators"]["LSTM"]
    assert (report["memory_limit"], found["T"], found["H"]) == (device.memory_limit, 100, 48)
    assert found["bytes"] == sum(row["bytes"] for row in found["memory"])
    assert {row["name"]: row["bytes"] for row in found["memory"]}["RecurrenceTensor"] == 4 * 48 * 48 * 2
    desc = make_desc(cells.LSTM, 100, 2, 64, 48, 1, vkdml.DML_TENSOR_DATA_TYPE.FLOAT16, HiddenInitTensor=None,
                     CellMemInitTensor=None, PeepholeTensor=None, SequenceLengthsTensor=None)
    compiled = device.compile_operator(device.create_operator(desc))
    assert found["bytes"] == compiled.memory().total
    executed = [row for row in found["kernels"] if row["when"] == "execution"]
    assert sum(row["dispatches"] for row in executed) == len(compiled.plan.execute)
    assert found["schedule"] == compiled.plan.tiling.loop.schedule


def test_where_nodes_run(capsys, folder):
    report, out = as_json(capsys, "declared.onnx"), explain(capsys, "declared.onnx")
    assert (report["nodes"], report["assignment"]) == (2, [
        {"runs_on": "device", "nodes": 1, "operators": {"GRU": 1}},
        {"runs_on": "onnxruntime", "nodes": 1, "operators": {"Transpose": 1}}])
    assert ["onnxruntime", "1", "Transpose", "1"] in [line.split() for line in out.splitlines()]
    assert "GRU node: T 7, B 1, I 3, H 4, float32, forward" in out
    assert "GRU node: its weights are known only when it runs" in explain(capsys, "fed.onnx")


@pytest.mark.parametrize(("arguments", "sizes"), [([], (7, 1)), (["-B", "5"], (7, 5)), (["-T", "30", "-B", "5"], (30, 5))])
def test_sizes_are_the_models_own_unless_given(capsys, folder, arguments, sizes):
    (found,) = as_json(capsys, "declared.onnx", *arguments)["operators"]["GRU node"]
    assert (found["T"], found["B"]) == sizes
    assert ("\nB is 1 where the model leaves it open: -B sets it.\n" in explain(capsys, "declared.onnx", *arguments)) == (not arguments)


def test_only_axes_that_a_model_leaves_open_are_said(capsys, folder):
    assert "leaves it open" not in explain(capsys, "gru-1x1x3x4")
    assert "leaves it open" not in explain(capsys, "if.onnx", "--input", "x=x.npy", "--input", "c=true.npy")
    assert explain(capsys, "if.onnx").count("leaves it open") == 2


def test_sizes_of_a_run(capsys, folder):
    """Of nodes whose weights are fed, too, and of a branch that did not run none."""
    given = [part for name in ("x", "W", "R", "B") for part in ("--input", f"{name}={name}.npy")]
    (found,) = as_json(capsys, "fed.onnx", *given)["operators"]["GRU node"]
    assert [found[name] for name in "TBIH"] == [6, 2, I, H]
    proto = onnx.load("if.onnx")  # whose weights may be fed
    for name, array in weights().items():
        proto.graph.input.append(helper.make_tensor_value_info(name, 1, array.shape))
    onnx.save(proto, "overridable.onnx")
    given = ["--input", "x=x.npy", "--input", "c=true.npy"]
    for arguments in (["overridable.onnx", *given, "--input", "W=W.npy"], ["if.onnx", *given]):
        assert sorted(len(rows) for rows in as_json(capsys, *arguments)["operators"].values()) == [0, 1]
    assert ": it was not run" in explain(capsys, "if.onnx", *given)


def test_times(capsys, folder):
    (found,) = as_json(capsys, "declared.onnx", "-T", "20")["operators"]["GRU node"]
    assert found["estimated ms"] > 0
    assert found["measured ms"] is None
    (found,) = as_json(capsys, "declared.onnx", "-T", "20", "--measure")["operators"]["GRU node"]
    measured = found["measured ms"]
    assert 3 <= measured["runs"] <= 31
    assert 0 < measured["min"] <= measured["median"] <= measured["max"]
    assert measured["gave up"] == 0
    out = explain(capsys, "declared.onnx", "-T", "20", "--measure")
    assert "estimated time" in out
    assert "the median of" in out


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["conv-1x2x3x4"], 2, "'conv-1x2x3x4' is neither a .onnx file nor CELL-TxBxIxH, such as gru-100x1x256x256"),
    (["gru-1x2x3"], 2, "neither a .onnx file nor"),
    (["none.onnx"], 2, "no file 'none.onnx'"),
    (["gru-1x1x1x1", "-T", "5"], 2, "-T: only for a model"),
    (["gru-1x1x1x1", "--input", "x=x.npy"], 2, "--input: only for a model"),
    (["if.onnx", "--type", "float16"], 2, "--type: a model says that"),
    (["if.onnx", "-B", "0"], 2, "'0' is not a positive whole number"),
    (["if.onnx", "--input", "x=x.npy", "-T", "5"], 2, "-T: the arrays of --input say that"),
    (["if.onnx", "--input", "x=x.npy"], 2,
     "--input: given x; the model needs each of these once: x tensor(float) ['T', 'B', 3]; c tensor(bool)"),
    (["gru-0x1x1x1"], 2, "neither a .onnx file nor"),
    (["gru-100000x10x1000x1000"], 2, "expected at most"),
])
def test_errors_and_exit_codes(capsys, folder, arguments, code, message):
    found, _, error = run(capsys, "explain", *arguments)
    assert (found, message in error) == (code, True), error
