"""What onnx.backend's callers call."""

import numpy as np
import onnx
import pytest
from onnx import helper

import vkdml.onnx
from tests.faces.onnx.support import I, model, weights
from tests.faces.support import B, H, T, arrays, check
from vkdml.faces.onnx import backend
from vkdml.onnx import prepare, supports_device
from vkdml.operators import reference


@pytest.mark.device
def test_layers_of_recurrent_nodes():
    """A model of two nodes."""
    given = arrays("float32")
    second = {name: array[:, :, :H] if name == "w" else array for name, array in arrays("float32", 4).items()}
    second["w"] = second["r"]
    nodes = [helper.make_node("GRU", ["X", "W", "R"], ["", "h"]), helper.make_node("LSTM", ["x2", "W2", "R2", "", "", "h"], ["Y"])]
    shapes = {"X": given["x"], "R": given["r"], "x2": second["initial_h"].repeat(T, 0)}
    graph = helper.make_graph(
        nodes, "layers", [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape) for name, array in shapes.items()],
        [helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, (T, 1, B, H))],
        [onnx.numpy_helper.from_array(array, name) for name, array in (("W", given["w"]), ("W2", second["w"]), ("R2", second["r"]))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    results = prepare(model).run(list(shapes.values()))
    h = reference.gru(given["x"], given["w"], given["r"])[1]
    expected = reference.lstm(shapes["x2"], second["w"], second["r"], initial_h=h.astype(np.float32))[0]
    check(results, [expected], "float32")


def test_supports_device(device):
    assert supports_device("CPU")
    assert supports_device(device.info.name)
    assert not supports_device("CUDA")


SMALL = "g (float[T,B,3] x) => (float[T,D,B,4] y) { y = RNN <hidden_size=4> (x, W, R, B) }"


@pytest.mark.device
def test_what_onnxruntimes_backend_takes(tmp_path):
    """Paths, bytes, sessions, and arrays alone."""
    proto, x = model(SMALL, weights(1)), np.ones((T, B, I), np.float32)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    session = vkdml.onnx.InferenceSession(proto)
    expected, = session.run(None, {"x": x})
    for source in (proto, path, str(path), path.read_bytes(), session, prepare(session)):
        assert prepare(source)._session.assignment().on("device")
        for inputs in (x, [x]):
            np.testing.assert_array_equal(backend.run(source, inputs, None)[0], expected)
    assert backend.is_compatible(proto)
    assert vkdml.onnx.backend is backend
