"""What onnx.backend's callers call."""

import numpy as np
import onnx
import pytest
from onnx import helper

import vkdml
from tests.faces.support import B, H, T, arrays, check
from vkdml.onnx import prepare, supports_device
from vkdml.spec import reference


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
    with pytest.raises(vkdml.InvalidArgumentError, match="found 2 arrays; expected 3: X, R, x2"):
        prepare(model).run([1, 2])


def test_supports_device(device):
    assert supports_device("CPU")
    assert supports_device(device.info.name)
    assert not supports_device("CUDA")
