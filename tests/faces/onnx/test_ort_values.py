"""Values and options that onnxruntime has beside arrays: the same calls on its module and on vkdml.onnx must give the same."""

import json
import pickle
import traceback

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, SparseTensor

import vkdml.onnx
from tests.faces.onnx.support import B, I, T, model, weights
from vkdml import InvalidArgumentError

pytestmark = pytest.mark.device

SMALL = "g (float[T,B,3] x) => (float[T,D,B,4] y) { y = RNN <hidden_size=4> (x, W, R, B) }"
X = np.ones((T, B, I), np.float32)


@pytest.fixture(params=[onnxruntime, vkdml.onnx], ids=lambda module: module.__name__)
def ort(request):
    """Of the name under which scripts import it."""
    return request.param


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
                                  TensorProto.FLOAT8E5M2FNUZ], ids=TensorProto.DataType.Name)
def test_types_without_arrays_in_onnxruntime(ort, kind):
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    proto = model(SMALL, weights(1), 22)
    proto.ir_version = 10
    proto.graph.node.append(helper.make_node("Identity", ["n"], ["m"]))
    for values, name in ((proto.graph.input, "n"), (proto.graph.output, "m")):
        values.append(helper.make_tensor_value_info(name, kind, ["N"]))
    session = ort.InferenceSession(proto.SerializeToString())
    given = np.array([-2, 0, 0.5, 1, np.nan], dtype)
    raw = given.view(f"u{given.itemsize}")
    memory = np.zeros_like(raw)
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind)
    result, = session.run_with_ort_values(["m"], {"x": ort.OrtValue.ortvalue_from_numpy(X), "n": value})
    assert (result.element_type(), result.shape()) == (kind, [5])
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_input("n", "cpu", 0, kind, [5], raw.ctypes.data)
    binding.bind_output("m", "cpu", 0, kind, [5], memory.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory.view(dtype).astype(np.float32), given.astype(np.float32))
    if ort is vkdml.onnx:  # the other returns no such arrays
        for fed in (given, value):
            result, = session.run(["m"], {"x": X, "n": fed})
            np.testing.assert_array_equal(result.astype(np.float32), given.astype(np.float32))
            assert result.dtype == dtype


def test_values_of_recurrent_nodes_without_arrays_in_onnxruntime():
    session = vkdml.onnx.InferenceSession(model(
        "g (bfloat16[T,B,3] x, bfloat16[1,4,3] w, bfloat16[1,4,4] r) => (bfloat16[T,D,B,4] y) { y = RNN <hidden_size=4> (x, w, r) }",
        {}, 22))
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    feed = {name: np.ones(shape, dtype) for name, shape in (("x", (2, 1, 3)), ("w", (1, 4, 3)), ("r", (1, 4, 4)))}
    value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(feed["x"].view(np.uint16), TensorProto.BFLOAT16)
    result, = session.run_with_ort_values(None, feed | {"x": value})
    assert result.data_type() == "tensor(bfloat16)"
    np.testing.assert_array_equal(session.run(None, feed | {"x": value})[0].view(np.uint16), session.run(None, feed)[0].view(np.uint16))


def test_an_ort_value_that_is_no_tensor():
    session = vkdml.onnx.InferenceSession(model(SMALL, weights(1)))
    sparse = onnxruntime.SparseTensor.sparse_coo_from_numpy([2], np.ones(1, np.float32), np.array([1]), onnxruntime.OrtDevice.make("cpu", 0))
    with pytest.raises(InvalidArgumentError, match="input_feed: x: found an OrtValue, sparse_tensor.float.; expected an array"):
        session.run(None, {"x": onnxruntime.OrtValue.ort_value_from_sparse_tensor(sparse)})


