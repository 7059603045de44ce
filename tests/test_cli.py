"""The command `vkdml`: what it prints, its JSON and its exit codes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper

import vkdml
from tests.faces.onnx.support import GRU, H, I, model, weights
from vkdml import cli
from vkdml.engine.trust import choices
from vkdml.onnx import InferenceSession
from vkdml.operators import cells
from vkdml_lab.suite.support import make_desc

ACTIVATION = {
    "resources": {"x": {"initialValuesDataType": "FLOAT32", "initialValues": [1, -2, "nan", "inf"]},
                  "y": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}}},
    "dispatchables": {"relu": {"type": "ACTIVATION_RELU", "desc": {
        "InputTensor": {"DataType": "FLOAT32", "Sizes": [4]}, "OutputTensor": {"DataType": "FLOAT32", "Sizes": [4]}}}},
    "commands": [{"type": "dispatch", "dispatchable": "relu", "bindings": {"InputTensor": "x", "OutputTensor": "y"}},
                 {"type": "print", "resource": "y"}]}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with models and inputs, to be in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gru.onnx").write_bytes(model(GRU.format('GRU <hidden_size=4>'), weights()).SerializeToString())
    (tmp_path / "wrong.onnx").write_bytes(model(GRU.format('GRU <hidden_size=5>'), weights()).SerializeToString())
    (tmp_path / "unknown.onnx").write_bytes(model("g (float[2] x) => (float[2] y) { y = NoSuchOperator(x) }").SerializeToString())
    (tmp_path / "relu.json").write_text(json.dumps(ACTIVATION))
    (tmp_path / "bad.json").write_text(json.dumps(ACTIVATION | {"commands": [{"type": "print", "resource": "z"}]}))
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file.json").write_text(json.dumps(ACTIVATION | {"resources": {
        "x": {"initialValues": {"sourcePath": "../x.npy"}}, "y": ACTIVATION["resources"]["y"]}}))
    twice = helper.make_graph([helper.make_node("Neg", ["x"], ["a/b"]), helper.make_node("Abs", ["x"], ["a_b"])], "g",
                              [helper.make_tensor_value_info("x", 1, [2])], [helper.make_empty_tensor_value_info(n) for n in ("a/b", "a_b")])
    (tmp_path / "twice.onnx").write_bytes(helper.make_model(twice, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    wide = model("g (double[T,B,3] x) => (double[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }",
                 {name: array.astype(np.float64) for name, array in weights().items()})
    (tmp_path / "double.onnx").write_bytes(wide.SerializeToString())
    np.save("double.npy", np.zeros((2, 1, I)))
    np.save("a=b.npy", np.ones((5, 2, I), ">f4"))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").touch()
    np.savez(tmp_path / "two.npz", x=np.zeros(2))
    np.save("x.npy", np.random.default_rng(0).standard_normal((5, 2, I)).astype(np.float32))
    np.save("pair.npy", np.zeros(2, np.float32))
    return tmp_path


def run(capsys, *arguments):
    """The exit code, and what is printed to stdout and stderr."""
    try:
        code = cli.main(list(arguments))
    except SystemExit as error:
        code = error.code
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_devices(capsys, device):
    code, out, _ = run(capsys, "devices")
    assert (code, out.count(device.info.name)) == (0, 1)
    assert any(line.startswith("*") and device.info.driver in line for line in out.splitlines())
    assert ("No GPU was found" in out) is all(info.is_cpu for info in device.enumerate())
    code, out, _ = run(capsys, "devices", "--json")
    rows = json.loads(out)
    assert [row["name"] for row in rows if row["is_default"]] == [device.info.name]
    assert rows[device.info.index]["max_storage_buffer_range"] == device.info.max_storage_buffer_range


@pytest.mark.device
def test_devices_are_listed_where_the_wanted_one_is_not_there(capsys, monkeypatch):
    monkeypatch.setenv("VKDML_DEVICE", "foo")
    code, out, _ = run(capsys, "devices")
    assert (code, out.count("*")) == (0, 1)
    assert "VKDML_DEVICE: no Vulkan device 'foo'; the devices are [0] " in out
    code, out, _ = run(capsys, "devices", "--json")
    assert (code, {row["is_default"] for row in json.loads(out)}) == (0, {False})


@pytest.mark.parametrize(("count", "said"), [
    (4, "0.00391 KiB"), (32768, "32 KiB"), (2**27, "128 MiB"), (2**32 - 4, "4 GiB"), (25 * 2**30, "25 GiB")])
def test_sizes_of_devices(count, said):
    assert cli.devices._size(count) == said


@pytest.mark.parametrize(("mode", "told"), [
    ("on", "Tuning of GPUs is on: the best plans for new sizes are timed"), ("", "Tuning of GPUs is on: "),
    ("read", "Tuning of GPUs is read: plans that were kept are used, and nothing is timed"),
    ("off", "Tuning of GPUs is off: the model of costs chooses, and nothing is read")])
def test_devices_tell_what_is_kept_of_gpus(capsys, device, monkeypatch, tmp_path, mode, told):
    monkeypatch.setenv("VKDML_TUNING", mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cli.devices, "profile", lambda info: SimpleNamespace(tuned=True))
    choices.Choices(device.info).put({"meeting": "barrier"}, {"passed": True})
    _, out, _ = run(capsys, "devices")
    assert told in out
    assert "(VKDML_TUNING in the environment: on, read, off)" in out
    assert f"What was measured is in {tmp_path}/vkdml/tuning: 1 files" in out


def test_explain_an_operator(capsys, device):
    arguments = ["explain", "lstm-100x2x64x48", "--type", "float16"]
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    for text in (device.info.name, "LSTM: T 100, B 2, I 64, H 48, float16, forward", "schedule", "packed recurrent weights"):
        assert text in out
    code, out, _ = run(capsys, *arguments, "--json")
    told = json.loads(out)
    (found,) = told["operators"]["LSTM"]
    assert (code, told["memory_limit"], found["T"], found["H"]) == (0, device.memory_limit, 100, 48)
    assert found["bytes"] == sum(row["bytes"] for row in found["memory"])
    assert {row["name"]: row["bytes"] for row in found["memory"]}["RecurrenceTensor"] == 4 * 48 * 48 * 2
    desc = make_desc(cells.LSTM, 100, 2, 64, 48, 1, vkdml.DML_TENSOR_DATA_TYPE.FLOAT16, HiddenInitTensor=None,
                     CellMemInitTensor=None, PeepholeTensor=None, SequenceLengthsTensor=None)
    compiled = device.compile_operator(device.create_operator(desc))
    assert found["bytes"] == compiled.memory().total
    executed = [row for row in found["kernels"] if row["when"] == "execution"]
    assert sum(row["dispatches"] for row in executed) == len(compiled.plan.execute)
    assert found["schedule"] == compiled.plan.tiling.loop.schedule


def test_explain_a_model(capsys, files, device):
    (files / "fed.onnx").write_bytes(model(GRU.format("GRU <hidden_size=4>").replace(
        "float[T,B,3] x", "float[T,B,3] x, float[1,12,3] W, float[1,12,4] R, float[1,24] B"), {}).SerializeToString())
    code, out, _ = run(capsys, "explain", "gru.onnx", "-T", "30", "-B", "2")
    assert (code, "GRU node: T 30, B 2, I 3, H 4, float32, forward" in out) == (0, True)
    code, out, _ = run(capsys, "explain", "gru.onnx", "--json")
    assert (code, json.loads(out)["operators"]["GRU node"][0]["T"]) == (0, 1)
    assert "GRU node: its weights are known only when it runs" in run(capsys, "explain", "fed.onnx")[1]


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["conv-1x2x3x4"], 2, "'conv-1x2x3x4' is neither a .onnx file nor CELL-TxBxIxH, such as gru-100x1x256x256"),
    (["gru-1x2x3"], 2, "neither a .onnx file nor"),
    (["none.onnx"], 2, "no file 'none.onnx'"),
    (["gru-1x1x1x1", "-T", "5"], 2, "-T: only for a model"),
    (["gru.onnx", "--type", "float16"], 2, "--type: a model says that"),
    (["gru.onnx", "-B", "0"], 2, "'0' is not a positive whole number"),
    (["gru-0x1x1x1"], 1, "InputTensor.Sizes: found (1, 0, 1, 1)"),
    (["gru-100000x10x1000x1000"], 1, "expected at most"),
])
def test_what_cannot_be_explained(capsys, files, device, arguments, code, message):
    found, _, error = run(capsys, "explain", *arguments)
    assert (found, message in error) == (code, True), error


def test_run(capsys, files, device):
    code, out, _ = run(capsys, "run", "gru.onnx", "--input", "x=x.npy", "--output-dir", "out/deep", "--compare", "onnxruntime")
    assert code == 0
    assert device.info.name in out
    assert "[5, 1, 2, 4]" in out
    assert "True" in out
    np.testing.assert_array_equal(np.load("out/deep/y.npy"), InferenceSession("gru.onnx").run(None, {"x": np.load("x.npy")})[0])


@pytest.mark.device
def test_names_with_an_equals_sign_and_other_byte_orders(capsys, files):
    text = (files / "gru.onnx").read_bytes()
    proto = onnx.load_from_string(text)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "x=y"
    (files / "equals.onnx").write_bytes(proto.SerializeToString())
    code, out, _ = run(capsys, "run", "equals.onnx", "--input", "x=y=a=b.npy", "--compare", "onnxruntime", "--json")
    assert (code, json.loads(out)["outputs"][0]["agrees"]) == (0, True)


@pytest.mark.device
def test_results_are_saved_before_they_are_compared(capsys, files):
    code, _, err = run(capsys, "run", "double.onnx", "--input", "x=double.npy", "--output-dir", "out", "--compare", "onnxruntime")
    assert (code, err.count("\n")) == (1, 1)
    assert np.load("out/y.npy").dtype == np.float64


@pytest.mark.device
def test_run_json(capsys, files):
    code, out, err = run(capsys, "run", "gru.onnx", "--input", "x=x.npy", "--compare", "onnxruntime", "--json")
    told = json.loads(out)
    (output,) = told["outputs"]
    assert (code, err, output["output"], output["type"], output["shape"], output["agrees"]) == (0, "", "y", "float32", [5, 1, 2, H], True)
    assert 0 <= output["absolute"] < 1e-5
    assert told["milliseconds"]["vkdml"]["first"] > 0
    assert (told["nodes"], told["nodes_on_device"]) == (1, 1)


@pytest.mark.device
def test_run_fails_when_results_differ(capsys, files, monkeypatch):
    monkeypatch.setattr(cli.run, "_onnxruntime_alone", lambda model, feed: lambda: [np.full((5, 1, 2, H), 9, np.float32)])
    code, out, _ = run(capsys, "run", "gru.onnx", "--input", "x=x.npy", "--compare", "onnxruntime")
    assert (code, "False" in out) == (1, True)


@pytest.mark.device
def test_a_warning_is_one_line(capsys, files, no_sessions):
    proto = model("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    (files / "neg.onnx").write_bytes(proto.SerializeToString())
    code, _, err = run(capsys, "run", "neg.onnx", "--input", "x=pair.npy")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("vkdml: warning: nothing runs on the Vulkan device: of 1 nodes none is a GRU")


def test_files_outside_of_the_models_folder(capsys, files, device):
    assert run(capsys, "dispatch", "inner/file.json", "--allow-outside")[0] == 0


def test_dispatch(capsys, files, device):
    code, out, _ = run(capsys, "dispatch", "relu.json", "-i", "3")
    first, second, third = out.splitlines()
    assert (code, first, third) == (0, f"Running on '{device.info.name}'", "Resource 'y': 1, 0, nan, inf")
    assert second.startswith("Dispatch 'relu': 3 iterations, ")
    code, out, _ = run(capsys, "dispatch", "relu.json", "--json")
    dispatched, printed = json.loads(out, parse_constant=pytest.fail)["results"]
    assert (code, len(dispatched["milliseconds"]), printed) == (
        0, 1, {"type": "print", "resource": "y", "values": [1, 0, "nan", "inf"]})


@pytest.mark.device
@pytest.mark.parametrize(("arguments", "message"), [
    (("fly",), "invalid choice: 'fly'"),
    (("run",), "required: model"),
    (("run", "none.onnx"), "no file 'none.onnx'"),
    (("run", "gru.onnx", "--input", "x"), "'x' is not NAME=FILE.npy"),
    (("run", "gru.onnx", "--input", "x=text.npy"), "text.npy is no .npy file"),
    (("run", "gru.onnx"), r"--input: given none; the model needs each of these once: x tensor\(float\) \['T', 'B', 3\]"),
    (("run", "gru.onnx", "--input", "z=x.npy"), "--input: given z; the model needs"),
    (("run", "gru.onnx", "--input", "x=x.npy", "--input", "x=x.npy"), "--input: given x, x; the model needs"),
    (("run", "gru.onnx", "--compare", "torch"), "invalid choice: 'torch'"),
    (("dispatch", "relu.json", "-i", "0"), "'0' is not a positive whole number"),
    (("dispatch", "relu.json", "-i", "9" * 5000), "is not a positive whole number"),
    (("run", "gru.onnx", "--input", "x=empty.npy"), "empty.npy is no .npy file"),
    (("run", "gru.onnx", "--input", "x=two.npz"), r"--input: x: two.npz; the model needs tensor\(float\), in a .npy file: an array"),
    (("run", "gru.onnx", "--input", "x=x.npy", "--warmup", "2"), "--warmup: only with --iterations"),
    (("run", "gru.onnx", "--input", "x=x.npy", "--iterations", "0"), "'0' is not a positive whole number"),
])
def test_wrong_usage(capsys, files, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)


@pytest.mark.device
@pytest.mark.parametrize(("arguments", "message"), [
    (("run", "wrong.onnx", "--input", "x=x.npy"), "vkdml: onnxruntime: .*GRU"),
    (("run", "unknown.onnx", "--input", "x=pair.npy"), "vkdml: onnxruntime: .*NoSuchOperator"),
    (("run", "gru.onnx", "--input", "x=pair.npy"), "vkdml: onnxruntime: .*x"),
    (("run", "relu.json",), "vkdml: onnxruntime: .*Protobuf"),
    (("run", "twice.onnx", "--input", "x=pair.npy", "--output-dir", "out"), "vkdml: run: output a/b: found another for the file a_b;"),
    (("run", "double.onnx", "--input", "x=double.npy", "--compare", "onnxruntime"), "vkdml: --compare: onnxruntime: .*double.*leave --compare out"),
    (("run", "gru.onnx", "--input", "x=x.npy", "--output-dir", "x.npy"), "vkdml: .*File exists: 'x.npy'"),
    (("run", "gru.onnx", "--device", "no such"), "vkdml: no Vulkan device 'no such'"),
    (("dispatch", "gru.onnx"), "vkdml: dispatch: model: found gru.onnx; expected a DxDispatch model, .json; `vkdml run` runs ONNX models"),
    (("dispatch", "bad.json"), "vkdml: model: commands.0..resource"),
    (("dispatch", "relu.json", "--device", "9"), "vkdml: no Vulkan device '9'"),
    (("dispatch", "relu.json", "--max-bytes", "32"), "vkdml: model: dispatchables.relu: found 64 bytes"),
    (("dispatch", "inner/file.json"), "vkdml: model: resources.x.initialValues.sourcePath: found ../x.npy"),
])
def test_failed_work(capsys, files, arguments, message):
    code, _, err = run(capsys, *arguments)
    assert code == 1
    assert re.search(message, err)


def test_a_missing_package_is_one_line(capsys, files, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("vkdml.onnx", "vkdml.faces.onnx"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delattr(vkdml.faces, "onnx", raising=False)
    code, _, err = run(capsys, "run", "gru.onnx", "--input", "x=x.npy")
    assert (code, err) == (1, "vkdml: vkdml.onnx needs the package onnxruntime: "
                           "pip install 'ml_dtypes>=0.4' 'onnx>=1.23' 'onnxruntime>=1.25'\n")


@pytest.mark.parametrize("name", ["conformance", "dispatch", "gpu-report", "radeon", "reproduce"])
def test_commands_of_the_laboratory_say_how_to_install_it(capsys, monkeypatch, name):
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    assert run(capsys, name, "--json") == (
        1, "", f"vkdml: vkdml {name} is a command of the package vkdml_lab, which is not installed: in a checkout of vkdml "
        f"pip install ./lab, else pip install vkdml_lab-{vkdml.__version__}-py3-none-any.whl\n")
    code, out, _ = run(capsys, "--help")
    assert (code, f"\n    {name}" in out) == (0, True)


def test_light_imports():
    """The heavy packages are for the faces that need them."""
    code = ("import sys, vkdml, vkdml.cli, vkdml.pydirectml; "
            "print({'onnx', 'onnxruntime', 'torch', 'matplotlib', 'ml_dtypes'} & sys.modules.keys())")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_as_a_module_and_a_command():
    for command in ([sys.executable, "-m", "vkdml"], [Path(sys.executable).parent / "vkdml"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"vkdml {vkdml.__version__}\n"
