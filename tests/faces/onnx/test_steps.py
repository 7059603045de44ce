"""What goes from step to step of a program, and what its steps keep."""

import json
from collections import Counter

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import helper

import vkdml
from tests.faces.onnx.support import B, H, I, T, check, model, weights
from vkdml.faces.onnx import runs
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device


def test_weights_that_are_computed_or_fed():
    text = """g (float[T,B,3] x, float[1,12,4] r, float scale) => (float[T,D,B,4] y, float[1,12,3] w) {
        w = Mul (W, scale)
        y = GRU <hidden_size=4> (x, w, r, B) }"""
    session = check(model(text, weights()), scale=np.array(0.5, np.float32))
    feed = {"x": np.ones((T, B, I), np.float32), "r": np.zeros((1, 3 * H, H), np.float32)}
    runs = [session.run(["y"], feed | {"scale": np.array(scale, np.float32)})[0] for scale in (0, 1, 0)]
    np.testing.assert_array_equal(runs[0], runs[2])
    assert np.abs(runs[0] - runs[1]).max() > 0.01


QUANTIZED = """g (float[T,B,3] x) => (float[T,B,3] b, float[T,1,B,4] y, float[T,1,B,3] c) {
    w = DequantizeLinear (w8, scale)
    x8 = QuantizeLinear (x, scale) a = DequantizeLinear (x8, scale)
    m = MatMul (a, w) m8 = QuantizeLinear (m, scale) b = DequantizeLinear (m8, scale)
    r = DequantizeLinear (r8, scale)
    y = RNN <hidden_size=4> (b, W, r, B)
    y8 = QuantizeLinear (y, scale) d = DequantizeLinear (y8, scale)
    v = DequantizeLinear (v8, scale) n0 = MatMul (d, v) n8 = QuantizeLinear (n0, scale) n = DequantizeLinear (n8, scale)
    o = MatMul (n, w) o8 = QuantizeLinear (o, scale) c = DequantizeLinear (o8, scale) }"""


def test_quantized_constants_stay_so(tmp_path, monkeypatch):
    """onnxruntime multiplies the integers; a recurrent node gets numbers. w is used in two pieces."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    integers = {name: rng.integers(-50, 50, shape).astype(np.int8) for name, shape in (("w8", (3, 3)), ("r8", (1, 4, 4)), ("v8", (4, 3)))}
    others = {name: array for name, array in weights(1).items() if name != "R"}
    proto = model(QUANTIZED, integers | others | {"scale": np.array(0.02, np.float32)})
    session = check(proto, atol=0.021)  # a step of the quantized results, which a rounding may make
    nodes = [(node.runs_on, node.piece) for node in session.assignment().nodes if node.op_type == "DequantizeLinear"]
    assert Counter(nodes) == {("onnxruntime", 1): 3, ("onnxruntime", 2): 4, ("load", None): 1}
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    session = InferenceSession(proto, options)
    session.run(None, {"x": np.ones((T, B, I), np.float32)})
    events = json.loads((tmp_path / session.end_profiling()).read_text())
    kernels = Counter(event["args"]["op_name"] for event in events if "kernel_time" in event["name"])
    assert (kernels["QLinearMatMul"], kernels["MatMul"]) == (3, 0)


def test_sequences_cross_pieces():
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y) {
        s = SequenceConstruct(x, x)
        a = Tanh(x)
        y0 = GRU <hidden_size=4> (a, W, R, B)
        m = ReduceMean <axes=[1]> (y0)
        k = Constant <value_int=1> ()
        back = SequenceAt(s, k)
        l = ReduceMean <axes=[2], keepdims=1> (back)
        axis = Constant <value_ints=[1]> ()
        l2 = Unsqueeze(l, axis)
        y = Add(y0, l2) }"""
    check(model(text, weights()))


def test_maps_cross_pieces():
    text = """g (float[2,2,3] x) => (seq(map(int64,float)) z, float[2,1,2,4] y) {
        y = GRU <hidden_size=4> (x, W, R)
        shape = Constant <value_ints=[2,8]> ()
        flat = Reshape (y, shape)
        z = ai.onnx.ml.ZipMap <classlabels_int64s=[0,1,2,3,4,5,6,7]> (flat) }"""
    proto = model(text, weights())
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    session = InferenceSession(proto)
    assert session.get_outputs()[0].type == "seq(map(int64,tensor(float)))"
    rows, y = session.run(None, {"x": np.ones((2, 2, I), np.float32)})
    np.testing.assert_array_equal([list(row.values()) for row in rows], y.reshape(2, 8))


def test_bfloat16_between_pieces():
    """onnxruntime hands out no bfloat16 arrays; what goes between pieces is cast there."""
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y) {
        a = Cast <to=16> (x)
        h = GRU <hidden_size=4> (a, W, R, B)
        y = Cast <to=1> (h) }"""
    few = {name: array.astype(ml_dtypes.bfloat16) for name, array in weights().items()}
    x = np.random.default_rng(0).standard_normal((T, B, I)).astype(ml_dtypes.bfloat16).astype(np.float32)
    result = InferenceSession(model(text, few, 22)).run(None, {"x": x})[0]
    wide = model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R, B) }",
                 {name: array.astype(np.float32) for name, array in few.items()})
    expected = onnxruntime.InferenceSession(wide.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(result, expected, atol=1e-2)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(runs, "SHAPES_KEPT", 4)
    session = InferenceSession(model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }", weights()))
    for t in range(1, 12):
        session.run(None, {"x": np.ones((t, 1, I), np.float32)})
    assert len(session._program._steps[0]._calls) == 4


def test_inputs_after_others_are_checked():
    """What lies as the last run's inputs is taken as it is; anything else is checked, and refused, as at first."""
    text = "g (float[T,B,I] x, int32[N] n) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R, B, n) }"
    session = InferenceSession(model(text, weights()))
    (step,) = session._program.recurrent()
    feed = {"x": np.ones((T, B, I), np.float32), "n": np.array([T, 1], np.int32)}
    for _ in range(2):
        expected = session.run(None, feed)[0]
    for wrong, message in (({"x": feed["x"][:, :, :2]}, "W: found"), ({"n": feed["n"] + 1}, "sequence length of row 0"),
                           ({"x": feed["x"][:, :1]}, "sequence_lens: found")):
        with pytest.raises(vkdml.InvalidArgumentError, match=message):
            session.run(None, feed | wrong)
    strided = feed | {"x": np.ones((B, T, I), np.float32).swapaxes(0, 1)}
    np.testing.assert_array_equal(session.run(None, strided)[0], expected)
    with pytest.raises(vkdml.InvalidArgumentError, match="W: found float16; expected float32"):
        step.node.run({**step._weights, **feed, "W": step._weights["W"].astype(np.float16)})
