"""Each way in has its calls checked on a Device(verify=...), or where VKDML_VERIFY says so: here the reference makes the mistake."""

import pytest
import torch

import vkdml
import vkdml.pydirectml as dml
import vkdml.torch
from tests.faces.onnx.support import model
from tests.faces.ways_in import FORWARD, SHAPES, B, H, I, X, function, numbers, session
from vkdml.faces import sessions
from vkdml.onnx import InferenceSession
from vkdml.operators import reference
from vkdml.operators.activations import BY_TYPE

pytestmark = pytest.mark.device

W, R = (numbers(*shape) for shape in SHAPES.values())


@pytest.fixture
def verifying(monkeypatch):
    """As in a program that one cannot change."""
    monkeypatch.setenv("VKDML_VERIFY", "1")
    sessions._devices.clear()
    yield
    sessions._devices.clear()


def onnx_last_state():
    """A node without Y."""
    session = InferenceSession(model(f"g (float[T,B,{I}] x) => (float[D,B,{H}] h) {{ z, h = RNN <hidden_size={H}> (x, w, r) }}",
                                     {"w": W, "r": R}).SerializeToString())
    return lambda: session.run(None, {"x": X})


def stream():
    made = vkdml.RNN(W, R).stream(B)
    return lambda: made.step(X[0])


def torch_twin():
    """Two layers; what goes from one to the other cannot be seen."""
    twin = vkdml.torch.convert(torch.nn.RNN(I, H, 2).eval())

    def call():
        with torch.inference_mode():
            twin(torch.from_numpy(X))

    return call


def pydirectml():
    """A graph of two operators."""
    device = dml.Device()
    builder = dml.GraphBuilder(device)
    x, w, r = (dml.input_tensor(builder, place, dml.TensorDesc(dml.TensorDataType.FLOAT32, [1, *array.shape]))
               for place, array in enumerate((X, W, R)))
    y = dml.activation_sigmoid(dml.rnn(x, w, r, activation_descs=[dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH)],
                                       direction=FORWARD,
                                       output_options=dml.OutputOptions.Sequence).sequence)
    built = builder.build(dml.ExecutionFlags.NONE, [y])
    bindings = [dml.Binding(expression, array) for expression, array in zip((x, w, r), (X, W, R))]
    return lambda: device.compute(built, bindings, [y])


WAYS = {"functions": lambda: function({"w": W, "r": R}), "layers": lambda: lambda: vkdml.RNN(W, R)(X), "streams": stream,
        "ONNX": lambda: session({"w": W, "r": R}), "ONNX without Y": onnx_last_state, "PyTorch": torch_twin, "PyDirectML": pydirectml}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_is_checked(verifying, monkeypatch, way):
    call = WAYS[way]()
    call()
    step = reference.rnn_step
    monkeypatch.setitem(reference.STEPS, "RNN", lambda *given: lambda x, h: [1.001 * step(*given)(x, h)[0]])
    with pytest.raises(vkdml.VerificationError, match=r"RNN\w* in float32 with T, B, I, H = .* elements are wrong"):
        call()


def test_each_operator_of_a_graph_is_checked_by_itself(verifying, monkeypatch):
    """The first one's results are the second one's inputs, as the device has them."""
    call = pydirectml()
    row = BY_TYPE[dml.OperatorType.ACTIVATION_SIGMOID]
    right = row.function
    object.__setattr__(row, "function", lambda x, a, b: right(x, a, b) + 0.001)
    try:
        with pytest.raises(vkdml.VerificationError, match="^DML_ACTIVATION_SIGMOID_OPERATOR_DESC in float32: .*OutputTensor"):
            call()
    finally:
        object.__setattr__(row, "function", right)