def test_sparse_results(ort):
    values = helper.make_tensor("values", TensorProto.FLOAT, [2], [1.5, -2])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("places", TensorProto.INT64, [2], [1, 3]), [2, 2])
    proto = model(SMALL, weights(1))
    proto.graph.node.append(helper.make_node("Constant", [], ["s"], sparse_value=sparse))
    proto.graph.output.append(helper.make_sparse_tensor_value_info("s", TensorProto.FLOAT, [2, 2]))
    session = ort.InferenceSession(proto.SerializeToString())
    assert isinstance(session.run(["s"], {"x": X})[0], SparseTensor)
    result, = session.run_with_ort_values(["s"], {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    found = result.as_sparse_tensor()
    assert (found.dense_shape(), found.values().tolist(), found.as_coo_view().indices().tolist()) == ([2, 2], [1.5, -2], [1, 3])


def test_sparse_inputs(ort):
    proto = model(SMALL, weights(1))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.node.append(helper.make_node("SparseToDenseMatMul", ["s", "d"], ["p"], domain="com.microsoft"))
    proto.graph.input.extend([helper.make_sparse_tensor_value_info("s", TensorProto.FLOAT, [2, 2]),
                              helper.make_tensor_value_info("d", TensorProto.FLOAT, [2, 2])])
    proto.graph.output.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, [2, 2]))
    session = ort.InferenceSession(proto.SerializeToString())
    assert session.get_inputs()[1].type == "sparse_tensor(float)"
    sparse = ort.SparseTensor.sparse_coo_from_numpy([2, 2], np.array([1.5, -2], np.float32), np.array([[0, 1], [1, 1]]), ort.OrtDevice.make("cpu", 0))
    feed = {"x": X, "d": np.eye(2, dtype=np.float32)}
    given = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
    result, = session.run_with_ort_values(["p"], given | {"s": ort.OrtValue.ort_value_from_sparse_tensor(sparse)})
    np.testing.assert_array_equal(result.numpy(), [[0, 1.5], [0, -2]])


def test_texts_with_zero_bytes(ort):
    session = ort.InferenceSession(model(
        "g (float[T,B,3] x, string[N] s) => (float[T,D,B,4] y, bool[N] found) { y = RNN <hidden_size=4> (x, W, R, B)"
        "  t = Constant <value_strings=[\"ab\"]> () found = Equal(s, t) }", weights(1), 19).SerializeToString())
    for texts, expected in (([b"ab", b"a\0"], [True, False]), ([b"ab\0", b"abc"], [False, False])):
        np.testing.assert_array_equal(session.run(["found"], {"x": X, "s": np.array(texts, np.void)})[0], expected)


def test_classes_of_errors(ort):
    """Scripts catch those of onnxruntime."""
    proto = model("g (float[T,B,3] x) => (float[N] y) { z = RNN <hidden_size=4> (x, W, R, B) y = NoSuchOperator(z) }", weights(1))
    with pytest.raises((Fail, InvalidGraph), match="NoSuchOperator") as raised:
        ort.InferenceSession(proto.SerializeToString())
    if ort is vkdml.onnx:
        assert isinstance(raised.value, vkdml.OnnxRuntimeError)
        assert traceback.format_exception_only(raised.value)[0].startswith("vkdml.errors.OnnxRuntimeError: onnxruntime: ")
        copied = pickle.loads(pickle.dumps(raised.value))
        assert (type(copied), str(copied)) == (vkdml.OnnxRuntimeError, str(raised.value))


# Options

BRANCHES = """g (float[T,B,3] x, bool c) => (float[T,1,B,4] y) { y = If (c) <
    then_branch = t () => (float[T,1,B,4] z) <float[1,4,3] V = {0,0,0,0,0,0,0,0,0,0,0,0}> { z = RNN <hidden_size=4> (x, V, R, B) },
    else_branch = e () => (float[T,1,B,4] z) { z = RNN <hidden_size=4> (x, W, R, B) } > }"""


