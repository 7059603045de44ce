"""The command `vkdml run`: files of all kinds, times, comparisons and errors."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from tests.faces.onnx.support import GRU, B, H, I, T, model, weights
from tests.test_cli import run
from vkdml import cli
from vkdml.onnx import InferenceSession

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
    """The current folder, with models and inputs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((T, B, I)).astype(np.float32)
    wide = {name: array.astype(np.float64) for name, array in weights().items()}
    named = model(GRU.format("GRU <hidden_size=4>"), weights())
    named.graph.input[0].name = named.graph.node[0].input[0] = "x=y"
    named.graph.output[0].name = named.graph.node[0].output[0] = "\x1b"
    twice = helper.make_graph([helper.make_node("Neg", ["x"], ["a/\x1b"]), helper.make_node("Abs", ["x"], ["a__"])], "g",
                              [helper.make_tensor_value_info("x", 1, [2])], [helper.make_empty_tensor_value_info(n) for n in ("a/\x1b", "a__")])
    for name, proto in {
            "gru": model(GRU.format("GRU <hidden_size=4>"), weights()), "wrong": model(GRU.format("GRU <hidden_size=4, clip=-1.0>"), weights()),
            "unknown": model("g (float[2] x) => (float[2] y) { y = NoSuchOperator(x) }"), "neg": model("g (float[2] x) => (float[2] y) { y = Neg(x) }"),
            "double": model("g (double[T,B,3] x) => (double[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }", wide), "equals": named,
            "twice": helper.make_model(twice, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            "sequence": model(SEQUENCE, weights()), "maps": parser.parse_model(MAPS)}.items():
        onnx.save(proto, f"{name}.onnx")
    for name, array in {"x": x, "n": np.array(1), "p": rng.random((2, 3), np.float32), "double": np.zeros((2, 1, I)),
                        "a=b": np.ones((5, 2, I), ">f4"), "pair": np.zeros(2, np.float32)}.items():
        np.save(f"{name}.npy", array)
    np.savez("s.npz", x, x[::-1])
    for name, text in {"m.json": '{"1": 2.5, "4": 1.0}', "list.json": "[1]", "words.json": '{"a": 1}', "broken.json": "{", "text.npy": "no array",
                       "empty.npy": ""}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_tensor_with_times(capsys, folder, device):
    arguments = ["run", "gru.onnx", "--input", "x=x.npy", "--output-dir", "out/deep", "--compare", "onnxruntime", "--iterations", "5", "--warmup", "0"]
    code, out, err = run(capsys, *arguments, "--json")
    report = json.loads(out)
    (output,) = report["outputs"]
    assert (code, err, output["output"], output["type"], output["shape"], output["agrees"]) == (0, "", "y", "float32", [T, 1, B, H], True)
    assert 0 <= output["absolute"] < 1e-5
    assert (report["device"], report["nodes"], report["nodes_on_device"]) == (device.info.name, 1, 1)
    np.testing.assert_array_equal(np.load("out/deep/y.npy"), InferenceSession("gru.onnx").run(None, {"x": np.load("x.npy")})[0])
    assert list(report["milliseconds"]) == ["vkdml", "onnxruntime"]
    for times in report["milliseconds"].values():
        assert times["iterations"] == 5
        assert times["first"] > 0
        assert 0 < times["min"] <= times["median"] <= times["max"]
    code, out, _ = run(capsys, *arguments)
    lines = [line.split() for line in out.splitlines()]
    assert (code, device.info.name in out, "[5, 1, 2, 4]" in out, "True" in out) == (0, True, True, True)
    assert ["milliseconds", "first", "iterations", "min", "median", "max"] in lines
    assert {"vkdml", "onnxruntime"} <= {line[0] for line in lines if line}
    assert re.fullmatch(rf"vkdml on {re.escape(device.info.name)} is (faster|slower) than .*, medians of 5 runs\.", out.splitlines()[-1])


@pytest.mark.parametrize(("ours", "theirs", "said"), [
    (11.0, 5.9, "vkdml on a GPU is slower than onnxruntime's CPU here, 1.86 times: 11 ms beside 5.9 ms, medians of 20 runs."),
    (0.25, 1.0, "vkdml on a GPU is faster than onnxruntime's CPU here, 4.00 times: 0.25 ms beside 1 ms, medians of 20 runs.")])
def test_a_sentence_says_which_is_faster(ours, theirs, said):
    vkdml, onnxruntime = ({"first": 900.0, "iterations": 20, "median": median} for median in (ours, theirs))
    assert cli.run._verdict("a GPU", vkdml, onnxruntime) == said
    assert "--iterations 20 says" in cli.run._verdict("a GPU", {"first": 900.0}, {"first": 1.0})


def test_names_with_an_equals_sign_and_other_byte_orders(capsys, folder):
    code, out, _ = run(capsys, "run", "equals.onnx", "--input", "x=y=a=b.npy", "--compare", "onnxruntime", "--json")
    assert (code, json.loads(out)["outputs"][0]["agrees"]) == (0, True)
    assert r"\x1b" in run(capsys, "run", "equals.onnx", "--input", "x=y=a=b.npy")[1]  # a terminal would obey it


def test_results_are_saved_before_they_are_compared(capsys, folder):
    code, _, err = run(capsys, "run", "double.onnx", "--input", "x=double.npy", "--output-dir", "out", "--compare", "onnxruntime")
    assert code == 1
    assert re.fullmatch("vkdml: --compare: onnxruntime: .*double.*leave --compare out\n", err)
    assert np.load("out/y.npy").dtype == np.float64


def test_a_warning_is_one_line(capsys, folder, no_sessions):
    code, _, err = run(capsys, "run", "neg.onnx", "--input", "x=pair.npy")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("vkdml: warning: nothing runs on the Vulkan device: of 1 nodes none is a GRU")


def test_sequences(capsys, folder):
    arguments = ["sequence.onnx", "--input", "s=s.npz", "--input", "n=n.npy", "--output-dir", "out", "--compare", "onnxruntime"]
    code, out, err = run(capsys, "run", *arguments, "--json")
    (t, y) = json.loads(out)["outputs"]
    assert (code, err) == (0, "")
    assert (t["type"], t["shape"], t["file"], t["agrees"]) == ("list", [2], "out/t.npz", True)
    with np.load("out/t.npz") as saved:
        np.testing.assert_array_equal(saved["arr_1"], np.load("out/y.npy"))
    assert 0 <= y["absolute"] < 1e-5


def test_maps(capsys, folder):
    arguments = ["maps.onnx", "--input", "m=m.json", "--input", "p=p.npy", "--output-dir", "out", "--compare", "onnxruntime", "--json"]
    code, out, _ = run(capsys, "run", *arguments)
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
        assert run(capsys, "run", *arguments)[0] == 0
        results.append(np.load("out/y.npy"))
    assert not np.array_equal(*results)


def test_half_precision_is_judged_by_its_own_tolerance(capsys, folder, monkeypatch):
    """Where the output is float32, too."""
    half = {name: array.astype(np.float16) for name, array in weights().items()}
    onnx.save(model("""g (float[T,B,3] x) => (float[T,D,B,4] y) {
        a = Cast <to=10> (x) b = GRU <hidden_size=4> (a, W, R, B) y = Cast <to=1> (b) }""", half), "half.onnx")
    run(capsys, "run", "half.onnx", "--input", "x=x.npy", "--output-dir", "out")
    for error, agrees in ((1e-3, True), (1e-2, False)):
        monkeypatch.setattr(cli.run, "_onnxruntime_alone", lambda model, given, error=error: lambda: [np.load("out/y.npy") + np.float32(error)])
        code, out, _ = run(capsys, "run", "half.onnx", "--input", "x=x.npy", "--compare", "onnxruntime", "--json")
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
    run(capsys, "run", "half.onnx", "--input", "x=x.npy", "--output-dir", "out")
    real, y = cli.run._onnxruntime_alone, np.load("out/y.npy")

    def alone(proto, given):
        """Of the model itself something else, so that it disagrees."""
        return real(proto, given) if isinstance(proto, bytes) else lambda: [y + y.dtype.type(0.1)]

    monkeypatch.setattr(cli.run, "_onnxruntime_alone", alone)
    assert run(capsys, "run", "half.onnx", "--input", "x=x.npy", "--compare", "onnxruntime")[0] == 0
    np.save("x.npy", np.load("x.npy").astype(np.float32))
    y = y.astype(np.float32)
    assert run(capsys, "run", "gru.onnx", "--input", "x=x.npy", "--compare", "onnxruntime")[0] == 1


@pytest.mark.parametrize(("arguments", "message"), [
    ("none.onnx", "no file 'none.onnx'"),
    ("gru.onnx --input x", "'x' is not NAME=FILE.npy"),
    ("gru.onnx --input x=text.npy", "text.npy is no .npy file"),
    ("gru.onnx --input x=empty.npy", "empty.npy is no .npy file"),
    ("gru.onnx", "--input: given none; the model needs each of these once: x tensor(float) ['T', 'B', 3]"),
    ("gru.onnx --input z=x.npy", "--input: given z; the model needs"),
    ("gru.onnx --input x=x.npy --input x=x.npy", "--input: given x, x; the model needs"),
    ("gru.onnx --compare torch", "invalid choice: 'torch'"),
    ("gru.onnx --input x=x.npy --warmup 2", "--warmup: only with --iterations"),
    ("gru.onnx --input x=x.npy --iterations 0", "'0' is not a positive whole number"),
    ("gru.onnx --input x=s.npz", "--input: x: s.npz; the model needs tensor(float), in a .npy file: an array"),
    ("sequence.onnx --input s=x.npy --input n=n.npy", "--input: s: x.npy; the model needs seq(tensor(float)), in a .npz file: arrays"),
    ("sequence.onnx --input s=gru.onnx.npz", "no file 'gru.onnx.npz'"),
    ("maps.onnx --input m=p.npy --input p=p.npy", "--input: m: p.npy; the model needs map(int64,tensor(float)), in a .json file"),
    ("maps.onnx --input m=list.json --input p=p.npy", "--input: m: list.json has list; the model needs map(int64"),
    ("maps.onnx --input m=words.json --input p=p.npy", "--input: m: words.json: invalid literal for int()"),
    ("maps.onnx --input m=broken.json", "broken.json is no .json file"),
    ("gru.onnx --input x=pair.npy", "vkdml: onnxruntime: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT"),
    ("twice.onnx --input x=pair.npy --output-dir out", r"vkdml: run: output a/\x1b: found another for the file a__;"),
])
def test_wrong_usage(capsys, folder, arguments, message):
    code, out, err = run(capsys, "run", *arguments.split())
    assert (code, out, message in err) == (2, "", True), err


@pytest.mark.parametrize(("arguments", "message"), [
    ("wrong.onnx --input x=x.npy", r"vkdml: onnxruntime: [\s\S]*\nnot on the device: GRU node '': .* clip: found -1"),
    ("unknown.onnx --input x=pair.npy", "vkdml: onnxruntime: .*NoSuchOperator"),
    ("m.json", "vkdml: onnxruntime: .*Protobuf"),
    ("gru.onnx --input x=x.npy --output-dir x.npy", "vkdml: .*File exists: 'x.npy'"),
    ("gru.onnx --device none", "vkdml: no Vulkan device 'none'"),
])
def test_failed_work(capsys, folder, arguments, message):
    code, _, err = run(capsys, "run", *arguments.split())
    assert (code, bool(re.search(message, err))) == (1, True), err


def test_texts_are_saved_without_pickle(capsys, folder):
    onnx.save(model("g (string[2] x) => (string[2] y) { y = Identity(x) }"), "words.onnx")
    np.save("words.npy", np.array(["a", "longer"]))
    code, out, _ = run(capsys, "run", "words.onnx", "--input", "x=words.npy", "--output-dir", "out", "--compare", "onnxruntime", "--json")
    assert (code, json.loads(out)["outputs"][0]["agrees"]) == (0, True)
    assert np.load("out/y.npy", allow_pickle=False).tolist() == ["a", "longer"]


def test_an_optional_input_may_be_left_out(capsys, folder):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2]))
    graph = helper.make_graph([helper.make_node("OptionalHasElement", ["o"], ["has"])], "g", [helper.make_value_info("o", kind)],
                              [helper.make_tensor_value_info("has", onnx.TensorProto.BOOL, [])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), "optional.onnx")
    assert run(capsys, "run", "optional.onnx", "--output-dir", "out")[0] == 0
    assert not np.load("out/has.npy")
