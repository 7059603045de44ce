"""The command `vkdml run`: sequences, maps, times and comparisons. More of it is in ../test_cli.py."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from tests.faces.onnx.support import GRU, B, I, T, model, weights
from vkdml import cli

pytestmark = pytest.mark.device

# In which something recurrent runs, so that nothing warns
SEQUENCE = """g (seq(float[T,B,3]) s, int64 n) => (seq(float[T,D,B,4]) t, float[T,D,B,4] y) {
    x = SequenceAt (s, n)
    y = GRU <hidden_size=4> (x, W, R, B)
    t = SequenceConstruct (y, y) }"""
MAPS = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (map(int64,float) m, float[N,3] p) => (float[O,K] v, seq(map(int64,float)) z) {
    v = ai.onnx.ml.CastMap <cast_to="TO_FLOAT", map_form="DENSE"> (m)
    z = ai.onnx.ml.ZipMap <classlabels_int64s=[1,2,3]> (p) }"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((T, B, I)).astype(np.float32)
    onnx.save(model(GRU.format("GRU <hidden_size=4>"), weights()), "gru.onnx")
    onnx.save(model(SEQUENCE, weights()), "sequence.onnx")
    onnx.save(parser.parse_model(MAPS), "maps.onnx")
    np.save("x.npy", x)
    np.savez("s.npz", x, x[::-1])
    np.save("n.npy", np.array(1))
    np.save("p.npy", rng.random((2, 3), np.float32))
    (tmp_path / "m.json").write_text('{"1": 2.5, "4": 1.0}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "words.json").write_text('{"a": 1}')
    (tmp_path / "broken.json").write_text("{")
    return tmp_path


def run(capsys, *arguments):
    try:
        code = cli.main(["run", *arguments])
    except SystemExit as error:
        code = error.code
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_sequences(capsys, folder):
    arguments = ["sequence.onnx", "--input", "s=s.npz", "--input", "n=n.npy", "--output-dir", "out", "--compare", "onnxruntime"]
    code, out, err = run(capsys, *arguments, "--json")
    (t, y) = json.loads(out)["outputs"]
    assert (code, err) == (0, "")
    assert (t["type"], t["shape"], t["file"], t["agrees"]) == ("list", [2], "out/t.npz", True)
    with np.load("out/t.npz") as saved:
        np.testing.assert_array_equal(saved["arr_1"], np.load("out/y.npy"))
    assert 0 <= y["absolute"] < 1e-5


def test_maps(capsys, folder):
    arguments = ["maps.onnx", "--input", "m=m.json", "--input", "p=p.npy", "--output-dir", "out", "--compare", "onnxruntime", "--json"]
    code, out, _ = run(capsys, *arguments)
    assert (code, [row["agrees"] for row in json.loads(out)["outputs"]]) == (0, [True, True])
    np.testing.assert_array_equal(np.load("out/v.npy"), [[2.5, 1]])
    saved = json.loads((folder / "out" / "z.json").read_text())
    np.testing.assert_allclose([list(row.values()) for row in saved], np.load("p.npy"))
    assert [list(row) for row in saved] == [["1", "2", "3"]] * 2


def test_an_input_with_an_initializer_may_be_given(capsys, folder):
    proto = onnx.load("gru.onnx")
    proto.graph.input.append(helper.make_tensor_value_info("B", 1, [1, 24]))
    onnx.save(proto, "default.onnx")
    np.save("B.npy", np.ones((1, 24), np.float32))
    results = []
    for given in ([], ["--input", "B=B.npy"]):
        arguments = ["default.onnx", "--input", "x=x.npy", *given, "--output-dir", "out", "--compare", "onnxruntime"]
        assert run(capsys, *arguments)[0] == 0
        results.append(np.load("out/y.npy"))
    assert not np.array_equal(*results)


def test_times(capsys, folder):
    arguments = ["gru.onnx", "--input", "x=x.npy", "--iterations", "5", "--warmup", "0", "--compare", "onnxruntime"]
    code, out, _ = run(capsys, *arguments, "--json")
    told = json.loads(out)["milliseconds"]
    assert (code, list(told)) == (0, ["vkdml", "onnxruntime"])
    for times in told.values():
        assert times["iterations"] == 5
        assert 0 < times["min"] <= times["median"] <= times["max"]
    code, out, _ = run(capsys, *arguments)
    lines = [line.split() for line in out.splitlines()]
    assert ["milliseconds", "first", "iterations", "min", "median", "max"] in lines
    assert {"vkdml", "onnxruntime"} <= {line[0] for line in lines if line}


def test_half_precision_is_judged_by_its_own_tolerance(capsys, folder, monkeypatch):
    """Where the output is float32, too."""
    half = {name: array.astype(np.float16) for name, array in weights().items()}
    onnx.save(model("""g (float[T,B,3] x) => (float[T,D,B,4] y) {
        a = Cast <to=10> (x) b = GRU <hidden_size=4> (a, W, R, B) y = Cast <to=1> (b) }""", half), "half.onnx")
    run(capsys, "half.onnx", "--input", "x=x.npy", "--output-dir", "out")
    for error, agrees in ((1e-3, True), (1e-2, False)):
        monkeypatch.setattr(cli.run, "_onnxruntime_alone", lambda model, given, error=error: lambda: [np.load("out/y.npy") + np.float32(error)])
        code, out, _ = run(capsys, "half.onnx", "--input", "x=x.npy", "--compare", "onnxruntime", "--json")
        assert (code, json.loads(out)["outputs"][0]["agrees"]) == (not agrees, agrees)


def test_half_precision_is_compared_with_float32_too(capsys, folder, monkeypatch):
    """Where float16 is in inputs, constants, casts, bodies and outputs. What is near that agrees as far as onnxruntime's is."""
    half = {name: array.astype(np.float16) for name, array in weights().items()}
    onnx.save(model("""g (float16[T,B,3] x) => (float16[T,D,B,4] y) {
        scale = Constant <value = float16 {16896}> ()
        yes = Constant <value = bool {1}> ()
        a = Mul (x, scale)
        b = If (yes) <then_branch = t () => (float16[T,B,3] c) { d = Cast <to=1> (a) c = Cast <to=10> (d) },
                      else_branch = e () => (float16[T,B,3] c2) { c2 = Identity (a) }>
        y = GRU <hidden_size=4> (b, W, R, B) }""", half), "half.onnx")
    np.save("x.npy", np.load("x.npy").astype(np.float16))
    run(capsys, "half.onnx", "--input", "x=x.npy", "--output-dir", "out")
    real, y = cli.run._onnxruntime_alone, np.load("out/y.npy")

    def alone(proto, given):
        """Of the model itself something else, so that it disagrees."""
        return real(proto, given) if isinstance(proto, bytes) else lambda: [y + y.dtype.type(0.1)]

    monkeypatch.setattr(cli.run, "_onnxruntime_alone", alone)
    assert run(capsys, "half.onnx", "--input", "x=x.npy", "--compare", "onnxruntime")[0] == 0
    np.save("x.npy", np.load("x.npy").astype(np.float32))
    y = y.astype(np.float32)
    assert run(capsys, "gru.onnx", "--input", "x=x.npy", "--compare", "onnxruntime")[0] == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (["gru.onnx", "--input", "x=s.npz"], "--input: x: s.npz; the model needs tensor(float), in a .npy file: an array"),
    (["sequence.onnx", "--input", "s=x.npy", "--input", "n=n.npy"], "--input: s: x.npy; the model needs seq(tensor(float)), in a .npz file: arrays"),
    (["maps.onnx", "--input", "m=p.npy", "--input", "p=p.npy"], "--input: m: p.npy; the model needs map(int64,tensor(float)), in a .json file"),
    (["maps.onnx", "--input", "m=list.json", "--input", "p=p.npy"], "--input: m: list.json has list; the model needs map(int64"),
    (["maps.onnx", "--input", "m=words.json", "--input", "p=p.npy"], "--input: m: words.json: invalid literal for int()"),
    (["maps.onnx", "--input", "m=broken.json"], "broken.json is no .json file"),
    (["sequence.onnx", "--input", "s=gru.onnx.npz"], "no file 'gru.onnx.npz'"),
])
def test_files_of_another_kind(capsys, folder, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out, message in err) == (2, "", True), err


def test_texts_are_saved_without_pickle(capsys, folder):
    onnx.save(model("g (string[2] x) => (string[2] y) { y = Identity(x) }"), "words.onnx")
    np.save("words.npy", np.array(["a", "longer"]))
    code, out, _ = run(capsys, "words.onnx", "--input", "x=words.npy", "--output-dir", "out", "--compare", "onnxruntime", "--json")
    assert (code, json.loads(out)["outputs"][0]["agrees"]) == (0, True)
    assert np.load("out/y.npy", allow_pickle=False).tolist() == ["a", "longer"]


def test_an_optional_input_may_be_left_out(capsys, folder):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2]))
    graph = helper.make_graph([helper.make_node("OptionalHasElement", ["o"], ["has"])], "g", [helper.make_value_info("o", kind)],
                              [helper.make_tensor_value_info("has", onnx.TensorProto.BOOL, [])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), "optional.onnx")
    assert run(capsys, "optional.onnx", "--output-dir", "out")[0] == 0
    assert not np.load("out/has.npy")
