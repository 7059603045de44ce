"""Scripts that are written for onnxruntime: the same calls on its module and on vkdml.onnx must give the same."""

import gc
import json
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import OrtValueVector

import vkdml.onnx
from tests.faces.onnx import test_ort_values
from tests.faces.onnx.support import I, model, weights

pytestmark = pytest.mark.device

MODULES = [onnxruntime, vkdml.onnx]
DOCUMENT = Path(__file__).parents[3] / "docs/faces/onnx.md"
SMALL = "g (float[T,B,3] x) => (float[T,D,B,4] z) { a = Tanh(x) y = RNN <hidden_size=4> (a, W, R, B) z = Neg(y) }"
X = np.ones((2, 1, I), np.float32)


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__)
def ort(request) -> ModuleType:
    """Of the name under which scripts import it."""
    return request.param


@pytest.fixture(scope="module")
def small():
    """A model's bytes."""
    return model(SMALL, weights(1)).SerializeToString()


@pytest.fixture(scope="module")
def expected(small):
    return onnxruntime.InferenceSession(small).run(None, {"x": X})[0]


# The module

def test_names_that_scripts_import():
    for name in dir(onnxruntime):
        assert name.startswith("_") or hasattr(vkdml.onnx, name), name
    assert vkdml.onnx.SessionOptions is onnxruntime.SessionOptions
    assert vkdml.onnx.__version__ == onnxruntime.__version__
    assert not hasattr(vkdml.onnx, "__path__")  # it is no package
    script = "from vkdml.onnx import datasets; print(datasets.get_example('mul_1.onnx'))"  # where nobody has imported the module yet
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.endswith("mul_1.onnx\n")
    with pytest.raises(AttributeError, match="nothing_like_it"):
        vkdml.onnx.nothing_like_it  # noqa: B018


def test_members_of_a_session(small):
    session, documented = vkdml.onnx.InferenceSession(small), DOCUMENT.read_text()
    for name in dir(onnxruntime.InferenceSession):
        if not name.startswith("_"):
            assert callable(getattr(session, name)), name
            assert f"`{name}`" in documented, name
    assert set(re.findall(r"`(test_\w+)`", documented)) <= {*globals(), *vars(test_ort_values)}
    with pytest.raises(vkdml.InvalidArgumentError, match=r"expected assignment\(\)"):
        session.get_provider_graph_assignment_info()


def test_a_script_unchanged_but_for_the_import(ort, small, expected):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(small, options, providers=ort.get_available_providers())
    name, = (arg.name for arg in session.get_inputs())
    value = ort.OrtValue.ortvalue_from_numpy(X, "cpu", 0)
    result, = session.run_with_ort_values([session.get_outputs()[0].name], {name: value}, ort.RunOptions())
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)


# Runs

@pytest.mark.parametrize(("names", "count"), [(None, 1), ([], 1), (["z"], 1), (("z",), 1), (["z", "z"], 2)])
def test_names_of_outputs(ort, small, expected, names, count):
    results = ort.InferenceSession(small).run(names, {"x": X})
    np.testing.assert_allclose(results, [expected] * count, atol=1e-6)


@pytest.mark.parametrize("given", [X.tolist(), np.asfortranarray(X), np.ones((4, 1, I), np.float32)[::2], onnxruntime.OrtValue.ortvalue_from_numpy(X)],
                         ids=["list", "columns first", "strides", "OrtValue"])
def test_what_inputs_may_be(ort, small, expected, given):
    np.testing.assert_allclose(ort.InferenceSession(small).run(None, {"x": given})[0], expected, atol=1e-6)


@pytest.mark.parametrize(("names", "feed"), [
    (None, {}), (None, {"x": X, "q": X}), (None, {"q": X}), (["q"], {"x": X}), ("z", {"x": X}), (None, [X]), (None, {"x": X.astype(np.float64)}),
    (None, {"x": X[0]}), (None, {"x": np.ones((2, 1, 4), np.float32)}), (None, {"x": None}), (None, {"x": ["a"]}), (None, {"x": [[[1.0]], [[1.0, 2.0]]]}),
])
def test_what_runs_refuse(ort, small, expected, names, feed):
    session = ort.InferenceSession(small)
    with pytest.raises(Exception, match="."):  # the messages of ours are in test_session.py
        session.run(names, feed)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (0,), (1, 1)])
