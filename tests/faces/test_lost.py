"""A device that is lost while it is used: who goes on with it opened anew, and what the others are told."""

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from vkdml.engine.vulkan import gpu as devices
from vkdml.faces import sessions

pytestmark = pytest.mark.device

X = np.random.default_rng(0).uniform(-1, 1, (4, 2, 3)).astype(np.float32)
W, R = np.full((1, 5, 3), 0.1, np.float32), np.full((1, 5, 5), 0.1, np.float32)


@pytest.fixture
def lose(device, monkeypatch):
    """A function after which all devices that the test has opened are lost."""
    monkeypatch.setattr(devices, "_open", {})
    monkeypatch.setattr(sessions, "_devices", {})

    def lose():
        for gpu in devices._open.values():
            gpu.driver._lose("lost by a test")

    return lose


@pytest.fixture
def expected():
    return vkdml.rnn(X, W, R)[0]


def functions():
    return lambda: vkdml.rnn(X, W, R)[0]


def layers():
    layer = vkdml.RNN(W, R)
    return lambda: layer(X)[0]


def layers_by_index():
    layer = vkdml.RNN(W, R, device=vkdml.Device().info.index)
    return lambda: layer(X)[0]


def onnx_sessions():
    parser = pytest.importorskip("onnx.parser")
    from vkdml.onnx import InferenceSession
    session = InferenceSession(parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[T, B, 3] x, float[1, 5, 3] w, float[1, 5, 5] r) => (float[T, 1, B, 5] y) { y = RNN <hidden_size = 5> (x, w, r) }"""))
    return lambda: session.run(None, {"x": X, "w": W, "r": R})[0]


def torch_twins():
    torch = pytest.importorskip("torch")
    import vkdml.torch
    twin = vkdml.torch.convert(torch.nn.RNN(3, 5, bias=False).eval())
    with torch.no_grad():
        twin.weight_ih_l0.copy_(torch.from_numpy(W[0]))
        twin.weight_hh_l0.copy_(torch.from_numpy(R[0]))

    def run():
        with torch.inference_mode():
            return twin(torch.from_numpy(X))[0].numpy()[:, None]

    return run


@pytest.mark.parametrize("make", [functions, layers, layers_by_index, onnx_sessions, pytest.param(torch_twins, marks=pytest.mark.thorough)],
                         ids=lambda make: make.__name__)
def test_what_names_no_device_goes_on(lose, expected, make):
    run = make()
    for _ in range(2):
        np.testing.assert_array_equal(run(), expected)
        lose()
    np.testing.assert_array_equal(run(), expected)


def test_a_stream_says_that_its_state_is_lost(lose, expected):
    stream = vkdml.RNN(W, R).stream(2)
    before = [stream.step(x) for x in X[:2]]
    state = stream.state
    lose()
    for call in (lambda: stream.step(X[2]), lambda: stream.step(X[2:]), lambda: stream.state):
        with pytest.raises(vkdml.DeviceLostError, match=r"RNN.stream: the state was on a device that is lost: reset it or set it"):
            call()
    stream.state = state
    np.testing.assert_allclose([*before, *(stream.step(x) for x in X[2:])], expected[:, 0], atol=1e-6)
    lose()
    stream.reset()
    lose()  # nothing on it is needed
    np.testing.assert_allclose([stream.step(x) for x in X], expected[:, 0], atol=1e-6)


def test_what_is_made_on_a_device_is_lost_with_it(lose, expected):
    device = vkdml.Device()
    assert device.get_device_removed_reason() is None
    buffer, other, layer = device.upload(X), device.create_buffer(X.nbytes), vkdml.RNN(W, R, device=device)
    stream = layer.stream(2)
    layer(X)
    tensor = vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=X.shape)
    compiled = device.compile_operator(device.create_operator(vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(tensor, tensor)))
    table, recorder = device.create_binding_table(compiled), device.create_command_recorder()
    table.bind_inputs([buffer])
    table.bind_outputs([other])
    recorder.record_dispatch(compiled, table)
    recorder.execute()
    lose()
    assert "lost by a test. The device" in device.get_device_removed_reason()
    for call in (recorder.execute, lambda: recorder.execute_async().wait(), device.lock.__enter__, buffer.host, lambda: buffer.read((1,)),
                 lambda: buffer.write(X), lambda: buffer.upload(X), lambda: buffer.download((1,)), lambda: device.create_buffer(4),
                 lambda: device.upload(X), lambda: layer(X), lambda: layer.stream(), lambda: layer.warm_up(3), lambda: stream.step(X[0]),
                 lambda: vkdml.rnn(X, W, R, device=device), lambda: device.create_command_recorder().record_dispatch(compiled, table)):
        with pytest.raises(vkdml.DeviceLostError, match=r"lost"):
            call()
    assert len(device.gpu.store) == device.gpu.store.size == 0
    again = vkdml.Device()
    assert again != device
    assert again.get_device_removed_reason() is None
    np.testing.assert_array_equal(vkdml.rnn(X, W, R, device=again)[0], expected)


def test_pydirectml(lose):
    def compute(device):
        builder = dml.GraphBuilder(device)
        x = dml.input_tensor(builder, 0, dml.TensorDesc(dml.TensorDataType.FLOAT32, [1, 1, 2, 3]))
        y = dml.activation_sigmoid(x)
        model = builder.build(dml.ExecutionFlags.NONE, [y])
        return lambda: device.compute(model, [dml.Binding(x, np.zeros((1, 1, 2, 3), np.float32))], [y])[0]

    run = compute(dml.Device())
    run()
    lose()
    with pytest.raises(vkdml.DeviceLostError, match="opens it again"):
        run()
    assert np.array(compute(dml.Device())()).max() == 0.5
