"""What onnx.backend's callers call."""

import numpy as np
import onnx
import pytest

import vkdml.onnx
from tests.faces.onnx.support import I, model, weights
from tests.faces.support import B, T
from vkdml.faces.onnx import backend
from vkdml.onnx import prepare, supports_device


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