def test_arrays_in_the_place_of_a_scalar(ort, shape):
    """Any shape."""
    text = "g (float[T,B,3] x, int64 n) => (float[T,D,B,4] y, int64[N] m) { y = GRU <hidden_size=4> (x, W, R, B) m = Identity (n) }"
    y, m = ort.InferenceSession(model(text, weights()).SerializeToString()).run(None, {"x": X, "n": np.full(shape, 7)})
    assert (y.shape, m.shape, m.tolist()) == ((2, 1, 1, 4), shape, np.full(shape, 7).tolist())


@pytest.mark.parametrize("source", [b"", b"nothing", None, 3, "/no/such/file.onnx"])
def test_what_is_no_model(ort, source):
    with pytest.raises(Exception, match="."):
        ort.InferenceSession(source)


def test_paths(ort, small, expected, tmp_path):
    (tmp_path / "model.onnx").write_bytes(small)
    for path in (tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        np.testing.assert_allclose(ort.InferenceSession(path).run(None, {"x": X})[0], expected, atol=1e-6)


@pytest.mark.parametrize(("kind", "given", "expected"), [
    ("int32", [3, 2], np.array([3, 2], np.int32)), ("int64", [3], np.array([3])), ("float", [[1, 2]], np.array([[1, 2]], np.float32)),
    ("bool", [True], np.array([True])), ("string", ["a", "b"], np.array(["a", "b"], object)), ("double", [], np.array([])),
    ("string", np.array(["a", "bc"]), np.array(["a", "bc"], object)), ("string", np.array(["a"], object), np.array(["a"], object)),
])
def test_lists_and_strings(ort, kind, given, expected):
    sizes = ",".join("NM"[:expected.ndim])
    session = ort.InferenceSession(model(
        f"g (float[T,B,3] x, {kind}[{sizes}] n) => (float[T,D,B,4] y, {kind}[{sizes}] m) "
        "{ y = RNN <hidden_size=4> (x, W, R, B) m = Identity (n) }", weights(1)).SerializeToString())
    result = session.run(["m"], {"x": X, "n": given})[0]
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tolist() == expected.tolist()


def test_sequences_and_optionals(ort):
    text = ("g (float[T,B,3] x, seq(float[N]) s, optional(float[N]) o) => (float[T,D,B,4] y, seq(float[N]) t, bool p) "
            "{ y = RNN <hidden_size=4> (x, W, R, B) t = Identity (s) p = OptionalHasElement (o) }")
    session = ort.InferenceSession(model(text, weights(1)).SerializeToString())
    found = [(arg.type, arg.shape) for arg in session.get_inputs()[1:]]
    assert found == [("seq(tensor(float))", []), ("optional(tensor(float))", ["N"])]
    pieces = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    for feed in ({"o": None}, {}):
        found, has = session.run(["t", "p"], {"x": X, "s": pieces, **feed})
        assert [piece.tolist() for piece in found] == [[1, 1], [0, 0, 0]]
        assert not has


def test_asynchronous_runs(ort, small, expected):
    session, done, found = ort.InferenceSession(small), threading.Event(), []

    def finished(results, user_data, error):
        found.append((results, user_data, error))
        done.set()

    session.run_async(["z"], {"x": X}, finished, "mine")
    assert done.wait(60)
    (results, user_data, error), = found
    assert (user_data, error) == ("mine", "")
    np.testing.assert_allclose(results, [expected], atol=1e-6)


def test_a_run_that_is_to_end(ort):
    """Also where no other node than recurrent ones is there to end it."""
    session = ort.InferenceSession(model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = RNN <hidden_size=4> (x, W, R, B) }", weights(1)).SerializeToString())
    options = ort.RunOptions()
    options.log_severity_level, options.log_verbosity_level, options.logid = 4, 1, "mine"
    options.terminate = True
    with pytest.raises(Exception, match="terminate"):
        session.run(None, {"x": X}, options)
    options.terminate = False
    assert session.run(None, {"x": X}, options)[0].shape == (2, 1, 1, 4)


@pytest.mark.parametrize("version", [None, 0, 7])
def test_what_a_model_says_of_itself(ort, version):
    described = model(SMALL, weights(1))
    if version is not None:
        described.model_version = version
    onnx.helper.set_model_props(described, {"author": "me"})
    meta = ort.InferenceSession(described.SerializeToString()).get_modelmeta()
    assert (meta.version, meta.graph_name, meta.producer_name) == (2**63 - 1 if version is None else version, "g", "")
    assert meta.custom_metadata_map == {"author": "me"}


def test_names_types_and_shapes(ort):
    text = "g (float[T,2,3] x, int32[2] n) => (float[T,1,2,4] y, float[1,2,4] h) { y, h = GRU <hidden_size=4> (x, W, R, B, n) }"
    session = ort.InferenceSession(model(text, weights()).SerializeToString())
    found = [(arg.name, arg.type, arg.shape) for arg in (*session.get_inputs(), *session.get_outputs())]
    assert found == [("x", "tensor(float)", ["T", 2, 3]), ("n", "tensor(int32)", [2]), ("y", "tensor(float)", ["T", 1, 2, 4]),
                     ("h", "tensor(float)", [1, 2, 4])]


@pytest.mark.filterwarnings("ignore::vkdml.NothingOnDeviceWarning")
def test_dimensions_with_odd_names_and_without(ort):
    """As tf2onnx names what it does not know, and as PyTorch's first exporter leaves it."""
    text = "g (float[T,2,3] x, float[T,2] z) => (float[T,2,3] y, float[T,2] n) { y = Neg (x) n = Neg (z) }"
    proto = model(text)
    for value, shape in zip((*proto.graph.input, *proto.graph.output), (["unk__332", None, 3], [None, None]) * 2):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, 1, shape))
    session = ort.InferenceSession(proto.SerializeToString())
    for args in (session.get_inputs(), session.get_outputs()):
        assert [arg.shape for arg in args] == [["unk__332", None, 3], [None, None]]


