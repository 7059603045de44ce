"""Arguments of any type: taken, or refused with an error of vkdml's that names what is wrong, by every face."""

import numpy as np
import pytest

import vkdml
from tests.faces.onnx.support import model, weights
from vkdml import pydirectml as dml
from vkdml import reference

pytestmark = pytest.mark.device

LOOP: list = []
LOOP.append(LOOP)
TERABYTE = np.broadcast_to(np.float32(1), (2**19, 2**19))
HUGE = 10**5000  # Python refuses to write numbers of so many digits
VALUES: tuple = (None, True, 0, 1, -1, 3, 2**31, 2**64, HUGE, 1.5, float("nan"), float("inf"), 1e300, "", "x", "FLOAT32", b"x", [], [1], [3], [1, 2], [1] * 9,
          [2**40, 2**40], [-1], [HUGE], ["a"], [[1], [1, 2]], [None], (), {}, {"a": 1}, {1}, object(), type, ..., np.zeros(3), np.zeros(()),
          np.zeros((2, 0)), np.zeros(3, np.float32), np.array(["a"]), np.array([None]), np.int64(2), np.float16(1), range(3), slice(1),
          vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, vkdml.DML_TENSOR_DATA_TYPE.UNKNOWN, dml.TensorFlags.NONE, LOOP, TERABYTE)


class Unshown:
    def __repr__(self):
        raise RuntimeError


def tensor(*sizes, **changes):
    return vkdml.DML_BUFFER_TENSOR_DESC(**{"DataType": vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, "Sizes": sizes} | changes)


def directml(device):
    """Calls by their names, each of one value."""
    gru = {"InputTensor": tensor(1, 2, 1, 3), "WeightTensor": tensor(1, 1, 12, 3), "RecurrenceTensor": tensor(1, 1, 12, 4),
           "OutputSingleTensor": tensor(1, 1, 1, 4), "Direction": vkdml.DML_RECURRENT_NETWORK_DIRECTION.FORWARD,
           "ActivationDescs": (vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(), vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()),
           "LinearBeforeReset": False, "BiasTensor": None, "HiddenInitTensor": None, "SequenceLengthsTensor": None,
           "OutputSequenceTensor": None}
    operator = device.create_operator(vkdml.DML_GRU_OPERATOR_DESC(**gru))
    compiled = device.compile_operator(operator)
    buffer, table, recorder = device.create_buffer(16), device.create_binding_table(compiled), device.create_command_recorder()
    yield from {
        "create_operator": device.create_operator, "Operator": vkdml.Operator,
        "operator desc": lambda value: device.create_operator(vkdml.DML_OPERATOR_DESC(value, value)),
        "operator type": lambda value: device.create_operator(vkdml.DML_OPERATOR_DESC(value, vkdml.DML_GRU_OPERATOR_DESC(**gru))),
        "compile": device.compile_operator,
        "compile flags": lambda value: device.compile_operator(operator, value),
        "create_buffer": lambda value: device.create_buffer(value),
        "upload": device.upload, "write": buffer.write, "buffer upload": buffer.upload, "read": buffer.read,
        "read dtype": lambda value: buffer.read((1,), value), "download": buffer.download, "host": buffer.host,
        "table": device.create_binding_table, "initializer": device.create_operator_initializer,
        "inputs": table.bind_inputs, "outputs": lambda value: table.bind_outputs([value] * 3),
        "dispatch": lambda value: recorder.record_dispatch(value, table), "record": lambda value: recorder.record_dispatch(compiled, value),
        "record_upload": recorder.record_upload, "readback": recorder.record_readback,
        "Device": vkdml.Device, "elu": lambda value: device.create_operator(vkdml.DML_ACTIVATION_ELU_OPERATOR_DESC(
            InputTensor=tensor(3), OutputTensor=tensor(3), Alpha=value)),
    }.items()
    for field in (*gru, "ActivationDescCount"):
        yield field, lambda value, field=field: device.create_operator(vkdml.DML_GRU_OPERATOR_DESC(**gru | {field: value}))
    lstm = {name: value for name, value in gru.items() if name != "LinearBeforeReset"} | {
        "WeightTensor": tensor(1, 1, 16, 3), "RecurrenceTensor": tensor(1, 1, 16, 4), "ActivationDescs": gru["ActivationDescs"] + gru["ActivationDescs"][1:]}
    for field, more in (("ClipThreshold", {"UseClipThreshold": True}), ("UseClipThreshold", {"ClipThreshold": 1}), ("CoupleInputForget", {})):
        yield field, lambda value, field=field, more=more: device.create_operator(vkdml.DML_LSTM_OPERATOR_DESC(**lstm | more | {field: value}))
    yield "activation type", lambda value: device.create_operator(vkdml.DML_GRU_OPERATOR_DESC(**gru | {
        "ActivationDescs": [vkdml.DML_OPERATOR_DESC(value, activation) for activation in gru["ActivationDescs"]]}))
    yield from {"cache_limit": lambda value: setattr(device, "cache_limit", value) or setattr(device, "cache_limit", 2**30)}.items()
    yield "activation", lambda value: device.create_operator(vkdml.DML_GRU_OPERATOR_DESC(**gru | {"ActivationDescs": (value, value)}))
    for field in ("DataType", "Sizes", "Flags", "DimensionCount", "Strides", "TotalTensorSizeInBytes", "GuaranteedBaseOffsetAlignment"):
        yield f"tensor {field}", lambda value, field=field: device.create_operator(vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(
            InputTensor=tensor(1, 2, **{field: value}), OutputTensor=tensor(1, 2)))


