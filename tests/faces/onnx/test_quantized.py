"""Models that onnxruntime's quantize_dynamic makes: as near to the model before as onnxruntime's own kernel, or nearer."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests.faces.onnx.support import B, H, I, T, alone, groups, inputs_of, model, weights
from vkdml.faces.onnx import programs
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

STACK = """g (float[T,B,3] x, int32[B] lengths) => (float[T,B,8] y, float[2,B,4] h, float[2,B,4] c) {
    p, h, c = LSTM <hidden_size=4, direction="bidirectional"> (x, W, R, B, lengths)
    t = Transpose <perm=[0,2,1,3]> (p)
    shape = Constant <value_ints=[0,0,-1]> ()
    s = Reshape (t, shape)
    q = LSTM <hidden_size=4, direction="bidirectional", clip=3.0, activations=["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Tanh"]>
        (s, W1, R1, B1, lengths)
    u = Transpose <perm=[0,2,1,3]> (q)
    y = Reshape (u, shape) }"""


@pytest.fixture
def gpu(monkeypatch):
    """A device that is none of a CPU, as far as it is asked which nodes it takes."""
    why_not = programs._why_not
    monkeypatch.setattr(programs, "_why_not", lambda *given: why_not(*given[:-1], False))


@pytest.fixture(scope="module")
def whole():
    return model(STACK, weights(4, 2) | weights(4, 2, 2 * H, "1"))


def quantized(proto, folder, **how):
    onnx.save(proto, folder / "whole.onnx")
    quantize_dynamic(folder / "whole.onnx", folder / "quantized.onnx", op_types_to_quantize=["LSTM"], **how)
    result = onnx.load(folder / "quantized.onnx")
    assert [node.op_type for node in result.graph.node].count("DynamicQuantizeLSTM") == 2
    return result


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight_type", [QuantType.QInt8, QuantType.QUInt8])
def test_nearer_than_onnxruntime(gpu, whole, per_channel, weight_type, tmp_path):
    few = quantized(whole, tmp_path, per_channel=per_channel, weight_type=weight_type)
    ours = InferenceSession(few)
    exact, theirs = map(alone, (whole, few))
    assert groups(ours) == [4]
    feed = inputs_of(ours, np.random.default_rng(0), {"T": T, "B": B}) | {"lengths": np.array([T, 2], np.int32)}
    for our_result, their_result, expected in zip(ours.run(None, feed), theirs.run(None, feed), exact.run(None, feed), strict=True):
        error, theirs_error = (float(np.abs(result - expected).max()) for result in (our_result, their_result))
        assert 0 < error <= theirs_error
        assert error < 0.02


def test_weights_as_they_are_written(gpu, whole, tmp_path):
    """The numbers of an LSTM node with the dequantized weights."""
    few = quantized(whole, tmp_path)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in few.graph.initializer}
    node = next(node for node in few.graph.node if node.op_type == "DynamicQuantizeLSTM")
    replaced = [arrays[name].astype(np.float32) for name in node.input if name in arrays]
    assert len(replaced) == 7
    w, r, _, w_scale, w_zero, r_scale, r_zero = replaced
    plain = model("g (float[T,B,3] x) => (float[T,D,B,4] p) { p = LSTM <hidden_size=4, direction=\"bidirectional\"> (x, W, R, B) }", {
        "W": (w_scale.reshape(2, 1, 1) * (w - w_zero.reshape(2, 1, 1))).swapaxes(1, 2).astype(np.float32),
        "R": (r_scale.reshape(2, 1, 1) * (r - r_zero.reshape(2, 1, 1))).swapaxes(1, 2).astype(np.float32), "B": weights(4, 2)["B"]})
    x = np.random.default_rng(0).standard_normal((T, B, I)).astype(np.float32)
    exact = alone(plain).run(None, {"x": x})[0]
    few.graph.output.append(helper.make_tensor_value_info(node.output[0], 1, None))
    result = InferenceSession(few).run([node.output[0]], {"x": x, "lengths": np.full(B, T, np.int32)})[0]
    np.testing.assert_allclose(result, exact, atol=1e-6)


def test_weights_that_are_fed_stay_onnxruntimes(gpu, whole, tmp_path):
    few = quantized(whole, tmp_path)
    name = next(node.input[1] for node in few.graph.node if node.op_type == "DynamicQuantizeLSTM")
    tensor = next(tensor for tensor in few.graph.initializer if tensor.name == name)
    few.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    assigned = {(node.op_type, node.runs_on, node.reason) for node in InferenceSession(few).assignment().nodes}
    assert {("DynamicQuantizeLSTM", "device", ""), ("DynamicQuantizeLSTM", "onnxruntime", "its weights are not all constants")} <= assigned


@pytest.mark.filterwarnings("ignore::vkdml.NothingOnDeviceWarning")
def test_a_cpu_leaves_them_to_onnxruntime(whole, tmp_path, device):
    if not device.info.is_cpu:
        pytest.skip("GPUs run these nodes")
    assigned = InferenceSession(quantized(whole, tmp_path)).assignment()
    assert not assigned.on("device")
    assert {node.reason for node in assigned.nodes if node.op_type == "DynamicQuantizeLSTM"} == {"onnxruntime is faster at it on a CPU"}
