"""The command `vkdml explain` on models: where nodes run, the sizes that they get, and times. More of it is in ../test_cli.py."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.faces.onnx.support import GRU, IF, H, I, model, weights
from vkdml import cli

pytestmark = pytest.mark.device

DECLARED = """g (float[7,B,3] x) => (float[T,7,D,4] y) {
    a = Transpose <perm=[1,0,2]> (x)
    y = GRU <hidden_size=4, layout=1> (a, W, R, B) }"""
FED = GRU.format("GRU <hidden_size=4>").replace("float[T,B,3] x", "float[T,B,3] x, float[1,12,3] W, float[1,12,4] R, float[1,24] B")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(DECLARED, weights()), "declared.onnx")
    onnx.save(model(FED), "fed.onnx")
    onnx.save(model(IF, weights()), "if.onnx")
    np.save("x.npy", np.ones((6, 2, I), np.float32))
    np.save("true.npy", np.array(True))
    for name, array in weights().items():
        np.save(f"{name}.npy", array)


def explain(capsys, *arguments):
    assert cli.main(["explain", *arguments]) == 0
    return capsys.readouterr().out


def told(capsys, *arguments):
    return json.loads(explain(capsys, *arguments, "--json"))


def test_where_nodes_run(capsys, folder):
    report = told(capsys, "declared.onnx")
    assert (report["nodes"], report["assignment"]) == (2, [
        {"runs_on": "device", "nodes": 1, "operators": {"GRU": 1}},
        {"runs_on": "onnxruntime", "nodes": 1, "operators": {"Transpose": 1}}])
    lines = [line.split() for line in explain(capsys, "declared.onnx").splitlines()]
    assert ["onnxruntime", "1", "Transpose", "1"] in lines


@pytest.mark.parametrize(("arguments", "sizes"), [([], (7, 1)), (["-B", "5"], (7, 5)), (["-T", "30", "-B", "5"], (30, 5))])
def test_sizes_are_the_models_own_unless_given(capsys, folder, arguments, sizes):
    (found,) = told(capsys, "declared.onnx", *arguments)["operators"]["GRU node"]
    assert (found["T"], found["B"]) == sizes


def test_sizes_of_a_run(capsys, folder):
    """Of nodes whose weights are fed, too, and of a branch that did not run none."""
    given = [part for name in ("x", "W", "R", "B") for part in ("--input", f"{name}={name}.npy")]
    (found,) = told(capsys, "fed.onnx", *given)["operators"]["GRU node"]
    assert [found[name] for name in "TBIH"] == [6, 2, I, H]
    proto = onnx.load("if.onnx")  # whose weights may be fed
    for name, array in weights().items():
        proto.graph.input.append(helper.make_tensor_value_info(name, 1, array.shape))
    onnx.save(proto, "overridable.onnx")
    given = ["--input", "x=x.npy", "--input", "c=true.npy"]
    found = told(capsys, "overridable.onnx", *given, "--input", "W=W.npy")["operators"]
    assert sorted(len(rows) for rows in found.values()) == [0, 1]
    found = told(capsys, "if.onnx", *given)["operators"]
    assert sorted(len(rows) for rows in found.values()) == [0, 1]
    assert ": it was not run" in explain(capsys, "if.onnx", *given)


def test_times(capsys, folder):
    (found,) = told(capsys, "declared.onnx", "-T", "20")["operators"]["GRU node"]
    assert found["estimated ms"] > 0
    assert found["measured ms"] is None
    (found,) = told(capsys, "declared.onnx", "-T", "20", "--measure")["operators"]["GRU node"]
    measured = found["measured ms"]
    assert 3 <= measured["runs"] <= 31
    assert 0 < measured["min"] <= measured["median"] <= measured["max"]
    assert measured["gave up"] == 0
    out = explain(capsys, "gru-20x1x8x16", "--measure")
    assert "estimated time" in out
    assert "the median of" in out


@pytest.mark.parametrize(("arguments", "message"), [
    (["if.onnx", "--input", "x=x.npy", "-T", "5"], "-T: the arrays of --input say that"),
    (["if.onnx", "--input", "x=x.npy"], "--input: given x; the model needs each of these once: x tensor(float) ['T', 'B', 3]; c tensor(bool)"),
    (["gru-1x1x1x1", "--input", "x=x.npy"], "--input: only for a model"),
])
def test_wrong_usage(capsys, folder, arguments, message):
    with pytest.raises(SystemExit) as error:
        cli.main(["explain", *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err
