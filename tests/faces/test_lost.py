"""A device that is lost while it is used: who goes on with it opened again, and the errors of the others."""

import numpy as np
import pytest

import vkdml
from tests.engine.ready import bind, recorded
from tests.faces.ways_in import SHAPES, B, X, function, numbers, pydirectml, session, twin

pytestmark = pytest.mark.device

WEIGHTS = {name: numbers(*shape) for name, shape in SHAPES.items()}


@pytest.fixture
def expected():
    return vkdml.rnn(X, **WEIGHTS)[0]


def layer(weights):
    layer = vkdml.RNN(**weights)
    return lambda: layer(X)[0]


def layer_by_index(weights):
    layer = vkdml.RNN(**weights, device=vkdml.Device().info.index)
    return lambda: layer(X)[0]


@pytest.mark.parametrize("face", [function, layer, layer_by_index, session, pytest.param(twin, marks=pytest.mark.thorough)])
def test_what_names_no_device_goes_on(lose, expected, face):
    run = face(WEIGHTS)
    for _ in range(2):
        np.testing.assert_array_equal(run(), expected)
        lose()
    np.testing.assert_array_equal(run(), expected)


def test_a_stream_goes_on_where_it_was(lose, expected):
    stream = vkdml.RNN(**WEIGHTS).stream(B)
    before = [stream.step(x) for x in X[:2]]
    lose()
    np.testing.assert_allclose([*before, *(stream.step(x) for x in X[2:])], expected[:, 0], atol=1e-6)
    stream.reset()
    lose()
    np.testing.assert_allclose([stream.step(x) for x in X], expected[:, 0], atol=1e-6)


def test_what_is_made_on_a_device_is_lost_with_it(lose, expected):
    device = vkdml.Device()
    assert device.get_device_removed_reason() is None
    buffer, other, layer = device.upload(X), device.create_buffer(X.nbytes), vkdml.RNN(**WEIGHTS, device=device)
    stream = layer.stream(B)
    layer(X)
    tensor = vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=X.shape)
    compiled = device.compile_operator(device.create_operator(vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(tensor, tensor)))
    table = bind(device, compiled, [buffer], [other])
    recorder = recorded(device, table)
    recorder.execute()
    lose()
    assert "lost by a test. The device" in device.get_device_removed_reason()
    for call in (recorder.execute, lambda: recorder.execute_async().wait(), device.lock.__enter__, buffer.host, lambda: buffer.read((1,)),
                 lambda: buffer.write(X), lambda: buffer.upload(X), lambda: buffer.download((1,)), lambda: device.create_buffer(4),
                 lambda: device.upload(X), lambda: layer(X), lambda: layer.stream(), lambda: layer.warm_up(3), lambda: stream.step(X[0]),
                 lambda: vkdml.rnn(X, **WEIGHTS, device=device), lambda: device.create_command_recorder().record_dispatch(compiled, table)):
        with pytest.raises(vkdml.DeviceLostError, match=r"lost"):
            call()
    assert len(device.gpu.store._entries) == device.gpu.store.size == 0
    again = vkdml.Device()
    assert again != device
    assert again.get_device_removed_reason() is None
    np.testing.assert_array_equal(vkdml.rnn(X, **WEIGHTS, device=again)[0], expected)


def test_pydirectml(lose, expected):
    run = pydirectml(WEIGHTS)
    run()
    lose()
    with pytest.raises(vkdml.DeviceLostError, match="opens it again"):
        run()
    np.testing.assert_array_equal(pydirectml(WEIGHTS)(), expected)