# Bound inputs and outputs

def test_another_sessions_binding(ort, small):
    binding = ort.InferenceSession(small).io_binding()
    with pytest.raises(ValueError, match="session"):
        ort.InferenceSession(small).run_with_iobinding(binding)


def test_memory_that_is_there_already(ort, small, expected):
    session = ort.InferenceSession(small)
    binding, value = session.io_binding(), ort.OrtValue.ortvalue_from_shape_and_type(expected.shape, np.float32, "cpu", 0)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("z", value)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_allclose(value.numpy(), expected, atol=1e-6)
    found, = binding.get_outputs()
    assert (found.shape(), found.device_name(), found.data_type()) == (list(expected.shape), "cpu", "tensor(float)")


def test_a_binding_made_by_its_class(ort, small, expected):
    session = ort.InferenceSession(small)
    binding = ort.IOBinding(session)
    binding.bind_input("x", "cpu", 0, 1, X.shape, X.ctypes.data)  # 1: ONNX's float
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    vector = binding.get_outputs_as_ortvaluevector()
    np.testing.assert_allclose([value.numpy() for value in vector], [expected], atol=1e-6)


def test_vectors_of_ort_values(ort, small, expected):
    session = ort.InferenceSession(small)
    feeds, fetches = OrtValueVector(), OrtValueVector()
    feeds.push_back(ort.OrtValue.ortvalue_from_numpy(X)._get_c_value())
    device = ort.OrtDevice.make("cpu", 0)._get_c_device()
    for _ in range(2):  # an empty vector gets the results, another one is written to
        session.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["z"], fetches, [device])
        np.testing.assert_allclose([value.numpy() for value in fetches], [expected], atol=1e-6)


def test_arrays_outlive_their_ort_values(ort, small, expected):
    """They show an OrtValue's memory, which must not be that of an array that is gone."""
    session = ort.InferenceSession(small)
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(X)}
    array = session.run_with_ort_values(None, feed)[0].numpy()
    others = [session.run(None, {"x": 0 * X}) for _ in range(5)]  # which would use the memory again
    np.testing.assert_allclose(array, expected, atol=1e-6)
    del session
    gc.collect()
    np.testing.assert_allclose(array, expected, atol=1e-6)
    assert len(others) == 5


def test_results_of_a_binding(ort, small, expected):
    session = ort.InferenceSession(small)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    binding.copy_outputs_to_cpu()[0][...] = 7
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], expected, atol=1e-6)
    binding.clear_binding_outputs()
    assert len(binding.get_outputs()) == 0
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_shape_and_type(expected.shape, np.float64))
    with pytest.raises((RuntimeError, ValueError), match="double"):
        session.run_with_iobinding(binding)


# Options of a session

