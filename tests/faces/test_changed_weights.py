"""Weights that change in place between two calls, by whatever way there is into their memory."""

import numpy as np
import pytest
import torch

import vkdml
import vkdml.onnx
from tests.faces.onnx.support import model
from tests.faces.ways_in import SHAPES, B, H, I, X, directml, function, node, numbers, pydirectml, session, twin
from vkdml.operators import reference
from vkdml_lab.suite.support import ATOL, RTOL

pytestmark = pytest.mark.device

# Ways to change an array that may be read-only. Each returns the array, and what negates its elements.

def in_place(array):
    return array, lambda: np.negative(array, array)


def through_an_older_view(array):
    older = array[...]
    array.flags.writeable = False
    return array, lambda: np.negative(older, older)


def after_thawing(array):
    array.flags.writeable = False

    def change():
        array.flags.writeable = True
        np.negative(array, array)
        array.flags.writeable = False

    return array, change


def through_a_buffer(array):
    memory = bytearray(array.tobytes())
    writable = np.frombuffer(memory, array.dtype)
    read_only = np.frombuffer(memoryview(memory).toreadonly(), array.dtype).reshape(array.shape)
    return read_only, lambda: np.negative(writable, writable)


def through_a_tensor_of_pytorch(array):
    tensor = torch.from_numpy(array)
    array.flags.writeable = False
    return array, tensor.neg_


def through_bytes(array):
    """As torch.from_numpy does, after a warning, to an array that numpy itself would not thaw."""
    read_only = np.ndarray(array.shape, array.dtype, array.tobytes())
    tensor = torch.frombuffer(read_only, dtype=torch.float32)
    return read_only, tensor.neg_


WAYS = [in_place, through_an_older_view, after_thawing, through_a_buffer,
        through_a_tensor_of_pytorch, pytest.param(through_bytes, marks=pytest.mark.filterwarnings("ignore:The given"))]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def changing(request):
    """Weights by name, and what negates all of them."""
    pairs = {name: request.param(numbers(*shape)) for name, shape in SHAPES.items()}

    def change():
        for _, of_one in pairs.values():
            of_one()

    return {name: array for name, (array, _) in pairs.items()}, change


@pytest.mark.parametrize("face", [function, node])
def test_arrays_of_bytes_are_recognized(face, monkeypatch):
    """By identity and a few of their elements. Other read-only arrays are compared whole."""
    weights = {"w": numbers(1, H, I), "r": np.full((1, H, H), 0.1, np.float32)}
    of_bytes = {name: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape) for name, array in weights.items()}
    for array in weights.values():
        array.flags.writeable = False
    calls = {"bytes": face(of_bytes), "read-only": face(weights)}
    monkeypatch.setattr("vkdml.engine.weights._PROBED", 2)
    torch.from_numpy(of_bytes["r"])  # warns once, so that the write below does not
    for name, array in (("bytes", of_bytes["r"]), ("read-only", weights["r"])):
        for _ in range(3):
            expected = calls[name]()
        torch.from_numpy(array)[0, 0, 3] = 2  # PyTorch calls that undefined
        assert (np.abs(calls[name]() - expected).max() > 1e-3) == (name == "read-only")
        torch.from_numpy(array)[0, 0, 0] = 2  # this element is compared
        assert np.abs(calls[name]() - expected).max() > 1e-3


# More faces

def float64_function(weights):
    """R is converted at each call."""
    return lambda: vkdml.rnn(X.astype(np.float64), **weights | {"w": weights["w"].astype(np.float64)})[0]


def session_stream(weights):
    """A step runs all of the steps, from a state that is set to zeros again."""
    session = vkdml.onnx.InferenceSession(model(
        f"g (float[T,{B},{I}] x, float[1,{H},{I}] W, float[1,{H},{H}] R, float[1,{B},{H}] h) => (float[T,1,{B},{H}] y, "
        f"float[1,{B},{H}] h_out) {{ y, h_out = RNN <hidden_size={H}> (x, W, R, , , h) }}"))
    stream = session.stream({"h_out": "h"})

    def call():
        stream.reset()
        return stream.step({"x": X, "W": weights["w"], "R": weights["r"]})[0]

    return call


@pytest.mark.family("faces and ways")
@pytest.mark.parametrize("face", [function, float64_function, node, session, session_stream, pydirectml, twin, directml])
def test_a_change_in_place_is_seen(face, changing):
    weights, change = changing
    call = face(weights)
    for _ in range(3):
        np.testing.assert_allclose(call(), reference.rnn(X, **weights)[0], rtol=RTOL, atol=ATOL)
        change()


@pytest.mark.family("ways", first=2)
def test_layers_and_their_streams_have_the_weights_that_they_were_made_with(changing):
    weights, change = changing
    expected = reference.rnn(X, **weights)[0]
    layer = vkdml.RNN(**weights)
    before = layer.stream(B)
    np.testing.assert_allclose(before.step(X[0]), expected[0, 0], rtol=RTOL, atol=ATOL)
    change()
    np.testing.assert_allclose(before.step(X[1]), expected[1, 0], rtol=RTOL, atol=ATOL)
    for y in (layer(X)[0], layer.stream(B).step(X)[:, None]):
        np.testing.assert_allclose(y, expected, rtol=RTOL, atol=ATOL)


@pytest.mark.family("ways", first=2)
def test_constants_of_a_model_are_those_that_it_was_loaded_with(changing):
    weights, change = changing
    proto = model(f"g (float[T,B,{I}] x) => (float[T,1,B,{H}] y) {{ y = RNN <hidden_size={H}> (x, w, r) }}", weights)
    expected = reference.rnn(X, **weights)[0]
    session = vkdml.onnx.InferenceSession(proto)
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=RTOL, atol=ATOL)
        change()
        for initializer in proto.graph.initializer:
            initializer.raw_data = bytes(len(initializer.raw_data))
