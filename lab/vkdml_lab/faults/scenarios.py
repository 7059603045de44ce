"""Scenarios to run while Vulkan calls fail. A scenario is a function that makes an object and returns a function to run it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import parser

import vkdml
import vkdml.pydirectml as dml
from vkdml.onnx import InferenceSession
from vkdml_lab.internals import SCHEDULES, Schedule

Run = Callable[[], list[np.ndarray]]

_T, _B, _I, _H = 3, 2, 3, 5


def _random(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).uniform(-0.5, 0.5, sizes).astype(np.float32)


def _arrays(gates: int) -> list[np.ndarray]:
    return [_random(_T, _B, _I), _random(1, gates * _H, _I), _random(1, gates * _H, _H)]


_CELLS: dict[str, tuple[Callable[..., tuple[np.ndarray, ...]], int]] = {  # the function and its number of gates, by cell
    "gru": (vkdml.gru, 3), "lstm": (vkdml.lstm, 4), "rnn": (vkdml.rnn, 1)}


def _function(name: str, schedule: Schedule) -> Callable[[], Run]:
    function, gates = _CELLS[name]
    return lambda: lambda: list(function(*_arrays(gates), options=vkdml.Options(schedule=schedule)))


def _discrete(run: Run) -> Run:
    """Let the default device copy inputs and outputs, as discrete GPUs do. Returns the given function unchanged."""
    vkdml.Device().gpu.host_memory = False
    return run


def _long() -> list[np.ndarray]:
    """Run an RNN with 2 MiB of x and y, enough for a discrete GPU to run it in two chunks of steps that overlap."""
    return list(vkdml.rnn(_random(4, 2**14, _I), *_arrays(1)[1:]))


def _layer() -> Run:
    x, *weights = _arrays(3)
    layer = vkdml.GRU(*weights)
    return lambda: list(layer(x))


def _stream() -> Run:
    """Make a stream (a layer that keeps its state). Returns a function that resets it, runs it and returns its results."""
    x, *weights = _arrays(4)
    stream = vkdml.LSTM(*weights).stream(_B)

    def run() -> list[np.ndarray]:
        stream.reset()
        return [stream.step(step) for step in x] + list(stream.state.values())

    return run


def _tensor(*sizes: int, flags: vkdml.DML_TENSOR_FLAGS = vkdml.DML_TENSOR_FLAGS.NONE) -> vkdml.DML_BUFFER_TENSOR_DESC:
    return vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=sizes, Flags=flags)


def _relu(device: vkdml.Device) -> vkdml.Operator:
    """Make a ReLU operator, which compiles faster than any other."""
    return device.create_operator(vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(_tensor(_B, _H), _tensor(_B, _H)))


def _recorded(device: vkdml.Device, compiled: vkdml.CompiledOperator | vkdml.CompiledGraph) -> Run:
    """Record a compiled operator or graph with one input and one output. Returns a function that executes the recording."""
    x = _random(_B, _H)
    source, target = device.upload(x), device.create_buffer(x.nbytes)
    table, recorder = device.create_binding_table(compiled), device.create_command_recorder()
    table.bind_inputs([source])
    table.bind_outputs([target])
    recorder.record_dispatch(compiled, table)

    def run() -> list[np.ndarray]:
        recorder.execute()
        return [target.download(x.shape)]

    return run


def _activation() -> Run:
    device = vkdml.Device()
    return _recorded(device, device.compile_operator(_relu(device)))


def _graph() -> Run:
    """Compile a DirectML graph of two operators. Returns a function that runs it."""
    device = vkdml.Device()
    return _recorded(device, device.compile_graph(vkdml.DML_GRAPH_DESC(
        InputCount=1, OutputCount=1, Nodes=[vkdml.DML_OPERATOR_GRAPH_NODE_DESC(_relu(device))] * 2,
        InputEdges=[vkdml.DML_INPUT_GRAPH_EDGE_DESC(0, 0, 0)], OutputEdges=[vkdml.DML_OUTPUT_GRAPH_EDGE_DESC(1, 0, 0)],
        IntermediateEdges=[vkdml.DML_INTERMEDIATE_GRAPH_EDGE_DESC(0, 0, 1, 0)])))


def _life_cycle(is_asynchronous: bool) -> Callable[[], Run]:
    """Return a scenario for DirectML's objects, an initializer among them. is_asynchronous: whether execute_async() runs it."""
    def make() -> Run:
        x, w, r = _arrays(1)

        owned = vkdml.DML_TENSOR_FLAGS.OWNED_BY_DML
        device = vkdml.Device()
        compiled = device.compile_operator(device.create_operator(vkdml.DML_RNN_OPERATOR_DESC(
            InputTensor=_tensor(1, *x.shape), WeightTensor=_tensor(1, *w.shape, flags=owned),
            RecurrenceTensor=_tensor(1, *r.shape, flags=owned), OutputSequenceTensor=_tensor(_T, 1, _B, _H),
            ActivationDescs=[vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()],
            Direction=vkdml.DML_RECURRENT_NETWORK_DIRECTION.FORWARD)))
        source, target = device.create_buffer(x.nbytes), device.create_buffer(_T * _B * _H * 4)
        initializer = device.create_operator_initializer(compiled)
        table, recorder = device.create_binding_table(initializer), device.create_command_recorder()
        table.bind_inputs([None, device.upload(w), device.upload(r), None, None, None])
        recorder.record_dispatch(initializer, table)
        recorder.execute()
        table.reset(compiled)
        table.bind_inputs([source, None, None, None, None, None])
        table.bind_outputs([target, None])
        recorder = device.create_command_recorder()
        recorder.record_upload(source)
        recorder.record_dispatch(compiled, table)

        def run() -> list[np.ndarray]:
            source.write(x)
            if is_asynchronous:
                recorder.execute_async().wait()
            else:
                recorder.execute()
            return [target.download((_T, 1, _B, _H))]

        return run

    return make