def test_free_dimensions_get_their_sizes(ort):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("T", 2)
    options.add_free_dimension_override_by_denotation("ROWS", 1)
    proto = model(SMALL, weights(1))
    proto.graph.input[0].type.tensor_type.shape.dim[1].denotation = "ROWS"
    session = ort.InferenceSession(proto.SerializeToString(), options)
    assert session.get_inputs()[0].shape == [2, 1, I]
    assert session.get_outputs()[0].shape == [2, 1, 1, 4]
    assert session.run(None, {"x": X})[0].shape == (2, 1, 1, 4)
    with pytest.raises(Exception, match="x"):
        session.run(None, {"x": np.ones((3, 1, I), np.float32)})


def test_one_profile(ort, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, "mine"
    session = ort.InferenceSession(small, options)
    assert session.get_profiling_start_time_ns() > 0
    session.run(None, {"x": X})
    name = session.end_profiling()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert name.startswith("mine_")
    events = json.loads((tmp_path / name).read_text())
    found = [event["args"]["op_name"] for event in sorted(events, key=lambda event: event["ts"]) if event["cat"] == "Node"]
    assert found == ["Tanh", "RNN", "Neg"]
    assert {"pid", "tid", "dur", "ts", "ph", "name", "args", "cat"} == set().union(*events)
    assert session.end_profiling() == ""


def test_a_profile_that_nobody_ends(ort, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ort.SessionOptions()
    options.enable_profiling = True
    ort.InferenceSession(small, options).run(None, {"x": X})
    gc.collect()
    path, = tmp_path.iterdir()
    assert "RNN" in {event["args"].get("op_name") for event in json.loads(path.read_text())}


def test_no_profile_and_no_tuning(ort, small):
    session = ort.InferenceSession(small)
    assert (session.end_profiling(), session.get_profiling_start_time_ns(), session.get_tuning_results()) == ("", 0, [])


def test_one_optimized_model(ort, small, expected, tmp_path):
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = ort.InferenceSession(small, options)
    assert [path.name for path in tmp_path.iterdir()] == ["optimized.onnx"]
    assert session.get_session_options().optimized_model_filepath == str(tmp_path / "optimized.onnx")
    np.testing.assert_allclose(ort.InferenceSession(tmp_path / "optimized.onnx").run(None, {"x": X})[0], expected, atol=1e-6)


def test_options_are_copied(ort, small):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(small, options)
    options.log_severity_level = 4
    assert session.get_session_options().log_severity_level == 3


@pytest.mark.thorough
def test_pieces_share_threads_if_they_shall(tmp_path, small):
    """In a process of its own, whose sessions must all share them then."""
    (tmp_path / "model.onnx").write_bytes(small)
    script = """
import os, sys, numpy, onnxruntime, vkdml.onnx
is_shared = sys.argv[1] == "shared"
if is_shared:
    onnxruntime.set_global_thread_pool_sizes(4, 1)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.use_per_session_threads = 4, not is_shared
vkdml.Device()
before = len(os.listdir("/proc/self/task"))
session = vkdml.onnx.InferenceSession("model.onnx", options)
session.run(None, {"x": numpy.ones((2, 1, 3), numpy.float32)})
print(before, len(os.listdir("/proc/self/task")))"""
    found = [subprocess.run([sys.executable, "-c", script, how], cwd=tmp_path, capture_output=True, text=True, check=True)
             .stdout.splitlines()[-1].split()  # a validation layer says that it is there
             for how in ("own", "shared")]
    own, shared = (int(after) - int(before) for before, after in found)
    assert own - shared == 6  # two pieces; the calling thread is a fourth


# Providers

def test_an_unknown_provider_is_told_once(ort, small, capfd):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        session = ort.InferenceSession(small, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert ["CUDAExecutionProvider" in str(warning.message) for warning in found] == [True]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        ort.InferenceSession(small, providers=["Nobody's"])
    assert len(found) == 1
    assert capfd.readouterr().out.count("Falling back") == 1
    assert session.get_providers()[-1] == "CPUExecutionProvider"
    assert session.get_provider_options()["CPUExecutionProvider"] == {}


def test_providers_may_change(ort, small, expected):
    session = ort.InferenceSession(small)
    session.set_providers(["CPUExecutionProvider"])
    session.set_providers(ort.get_available_providers()[-1:], [{}])
    session.disable_fallback()
    session.enable_fallback()
    session.set_ep_dynamic_options({"nothing": "new"})
    assert session.get_providers()[-1] == "CPUExecutionProvider"
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, atol=1e-6)
    again = ort.InferenceSession(small, providers=session.get_providers(), provider_options=list(session.get_provider_options().values()))
    assert again.get_provider_options() == session.get_provider_options()


def test_what_was_asked(ort, small, monkeypatch):
    """For programs that refuse to run on other providers than those that they asked for."""
    monkeypatch.setenv("VKDML_HIDE_PROVIDER", "1")
    session = ort.InferenceSession(small, providers=["CPUExecutionProvider"])
    assert (session.get_providers(), session.get_provider_options()) == (["CPUExecutionProvider"], {"CPUExecutionProvider": {}})


def test_arguments_by_keyword(ort, small, expected):
    session = ort.InferenceSession(path_or_bytes=small, sess_options=None, providers=None, provider_options=None,
                                   disabled_optimizers=["ConstantFolding"], enable_fallback=0)
    np.testing.assert_allclose(session.run(output_names=None, input_feed={"x": X}, run_options=None)[0], expected, atol=1e-6)


def test_memory(ort, small):
    session = ort.InferenceSession(small)
    for infos in (session.get_input_memory_infos(), session.get_output_memory_infos()):
        assert [(info.name, info.device_id) for info in infos] == [("Cpu", 0)]
    made = session.create_ortvalue_from_shape_and_type(X.shape, np.float32, "cpu")
    made.update_inplace(X)
    assert session.run(None, {"x": made})[0].shape == (2, 1, 1, 4)


# Initializers that are inputs as well

@pytest.mark.parametrize("version", [3, 4, 8])
def test_initializers_that_may_be_fed(ort, version):
    """From version 4 of ONNX's files on. Their shapes are what other nodes are computed from, here a reshaped weight's."""
    text = ("g (float[T,B,3] x, float[1,4,3] W, int64[3] shape, float[1,B,4] h) => (float[T,1,B,4] y) "
            "{ r = Reshape (R, shape) y = RNN <hidden_size=4> (x, W, r, , , h) }")
    own = weights(1)
    initial = {"W": own["W"], "R": own["R"], "shape": np.array([1, 4, 4]), "h": np.zeros((1, 1, 4), np.float32)}
    proto = model(text, initial)
    proto.ir_version = version
    if version == 3:
        proto.graph.input.append(onnx.helper.make_tensor_value_info("R", 1, [1, 4, 4]))
    session = ort.InferenceSession(proto.SerializeToString())
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    overridable = {arg.name: (arg.type, arg.shape) for arg in session.get_overridable_initializers()}
    assert overridable.get("W") == (("tensor(float)", [1, 4, 3]) if version > 3 else None)
    first, = session.run(None, {"x": X})
    if version == 3:
        with pytest.raises(Exception, match="W"):
            session.run(None, {"x": X, "W": own["W"]})
        return
    zeros = {"W": np.zeros_like(own["W"]), "h": np.zeros((1, 1, 4), np.float32)}
    assert not session.run(None, {"x": X, **zeros})[0].any()
    ones = session.run(None, {"x": X, "h": np.ones((1, 1, 4), np.float32)})[0]
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    np.testing.assert_allclose(ones, reference.run(None, {"x": X, "h": np.ones((1, 1, 4), np.float32)})[0], atol=1e-6)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], first)
    with pytest.raises(Exception, match="W"):
        session.run(None, {"x": X, "W": np.zeros((1, 4, 2), np.float32)})


# Nothing to compute. onnxruntime ends the process for a GRU without steps, and for a GRU or LSTM without rows

@pytest.mark.parametrize(("steps", "rows", "op"), [(0, 2, "LSTM"), (0, 2, "RNN"), (3, 0, "RNN"), (0, 0, "RNN")])
def test_no_steps_or_no_rows(ort, steps, rows, op):
    gates = {"LSTM": 4, "RNN": 1}[op]
    text = (f"g (float[T,B,3] x, float[1,B,4] h) => (float[T,1,B,4] y, float[1,B,4] last) "
            f"{{ a = Tanh (x) y, last = {op} <hidden_size=4> (a, W, R, B, , h) }}")
    session = ort.InferenceSession(model(text, weights(gates)).SerializeToString())
    y, last = session.run(None, {"x": np.ones((steps, rows, I), np.float32), "h": np.ones((1, rows, 4), np.float32)})
    assert (y.shape, last.shape, y.dtype) == ((steps, 1, rows, 4), (1, rows, 4), np.float32)
    assert not last.any()
