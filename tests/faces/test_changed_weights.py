"""Weights that change in place between two calls, by whatever way there is into their memory."""

from math import prod

import numpy as np
import pytest
import torch

import vkdml
import vkdml.onnx
import vkdml.pydirectml as dml
import vkdml.torch
from tests.faces.onnx.support import model
from vkdml.operators import reference
from vkdml.operators.problem import from_desc
from vkdml_lab.dxdispatch.dispatchables import OperatorDispatchable, ReadyOperator
from vkdml_lab.suite.support import ATOL, RTOL, tensor

pytestmark = pytest.mark.device

T, B, I, H = 3, 2, 4, 5
SHAPES = {"w": (1, H, I), "r": (1, H, H)}
DIRECTION = vkdml.DML_RECURRENT_NETWORK_DIRECTION.FORWARD


def numbers(*shape):
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.5).astype(np.float32)


X = numbers(T, B, I)


# Ways to change an array that may be read-only. Each returns the array, and what negates its elements.

def in_place(array):
    return array, lambda: np.negative(array, array)


def through_an_older_view(array):
    older = array[...]
    array.flags.writeable = False
    return array, lambda: np.negative(older, older)


def through_the_array_of_a_view(array):
    view = array[...]
    view.flags.writeable = False
    return view, lambda: np.negative(array, array)


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


WAYS = [in_place, through_an_older_view, through_the_array_of_a_view, after_thawing, through_a_buffer,
        through_a_tensor_of_pytorch, pytest.param(through_bytes, marks=pytest.mark.filterwarnings("ignore:The given"))]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def changing(request):
    """Weights by name, and what negates all of them."""
    pairs = {name: request.param(numbers(*shape)) for name, shape in SHAPES.items()}

    def change():
        for _, of_one in pairs.values():
            of_one()

    return {name: array for name, (array, _) in pairs.items()}, change


# Faces: each is a function of weights that returns a call, whose result is y [T, 1, B, H]

def function(weights):
    return lambda: vkdml.rnn(X, **weights)[0]


def float64_function(weights):
    """R is converted at each call."""
    return lambda: vkdml.rnn(X.astype(np.float64), **weights | {"w": weights["w"].astype(np.float64)})[0]


def node(weights):
    proto = _fed().graph.node[0]
    return lambda: vkdml.onnx.run_node(proto, {"x": X, "W": weights["w"], "R": weights["r"]})[0]


def session(weights):
    session = vkdml.onnx.InferenceSession(_fed())
    return lambda: session.run(None, {"x": X, "W": weights["w"], "R": weights["r"]})[0]


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


def _fed():
    return model(f"g (float[T,B,{I}] x, float[1,{H},{I}] W, float[1,{H},{H}] R) => (float[T,1,B,{H}] y) "
                 f"{{ y = RNN <hidden_size={H}> (x, W, R) }}")


def pydirectml(weights):
    """Bindings copy when they are made."""
    device = dml.Device()
    builder = dml.GraphBuilder(device)
    x, w, r = (dml.input_tensor(builder, place, dml.TensorDesc(dml.TensorDataType.FLOAT32, sizes)) for place, sizes in enumerate(
        ([1, T, B, I], [1, 1, H, I], [1, 1, H, H])))
    y = dml.rnn(x, w, r, activation_descs=[dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH)], direction=DIRECTION,
                output_options=dml.OutputOptions.Sequence).sequence
    compiled = builder.build(dml.ExecutionFlags.NONE, [y])
    arrays = {x: X, w: weights["w"], r: weights["r"]}
    return lambda: device.compute(compiled, [dml.Binding(*pair) for pair in arrays.items()], [y])[0]


def twin(weights):
    """Parameters that share their memory with the arrays."""
    module = torch.nn.RNN(I, H, bias=False).eval()
    with torch.no_grad():
        module.weight_ih_l0.data, module.weight_hh_l0.data = (torch.from_numpy(array)[0] for array in weights.values())
    converted = vkdml.torch.convert(module, inplace=True)

    def call():
        with torch.inference_mode():
            return converted(torch.from_numpy(X))[0].numpy()[:, None]

    return call


def _rnn():
    """A descriptor, and the bytes of its tensors by field."""
    sizes = {"InputTensor": (1, T, B, I), "WeightTensor": (1, 1, H, I), "RecurrenceTensor": (1, 1, H, H),
             "OutputSequenceTensor": (T, 1, B, H)}
    return vkdml.DML_RNN_OPERATOR_DESC(
        **{field: tensor(*of_field) for field, of_field in sizes.items()}, Direction=DIRECTION,
        ActivationDescs=[vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()]), {field: 4 * prod(sizes[field]) for field in sizes}


def directml(weights):
    """Buffers that get the arrays at each call."""
    device, (desc, sizes) = vkdml.Device(), _rnn()
    compiled = device.compile_operator(device.create_operator(desc))
    buffers = {field: device.create_buffer(size) for field, size in sizes.items()}
    table = device.create_binding_table(compiled)
    table.bind_inputs([buffers.get(field) for field in compiled.input_fields])
    table.bind_outputs([buffers.get(field) for field in compiled.output_fields])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(compiled, table)

    def call():
        for field, array in {"InputTensor": X, "WeightTensor": weights["w"], "RecurrenceTensor": weights["r"]}.items():
            buffers[field].upload(array)
        recorder.execute()
        return buffers["OutputSequenceTensor"].download((T, 1, B, H))

    return call


def dispatch(weights):
    """Of DxDispatch, whose resources are these arrays."""
    operator = ReadyOperator(vkdml.Device(), OperatorDispatchable(from_desc(_rnn()[0]), vkdml.DML_EXECUTION_FLAGS.NONE, (), {}))

    def call():
        y = np.zeros((T, 1, B, H), np.float32)
        arrays = {"InputTensor": X, "WeightTensor": weights["w"], "RecurrenceTensor": weights["r"], "OutputSequenceTensor": y}
        operator.run({field: array.reshape(-1).view(np.uint8) for field, array in arrays.items()}, 1)
        return y

    return call


@pytest.mark.family("faces and ways")
@pytest.mark.parametrize("face", [function, float64_function, node, session, session_stream, pydirectml, twin, directml, dispatch])
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