@pytest.mark.parametrize("name", ["W", "V"])
def test_initializers_from_the_options(ort, name):
    """Also those of bodies, and without a change of what the caller has."""
    given, others = weights(1), weights(1)
    proto = model(BRANCHES, given)
    feed = {"x": X, "c": np.array(name == "V")}
    others["W"] = given["W"] * 3
    expected, = onnxruntime.InferenceSession(model(SMALL, others).SerializeToString()).run(None, {"x": X})
    value, options = ort.OrtValue.ortvalue_from_numpy(others["W"]), ort.SessionOptions()
    options.add_initializer(name, value)
    session = ort.InferenceSession(proto.SerializeToString(), options)
    np.testing.assert_allclose(session.run(None, feed)[0], expected, atol=1e-6)
    if ort is vkdml.onnx:
        session = ort.InferenceSession(proto, options)
        np.testing.assert_allclose(session.run(None, feed)[0], expected, atol=1e-6)
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(proto.graph.initializer[0]), given["W"])


@pytest.mark.parametrize(("array", "found"), [(np.zeros((1, 4, 2), np.float32), r"float32 \(1, 4, 2\)"), (np.zeros((1, 4, 3)), r"float64 \(1, 4, 3\)")])
def test_wrong_initializers_from_the_options(array, found):
    value, options = onnxruntime.OrtValue.ortvalue_from_numpy(array), onnxruntime.SessionOptions()
    options.add_initializer("W", value)
    with pytest.raises(InvalidArgumentError, match=rf"sess_options: found {found} for the initializer 'W'; expected float32 \(1, 4, 3\)"):
        vkdml.onnx.InferenceSession(model(SMALL, weights(1)), options)


def test_options_in_the_model(ort, monkeypatch):
    """Without the environment's word for it, the argument does nothing. With it, they would take the place of all others."""
    proto = model(SMALL, weights(1))
    helper.set_model_props(proto, {"ort_config": json.dumps({"session_options": {"intra_op_num_threads": 2}})})
    session = ort.InferenceSession(proto.SerializeToString(), read_config_from_model=1)
    assert session.get_session_options().intra_op_num_threads == 0
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    if ort is vkdml.onnx:
        with pytest.raises(InvalidArgumentError, match="ORT_LOAD_CONFIG_FROM_MODEL in the environment: found 1; expected 0 or nothing"):
            ort.InferenceSession(proto.SerializeToString())


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_unknown_providers_of_a_session(ort):
    session = ort.InferenceSession(model(SMALL, weights(1)).SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises((RuntimeError, ValueError), match="NoSuchProvider"):
        session.set_providers(["CPUExecutionProvider", "NoSuchProvider"])
    if ort is vkdml.onnx:  # the other one cannot run any more
        with pytest.raises(InvalidArgumentError, match="set_providers: providers: found 'NoSuchProvider'; expected one of VkdmlExecutionProvider, "):
            session.set_providers([("NoSuchProvider", {})])
        assert session.run(None, {"x": X})[0].shape == (T, 1, B, 4)


@pytest.mark.parametrize("text", ["y = RNN <hidden_size=4> (x, W, R, B)", "z = RNN <hidden_size=4> (x, W, R, B) y = Neg(z)"])
def test_adapters(ort, text, tmp_path):
    """Refused, as the parts of a model do not have its inputs. What is in them can be fed."""
    path, given = str(tmp_path / "given.onnx_adapter"), {"W": ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 4, I), np.float32))}
    made = ort.AdapterFormat()
    made.set_parameters(given)
    made.export_adapter(path)
    adapter, options = ort.LoraAdapter(), ort.RunOptions()
    adapter.Load(path)
    options.add_active_adapter(adapter)
    session = ort.InferenceSession(model(f"g (float[T,B,3] x, float[1,4,3] W) => (float[T,D,B,4] y) {{ {text} }}",
                                         weights(1)).SerializeToString())
    fed, = session.run(None, {"x": X, **ort.AdapterFormat.read_adapter(path).get_parameters()}, ort.RunOptions())
    assert np.abs(fed - session.run(None, {"x": X})[0]).max() > 0.01
    if ort is vkdml.onnx:
        for run in (session.run, session.run_with_ort_values):
            with pytest.raises(InvalidArgumentError, match="run_options: found an adapter; expected none: feed what .*read_adapter"):
                run(None, {"x": X}, options)
    else:
        np.testing.assert_allclose(session.run(None, {"x": X}, options)[0], fed, atol=1e-6)