def _onnx() -> Run:
    x, w, r = _arrays(3)
    session = InferenceSession(parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        demo (float[T, B, {_I}] x, float[1, {3 * _H}, {_I}] w, float[1, {3 * _H}, {_H}] r) => (float[T, 1, B, {_H}] z) {{
            y = GRU <hidden_size = {_H}> (x, w, r)
            z = Add (y, y) }}"""))
    return lambda: session.run(None, {"x": x, "w": w, "r": r})


def _torch() -> Run:
    """Convert a PyTorch module of two layers. Returns a function that runs it."""
    import torch  # importing torch takes seconds

    import vkdml.torch
    module = torch.nn.RNN(_I, _H, num_layers=2).eval().requires_grad_(False)
    for parameter in module.parameters():
        parameter.copy_(torch.from_numpy(_random(*parameter.shape)))
    twin, x = vkdml.torch.convert(module), torch.from_numpy(_random(_T, _B, _I))
    return lambda: [result.numpy() for result in twin(x)]


def _pydirectml() -> Run:
    """Compile a PyDirectML graph of two operators. Returns a function that runs it."""
    device, arrays = dml.Device(), [array[None] for array in _arrays(1)]
    builder = dml.GraphBuilder(device)
    inputs = [dml.input_tensor(builder, place, dml.TensorDesc(dml.TensorDataType.FLOAT32, list(array.shape)))
              for place, array in enumerate(arrays)]
    x, w, r = inputs
    rnn = dml.rnn(x, w, r, activation_descs=[dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH)],
                  direction=dml.RecurrentNetworkDirection.FORWARD, output_options=dml.OutputOptions.Sequence)
    outputs = [dml.activation_relu(rnn.sequence)]
    model = builder.build(dml.ExecutionFlags.NONE, outputs)
    bindings = [dml.Binding(expression, array) for expression, array in zip(inputs, arrays)]
    return lambda: [np.asarray(result) for result in device.compute(model, bindings, outputs)]


def _devices() -> Run:
    return lambda: [np.array([info.max_storage_buffer_range for info in vkdml.Device.enumerate()])]


SCHEDULES_OF_CELLS = {f"{cell}, {schedule}": _function(cell, schedule) for cell in _CELLS for schedule in SCHEDULES}
SCENARIOS: dict[str, Callable[[], Run]] = {
    "activation": _activation,
    "devices": _devices,
    **SCHEDULES_OF_CELLS,
    "persistent on a discrete GPU": lambda: _discrete(_function("lstm", "persistent")()),
    "long call on a discrete GPU": lambda: _discrete(_long),
    "layer": _layer,
    "stream": _stream,
    "graph": _graph,
    "life cycle": _life_cycle(is_asynchronous=False),
    "execute_async": _life_cycle(is_asynchronous=True),
    "onnx": _onnx,
    "torch": _torch,
    "pydirectml": _pydirectml,
}

# Scenarios that hold a Device, which stays lost
NAME_A_DEVICE = ("activation", "graph", "life cycle", "execute_async", "pydirectml")
