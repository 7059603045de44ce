"""One RNN in every face: functions of weights w and r that return a call, whose result for X is y [T, 1, B, H]."""

from math import prod

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

import vkdml
import vkdml.onnx
import vkdml.pydirectml as dml
import vkdml.torch
from tests.engine.ready import bind, recorded
from tests.faces.onnx.support import model
from vkdml_lab.suite.support import tensor

T, B, I, H = 5, 2, 3, 4
FORWARD = vkdml.DML_RECURRENT_NETWORK_DIRECTION.FORWARD


def numbers(*shape):
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.4).astype(np.float32)


X, SHAPES = numbers(T, B, I), {"w": (1, H, I), "r": (1, H, H)}


def function(weights):
    return lambda: vkdml.rnn(X, **weights)[0]


def node(weights):
    proto = fed().graph.node[0]
    return lambda: vkdml.onnx.run_node(proto, {"x": X, "W": weights["w"], "R": weights["r"]})[0]


def session(weights):
    session = vkdml.onnx.InferenceSession(fed())
    return lambda: session.run(None, {"x": X, "W": weights["w"], "R": weights["r"]})[0]


def fed():
    return model(f"g (float[T,B,{I}] x, float[1,{H},{I}] W, float[1,{H},{H}] R) => (float[T,1,B,{H}] y) "
                 f"{{ y = RNN <hidden_size={H}> (x, W, R) }}")


def pydirectml(weights):
    """Bindings copy when they are made."""
    device = dml.Device()
    builder = dml.GraphBuilder(device)
    x, w, r = (dml.input_tensor(builder, place, dml.TensorDesc(dml.TensorDataType.FLOAT32, sizes)) for place, sizes in enumerate(
        ([1, T, B, I], [1, 1, H, I], [1, 1, H, H])))
    y = dml.rnn(x, w, r, activation_descs=[dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH)], direction=FORWARD,
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


def rnn_desc():
    """A descriptor, and the bytes of its tensors by field."""
    sizes = {"InputTensor": (1, T, B, I), "WeightTensor": (1, 1, H, I), "RecurrenceTensor": (1, 1, H, H),
             "OutputSequenceTensor": (T, 1, B, H)}
    return vkdml.DML_RNN_OPERATOR_DESC(
        **{field: tensor(*of_field) for field, of_field in sizes.items()}, Direction=FORWARD,
        ActivationDescs=[vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()]), {field: 4 * prod(sizes[field]) for field in sizes}


def directml(weights):
    """Buffers that get the arrays at each call."""
    device, (desc, sizes) = vkdml.Device(), rnn_desc()
    compiled = device.compile_operator(device.create_operator(desc))
    buffers = {field: device.create_buffer(size) for field, size in sizes.items()}
    recorder = recorded(device, bind(device, compiled, *([buffers.get(field) for field in fields]
                                                         for fields in (compiled.input_fields, compiled.output_fields))))

    def call():
        for field, array in {"InputTensor": X, "WeightTensor": weights["w"], "RecurrenceTensor": weights["r"]}.items():
            buffers[field].upload(array)
        recorder.execute()
        return buffers["OutputSequenceTensor"].download((T, 1, B, H))

    return call