def pydirectml(device):
    own = dml.Device()
    builder = dml.GraphBuilder(own)
    x, w, r = (dml.input_tensor(builder, place, dml.TensorDesc(dml.TensorDataType.FLOAT32, sizes))
               for place, sizes in enumerate(([1, 2, 1, 3], [1, 1, 12, 3], [1, 1, 12, 4])))
    y = dml.activation_relu(x)
    model = builder.build(dml.ExecutionFlags.NONE, [y])
    given = {"input": x, "weight": w, "recurrence": r, "direction": dml.RecurrentNetworkDirection.FORWARD,
             "activation_descs": [dml.FusedActivation(dml.OperatorType.ACTIVATION_SIGMOID)] * 2, "output_options": dml.OutputOptions.Both}
    for name in (*given, "bias", "hidden_init", "sequence_lengths", "linear_before_reset"):
        yield f"gru {name}", lambda value, name=name: dml.gru(**given | {name: value})
    yield from {
        "clip_threshold": lambda value: dml.lstm(**given, clip_threshold=value),
        "FusedActivation": lambda value: dml.FusedActivation(value),
        "param_1": lambda value: dml.gru(**given | {"activation_descs": [dml.FusedActivation(dml.OperatorType.ACTIVATION_ELU, value)] * 2}),
        "TensorDesc": lambda value: dml.TensorDesc(value, value), "sizes": lambda value: dml.TensorDesc(dml.TensorDataType.FLOAT32, value),
        "strides": lambda value: dml.TensorDesc(dml.TensorDataType.FLOAT32, [1, 2], value),
        "total": lambda value: dml.TensorDesc(dml.TensorDataType.FLOAT32, dml.TensorFlags.NONE, [1, 2], [2, 1], value, value),
        "policy": lambda value: dml.TensorPolicy(value), "TensorData": dml.TensorData, "activation": dml.activation_relu,
        "alpha": lambda value: dml.activation_elu(x, value),
        "input_tensor": lambda value: dml.input_tensor(builder, value, dml.TensorDesc(dml.TensorDataType.FLOAT32, [1])),
        "reinterpret type": lambda value: dml.reinterpret(x, value, [6], None),
        "reinterpret": lambda value: dml.reinterpret(x, dml.TensorDataType.FLOAT32, value, value),
        "build": lambda value: builder.build(dml.ExecutionFlags.NONE, value), "build flags": lambda value: builder.build(value, [y]),
        "compute": lambda value: own.compute(value, [], [y]), "bindings": lambda value: own.compute(model, value, [y]),
        "binding": lambda value: own.compute(model, [dml.Binding(x, value)], [y]), "outputs": lambda value: own.compute(model, [], value),
        "dml.Device": dml.Device,
    }.items()


