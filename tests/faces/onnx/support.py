"""What the tests of ONNX models share: models out of text, and their comparison with ONNX Runtime alone."""

import numpy as np
import onnxruntime
from onnx import numpy_helper, parser

from vkdml.onnx import InferenceSession

T, B, I, H = 5, 2, 3, 4


def weights(gates=3, directions=1, inputs=I, suffix=""):
    """Of one node: W, R and B as initializers."""
    rng = np.random.default_rng(len(suffix) + gates)
    shapes = {"W": (directions, gates * H, inputs), "R": (directions, gates * H, H), "B": (directions, 2 * gates * H)}
    return {name + suffix: (rng.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}


def model(text, arrays=None, opset=17, **others):
    """A model of ONNX's text for graphs, with initializers."""
    parsed = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    for name, array in (arrays or {}).items():
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def inputs_of(session, rng, sizes):
    """Random arrays for all inputs; dynamic dimensions have the sizes of their names."""
    dtypes = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_,
              "tensor(float16)": np.float16}
    shapes = {arg.name: (dtypes[arg.type], [sizes.get(size, size) for size in arg.shape]) for arg in session.get_inputs()}
    return {name: rng.standard_normal(shape).astype(dtype) for name, (dtype, shape) in shapes.items()}


def alone(proto):
    """onnxruntime's session of the same model, without the device."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])


def check(proto, sizes=None, atol=1e-5, nodes=1, options=None, **given):
    """Ours and onnxruntime's results on the same arrays, those in `given` and random ones. Our session, for more questions.

    nodes: how many of the model's recurrent nodes run on the device: all of them.
    """
    ours, theirs = InferenceSession(proto.SerializeToString(), options), alone(proto)
    for our_args, their_args in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(arg.name, arg.type, arg.shape) for arg in our_args] == [(arg.name, arg.type, arg.shape) for arg in their_args]
    assert sum(node.op_type in ("GRU", "LSTM", "RNN") for node in ours.assignment().on("device")) == nodes
    assert not any(node.reason for node in ours.assignment().nodes)
    feed = inputs_of(ours, np.random.default_rng(0), sizes or {"T": T, "B": B}) | given
    feed = {arg.name: feed[arg.name] for arg in ours.get_inputs()}
    for result, expected in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=atol)
    return ours


def groups(session):
    """How many nodes there are in each group on the device."""
    return [len(run.parts) for run in session._provider.runs]


STACK = """g (float[T,B,3] x, int32[B] lengths) => (float[T,B,8] y, float[2,B,4] last) {
    h0, n0 = GRU <hidden_size=4, direction="bidirectional", linear_before_reset=1> (x, W, R, B, lengths)
    t0 = Transpose <perm=[0,2,1,3]> (h0)
    shape = Constant <value_ints=[0,0,-1]> ()
    x1 = Reshape (t0, shape)
    h1, last = GRU <hidden_size=4, direction="bidirectional"> (x1, W1, R1, B1, lengths)
    t1 = Transpose <perm=[0,2,1,3]> (h1)
    y = Reshape (t1, shape) }"""

GRU = "g (float[T,B,3] x) => (float[T,D,B,4] y) {{ y = {} (x, W, R, B) }}"

IF = """g (float[T,B,3] x, bool c) => (float[D,B,4] y, float[T,B,3] z) {
    a = Tanh(x)
    y, z = If (c) <
        then_branch = then () => (float[1,B,4] yt, float[T,B,3] zt) {
            s = Abs(a) empty, yt = GRU <hidden_size=4> (s, W, R, B) zt = Identity(s) },
        else_branch = else () => (float[1,B,4] ye, float[T,B,3] a2) {
            a2 = Neg(a) s = Exp(a2) empty, ye = GRU <hidden_size=4> (s, W, R, B) } > }"""
