"""Linear layers between recurrent nodes: on the device where that is faster, with the results of onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import defs

import vkdml
from tests.faces.onnx.support import H, alone, groups, model, weights
from vkdml.faces.onnx import graph_nodes, linear, programs
from vkdml.faces.onnx.graph_nodes import RECURRENT
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

T, B = 5, 2
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
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


# Each with the opsets that its form changed in, the newest first; others are of one input. Attributes are left out
LEFT_OUT = {
    **{op: [(1, f"k, l = {op} <hidden_size=4> (s, {op}W, {op}R, {op}B) z = Squeeze (k)")] for op in RECURRENT},
    **{op: [(7, f"z = {op} (s, s)")] for op in ("Add", "Sub", "Mul")}, "Concat": [(4, "z = Concat <axis=1> (s, s)"), (1, "z = Concat (s, s)")],
    "MatMul": [(1, "z = MatMul (s, M)")], "Gemm": [(7, "f = Flatten (s) z = Gemm (f, N, n)")], "Gather": [(1, "z = Gather (s, i)")],
    "Cast": [(6, "z = Cast <to=1> (s)")], "Dropout": [(7, "z = Dropout (s)")], "Reshape": [(1, "z = Identity (s)")],
    "Shape": [(5, "k = Shape (s) z = Reshape (s, k)")],
    "Slice": [(10, "z = Slice (s, a, e)"), (1, "z = Slice <starts=[0],ends=[2]> (s)")],
    "Split": [(18, "w, z = Split (s, i3)"), (1, "w, z = Split (s)")],
    "Unsqueeze": [(13, "z = Unsqueeze (s, a)"), (1, "z = Unsqueeze <axes=[0]> (s)")]}
NEWEST = 25  # opset that onnxruntime 1.25 knows
VERSIONS = sorted({(schema.name, max(schema.since_version, LEFT_OUT.get(schema.name, [(1, "")])[-1][0]))
                   for schema in defs.get_all_schemas_with_history()
                   if not schema.domain and schema.name in programs.OPERATORS and schema.since_version <= NEWEST})


def left_out(op, opset):
    """The operator between two GRUs, all of the version that the opset has."""
    form = next((text for since, text in LEFT_OUT.get(op, ()) if since <= opset), f"z = {op} (s)")
    reshape = "Reshape (z, shape)" if opset > 4 else "Reshape <shape=[-1,2,4]> (z)"
    arrays = {"M": np.eye(H, k=1), "N": np.eye(2 * H, k=1), "n": np.ones(2 * H)}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()} | {
        name: np.array(numbers) for name, numbers in {"i": [1, 0], "i3": [3, 3], "a": [0], "e": [2], "shape": [-1, 2, 4]}.items()}
    arrays |= {kind + name: array for kind, gates in GATES.items() for name, array in weights(gates, inputs=H).items()}
    return model(f"g (float[T,B,3] x) => (float[A,C,D,E] y, float[F,G,H] h) {{ p, q = GRU <hidden_size=4> (x, W, R, B) s = Squeeze (p) "
                 f"{form} r = {reshape} y, h = GRU <hidden_size=4> (r, W1, R1, B1) }}", weights() | weights(inputs=H, suffix="1") | arrays, opset)


@pytest.mark.family("all versions", first=12)
@pytest.mark.parametrize(("op", "opset"), VERSIONS)
def test_attributes_left_out(op, opset, monkeypatch):
    """onnxruntime fills in the schemas' defaults, and has no kernels for the oldest versions."""
    as_on_a_gpu(monkeypatch)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    ours, theirs = InferenceSession(left_out(op, opset), options), alone(left_out(op, max(opset, 7)))
    assert not ours.assignment().on("onnxruntime")
    feed = {"x": np.random.default_rng(0).standard_normal((6, 2, 3)).astype(np.float32)}
    for result, expected in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-4)


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


@pytest.mark.family("forms that are verified and that are not")
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
