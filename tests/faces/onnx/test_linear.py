"""Linear layers between recurrent nodes: on the device where that is faster, with the results of onnxruntime."""

import numpy as np
import pytest

import vkdml
from tests.faces.onnx.support import H, alone, groups, model, weights
from vkdml.faces.onnx import graph_nodes, linear, programs
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

T, B = 5, 2
HEAD = "g (float[{sizes},3] x) => (float[A,C,D,E] y) {{ one = Constant <value_ints=[1]> () zero = Constant <value_ints=[0]> ()" \
       " p, q = GRU <hidden_size=4> (x, W, R, B) s = Squeeze (p, one) f = Squeeze (q, zero)" \
       " {} y = GRU <hidden_size=4> (a, W1, R1, B1) }}"
FORMS = {
    "MatMul": "a = MatMul (s, M)",
    "MatMul and Add": "m = MatMul (s, M) a = Add (m, v)",
    "an activation": "m = MatMul (s, M) n = Add (v, m) a = Tanh (n)",
    "a constant first": "m = Sub (v, s) n = Mul (m, v) a = Relu (n)",
    "an activation with a parameter": "a = HardSigmoid <alpha=0.3> (s)",
    "residual": "m = MatMul (s, M) a = Add (m, s)",
    "rows that are no view": "t = Transpose <perm=[1,0,2]> (s) m = MatMul (t, M) a = Tanh (m)",
    "of four dimensions": "m = MatMul (p, M) a = Squeeze (m, one)",
    "some of the steps": "k = Constant <value_ints=[5]> () two = Constant <value_ints=[2]> () t = Slice (s, zero, k, zero, two) a = MatMul (t, M)",
    "some of the rows": "k = Constant <value_ints=[1]> () t = Slice (s, zero, k, k) a = MatMul (t, M)",
    "less a scalar": "h = Constant <value_float=0.5> () m = Sub (h, s) n = Mul (h, m) a = Add (h, n)",
    "Gemm": "m = Gemm (f, M) a = Unsqueeze (m, zero)",
    "Gemm, transposed and scaled": "m = Gemm <transB=1, alpha=0.5, beta=2.0> (f, M, v) a = Unsqueeze (m, zero)",
    "Gemm of a square, transposed": "k = Constant <value_ints=[2]> () t = Slice (s, zero, k, zero) g = Flatten <axis=2> (t)"
                                    " m = Gemm <transA=1> (g, M) a = Unsqueeze (m, zero)",
    "of one dimension": "n = Constant <value_ints=[-1]> () t = Reshape (s, n) m = Tanh (t) k = Constant <value_ints=[5,2,4]> () a = Reshape (m, k)",
}


CASTS = {
    "to float16 and back": "m = Cast <to=10> (s) a = Cast <to=1> (m)",
    "with a view between": "m = Cast <to=10> (s) n = Unsqueeze (m, zero) k = Cast <to=1> (n) a = Squeeze (k, zero)",
    "computed with in float16": "m = Cast <to=10> (s) n = Tanh (m) k = Add (n, m) a = Cast <to=1> (k)",
    "to bfloat16 and back": "m = Cast <to=16> (s) a = Cast <to=1> (m)",
    "transposed": "m = Transpose <perm=[1,0,2]> (s) n = Cast <to=10> (m) k = Transpose <perm=[1,0,2]> (n) a = Cast <to=1> (k)",
}


def made(text, sizes="T,B"):
    rng = np.random.default_rng(0)
    arrays = {"M": rng.standard_normal((H, H)).astype(np.float32), "v": rng.standard_normal(H).astype(np.float32)}
    return model(HEAD.format(text, sizes=sizes), weights() | weights(inputs=H, suffix="1") | arrays)


def expect_alike(proto, share=0, atol=1e-5):
    ours = InferenceSession(proto, device=vkdml.Device(verify=share))
    theirs = alone(proto)
    for seed in range(2):
        feed = {"x": np.random.default_rng(seed).standard_normal((T, B, 3)).astype(np.float32)}
        np.testing.assert_allclose(ours.run(None, feed)[0], theirs.run(None, feed)[0], atol=atol, rtol=1e-4)
    return ours


def as_on_a_gpu(monkeypatch):
    """Products are the device's."""
    monkeypatch.setattr(programs, "linear", lambda *arguments: linear.linear(*arguments[:-1], False))


@pytest.mark.parametrize("share", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form, share, monkeypatch):
    as_on_a_gpu(monkeypatch)
    ours = expect_alike(made(FORMS[form]), share)
    assert len(groups(ours)) == 1
    assert all(ours._provider.runs[0]._calls.values())  # one execution
    assert {node.op_type for node in ours.assignment().on("onnxruntime")} <= {"Squeeze"}  # of the state, which is not used


def test_a_cpu_leaves_products_to_the_host(device):
    if not device.info.is_cpu:
        pytest.skip("GPUs compute these products")
    assert len(groups(expect_alike(made(FORMS["MatMul"], f"{T},{B}")))) == 2


def test_a_factor_that_is_fed_stays_on_the_host(monkeypatch):
    as_on_a_gpu(monkeypatch)
    proto = made("t = Transpose <perm=[1,0]> (f) k = MatMul (f, t) m = MatMul (k, f) a = Unsqueeze (m, zero)")
    assert len(groups(expect_alike(proto))) == 2


@pytest.mark.parametrize("form", FORMS)
def test_node_by_node(form, monkeypatch):
    """As where they cannot be one execution."""
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr("vkdml.faces.onnx.runs.DeviceRun._made", lambda *_: False)
    assert len(groups(expect_alike(made(FORMS[form])))) == 1


@pytest.mark.parametrize("share", [0, 1])
@pytest.mark.parametrize("form", CASTS)
def test_casts_between_floats(form, share):
    ours = expect_alike(made(CASTS[form]), share, atol=2e-3 if "float16" in form else 1e-5)
    assert len(groups(ours)) == 1
    assert {node.op_type for node in ours.assignment().on("onnxruntime")} <= {"Squeeze"}  # of the state, which is not used


def test_both_layers_in_their_own_type():
    """As converters to float16 leave models in which they keep some nodes."""
    halves = {name: array.astype(np.float16) for name, array in weights(inputs=H, suffix="1").items()}
    proto = model(HEAD.replace("float[A,C,D,E] y", "float16[A,C,D,E] y").format("a = Cast <to=10> (s)", sizes="T,B"), weights() | halves)
    ours = expect_alike(proto, atol=2e-3)
    assert len(groups(ours)) == 1


@pytest.mark.parametrize("to", [6, 11], ids=["int32", "float64"])
def test_casts_to_other_types_are_onnxruntimes(to):
    assert len(groups(expect_alike(made(f"m = Cast <to={to}> (s) a = Cast <to=1> (m)")))) == 2


def test_a_cast_on_the_host(monkeypatch):
    """Of steps one by one, as where a tensor is empty. What is too large for float16 is infinite, without a warning."""
    node = graph_nodes.GraphNode("", "Cast", "", 13, ["x"], ["y"], [], {"to": 10})
    cast = linear.linear(node, {}, {"x": 1}, {"x"}, True)
    found = cast.run({"x": np.array([1.0, 1e6, 1e-8, 1 + 2**-11, 1 + 3 * 2**-11], np.float32)})["y"]
    np.testing.assert_array_equal(found, np.array([1, np.inf, 0, 1, 1 + 2**-9], np.float16))
    assert found.dtype == np.float16