def as_the_reference(*arrays, **attributes):
    """vkdml.gru, which computes what the reference does, and refuses what the reference refuses and a float64 x."""
    results = []
    for compute in (reference.gru, vkdml.gru):
        try:
            results.append(compute(*arrays, **attributes)[0])
        except vkdml.InvalidArgumentError as error:
            results.append(error)
    expected, result = results
    if isinstance(result, Exception) and (isinstance(expected, Exception) or "the type of W" in str(result)):
        raise result
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def numpy_functions(device):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 1, 3), (1, 12, 3), (1, 12, 4))]
    for place, name in enumerate("xwr"):
        yield name, lambda value, place=place: as_the_reference(*[value if at == place else array for at, array in enumerate(arrays)])
        yield f"layer {name}", lambda value, place=place: vkdml.GRU(*[value if at == place else array for at, array in enumerate(arrays)][1:])
    for name in ("b", "sequence_lens", "initial_h", "activations", "activation_alpha", "activation_beta", "clip", "direction", "layout",
                 "linear_before_reset"):
        yield name, lambda value, name=name: as_the_reference(*arrays, **{name: value})
    yield "alpha", lambda value: as_the_reference(*arrays, activations=["Elu", "Tanh"], activation_alpha=[value])
    yield from {name: lambda value, name=name: vkdml.gru(*arrays, **{name: value}) for name in ("device", "options")}.items()
    yield from {name: lambda value, name=name: vkdml.Options(**{name: value}) for name in ("parts", "schedule", "fused", "workspace_bytes")}.items()
    layer = vkdml.GRU(*arrays[1:])
    yield from {"warm_up": layer.warm_up, "batch": lambda value: layer.stream(batch=value), "call": layer}.items()


def onnx(device):
    from vkdml.onnx import InferenceSession, run_node, supports_device

    proto = model("g (float[T,B,3] x) => (float[T,1,B,4] y, float[1,B,4] h) { z = Neg (x) y, h = GRU <hidden_size=4> (z, W, R, B) }", weights())
    node, arrays = proto.graph.node[1], [np.zeros(shape, np.float32) for shape in ((2, 1, 3), (1, 12, 3), (1, 12, 4), (1, 24))]
    session = InferenceSession(proto)
    yield from {
        "device": lambda value: InferenceSession(proto, device=value), "options": lambda value: InferenceSession(proto, options=value),
        "stream": session.stream, "carried": lambda value: session.stream({"h": value}), "warm_up": session.warm_up,
        "node": lambda value: run_node(value, arrays), "arrays": lambda value: run_node(node, value),
        "array": lambda value: run_node(node, [value, *arrays[1:]]), "weights": lambda value: run_node(node, [arrays[0], value, *arrays[2:]]),
        "opset_version": lambda value: run_node(node, arrays, opset_version=value), "node's device": lambda value: run_node(node, arrays, value),
        "supports_device": supports_device,
    }.items()


def torch_twins(device):
    torch = pytest.importorskip("torch")
    import vkdml.torch

    gru, cell = (vkdml.torch.convert(module.eval()) for module in (torch.nn.GRU(3, 4), torch.nn.LSTMCell(3, 4)))
    x = torch.zeros(2, 1, 3)
    yield from {"gru": torch.no_grad()(gru), "hx": torch.no_grad()(lambda value: gru(x, value)), "cell": torch.no_grad()(cell),
                "cell hx": torch.no_grad()(lambda value: cell(x[0], value)), "convert": vkdml.torch.convert,
                "device": lambda value: vkdml.torch.convert(gru, value), "warm_up": lambda value: vkdml.torch.warm_up(value, 1),
                "T": lambda value: vkdml.torch.warm_up(gru, value), "B": lambda value: gru.warm_up(1, value)}.items()


@pytest.mark.filterwarnings("ignore")  # numpy's, of overflows
@pytest.mark.family("faces; of the last two many values are taken, and compile something", first=3)
@pytest.mark.parametrize("face", [directml, pydirectml, onnx, numpy_functions, torch_twins])
def test_arguments_of_any_type(device, face):
    """Numbers of numpy mean the same as Python's."""
    refused, others = [], []

    def is_refused(name, call, value):
        try:
            call(value)
        except vkdml.errors.VkdmlError as error:
            refused.append(str(error))
            return True
        except Exception as error:
            others.append(f"{name} of a {type(value).__name__}: {type(error).__name__}: {error}")

    for name, call in face(device):
        for value in (*VALUES, Unshown()):
            is_refused(name, call, value)
        for value in (np.int64(0), np.int64(2), np.uint8(1)):
            if is_refused(name, call, value) and not is_refused(name, call, value.item()):
                others.append(f"{name} of a {type(value).__name__}: {refused[-1]}")
    assert not others, "\n".join(others)
    assert len(refused) > 100
    assert all(refused)
