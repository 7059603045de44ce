"""Graphs out of PyDirectML's expressions: what is built, bound, chained and computed."""

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from tests.faces.pydirectml.support import (
    BACKWARD,
    CELLS,
    FLOAT32,
    FORWARD,
    SIGMOID,
    TANH,
    UINT32,
    B,
    Graph,
    H,
    I,
    T,
    arrays_of,
    close,
    numbers,
    refer,
    wrong,
)


def layer(graph, cell, x, inputs, seed):
    """An operator's outputs with weights of their own, and what the reference needs of it."""
    gates, fused, _ = CELLS[cell]
    weights = {"weight": numbers(1, gates * H, inputs, seed=seed), "recurrence": numbers(1, gates * H, H, seed=seed + 1)}
    outputs = getattr(dml, cell)(x, **graph.inputs(weights), activation_descs=fused, direction=FORWARD,
                                 output_options=dml.OutputOptions.Both)
    return outputs, weights


def test_results_follow_the_bindings(graph):
    """Weights that are owned by DirectML too, with a model built once; what is bound is what the data were then."""
    arrays = arrays_of("gru")
    inputs = graph.inputs(arrays, flags=dml.TensorFlags.OWNED_BY_DML)
    sequence = dml.gru(**inputs, activation_descs=[SIGMOID, TANH], direction=FORWARD,
                       output_options=dml.OutputOptions.Sequence).sequence
    model = graph.build(sequence)
    for argument in (None, "input", "weight", "bias", "sequence_lengths"):
        if argument:
            arrays[argument] = arrays[argument] // 2 if argument == "sequence_lengths" else arrays[argument] * 2
        bindings = [dml.Binding(inputs[name], array.copy()) for name, array in arrays.items()]
        expected = refer("gru", arrays, linear_before_reset=True)[0]
        for _ in range(2):
            close(graph.device.compute(model, [None, *reversed(bindings)], [sequence])[0], expected)
    data = arrays["input"].copy()
    bindings[0] = dml.Binding(inputs["input"], data)
    data[...] = 7
    close(graph.device.compute(model, bindings, [sequence])[0], expected)


def test_layers_chain_where_the_sizes_fit(graph):
    x = numbers(T, B, I)
    first, weights = layer(graph, "rnn", graph.input(x), I, 1)
    between = dml.activation_relu(first.sequence)
    second, more = layer(graph, "gru", dml.reinterpret(between, FLOAT32, [1, T, B, H], None), H, 3)
    y = np.maximum(refer("rnn", {"input": x, **weights})[0], 0)
    z, z_h = refer("gru", {"input": y[:, 0], **more}, linear_before_reset=True)
    for result, expected in zip(graph.compute(second.single, between, second.sequence), (z_h[None], y, z), strict=True):
        close(result, expected)


def test_states_chain_as_they_are(graph):
    arrays = arrays_of("lstm")
    del arrays["sequence_lengths"]
    inputs = graph.inputs(arrays)
    common = {"activation_descs": CELLS["lstm"][1], "direction": FORWARD, "output_options": dml.OutputOptions.Both}
    first = dml.lstm(**inputs, **common)
    inputs |= {"hidden_init": first.single, "cell_mem_init": first.cell_single}
    second = dml.lstm(**inputs, **common)
    twice = arrays | {"input": np.concatenate([arrays["input"]] * 2)}
    close(graph.compute(second.sequence)[0], refer("lstm", twice)[0][T:])


def test_weights_that_an_operator_makes(graph):
    arrays = {argument: arrays_of("rnn")[argument] for argument in ("input", "weight", "recurrence")}
    inputs = graph.inputs(arrays)
    weight = inputs["weight"]
    inputs["weight"] = dml.activation_tanh(weight)
    sequence = dml.rnn(**inputs, activation_descs=[TANH], direction=FORWARD, output_options=dml.OutputOptions.Both).sequence
    model = graph.build(sequence)
    for factor in (1, -2):
        graph.bindings[1] = dml.Binding(weight, arrays["weight"] * factor)
        expected = refer("rnn", arrays | {"weight": np.tanh(arrays["weight"] * factor)})[0]
        close(graph.device.compute(model, graph.bindings, [sequence])[0], expected)


def test_one_expression_used_twice(graph):
    x, square = numbers(T, B, H), numbers(1, H, H)
    given, weights = graph.input(x), graph.input(square)
    common = {"activation_descs": [TANH], "output_options": dml.OutputOptions.Both}
    forward, backward = (dml.rnn(given, weights, weights, direction=direction, **common) for direction in (FORWARD, BACKWARD))
    relu = dml.activation_relu(weights)
    arrays = {"input": x, "weight": square, "recurrence": square}
    *sequences, positive = graph.compute(forward.sequence, backward.sequence, relu)
    for result, direction in zip(sequences, ("forward", "reverse"), strict=True):
        close(result, refer("rnn", arrays, direction=direction)[0])
    close(positive[0], np.maximum(square, 0))


def test_only_what_the_outputs_need_is_bound_and_computed(graph):
    x = graph.input(numbers(2, 3))
    unbound = dml.input_tensor(graph.builder, 7, graph.desc(numbers(2, 2)))
    other = dml.activation_relu(unbound)
    dml.rnn(dml.reinterpret(x, FLOAT32, [1, 3, 1, 2], None), unbound, unbound, activation_descs=[TANH], direction=FORWARD,
            output_options=dml.OutputOptions.Both)
    (result,) = graph.compute(dml.activation_tanh(x))
    close(result, np.tanh(numbers(2, 3))[None, None])
    with pytest.raises(vkdml.InvalidArgumentError, match="compute: bindings: found none for input 7; expected one for each input"):
        graph.compute(other)


def test_outputs_in_any_order_and_number(graph):
    x = numbers(2, 3)
    relu, tanh = (function(graph.input(x)) for function in (dml.activation_relu, dml.activation_tanh))
    flat = dml.reinterpret(relu, UINT32, [6], None)
    model = graph.build(flat, tanh)
    results = graph.device.compute(model, graph.bindings, (tanh, relu, flat, relu))
    assert results[2].dtype == np.uint32
    results[3][...] = 9
    close(results[0][0, 0], np.tanh(x))
    close(results[1][0, 0], np.maximum(x, 0))
    close(results[2].view(np.float32), np.maximum(x, 0).reshape(-1))
    assert graph.device.compute(model, graph.bindings, []) == []
    assert memoryview(results[0]).shape == (1, 1, 2, 3)


def test_an_output_may_be_less_than_its_memory(graph):
    x = numbers(3)
    double = dml.reinterpret(dml.activation_identity(graph.input(x)), dml.TensorDataType.FLOAT64, [1], None)
    np.testing.assert_array_equal(graph.compute(double)[0].view(np.float32), x[:2])


@pytest.mark.device
def test_devices(monkeypatch):
    assert repr(dml.Device()) == repr(dml.Device(True, use_debug_layer=True)) == f"dml.Device on {vkdml.Device().info.name}"
    if any(info.is_cpu for info in vkdml.Device.enumerate()):
        assert dml.Device(False).device.info.is_cpu
    monkeypatch.setattr(vkdml.DeviceInfo, "is_cpu", False)
    with pytest.raises(vkdml.DriverError, match="no Vulkan driver that runs on the CPU"):
        dml.Device(False)


def test_use_gpu_chooses_the_driver(monkeypatch):
    """Of a GPU and a CPU driver, as far as that can be seen without both."""
    opened = []
    infos = [vkdml.DeviceInfo(i, kind, kind, "", "", "", 1, False, 1, 1, 1, 1, 1) for i, kind in enumerate(["discrete", "cpu"])]
    monkeypatch.setattr(vkdml.Device, "enumerate", lambda: infos)
    monkeypatch.setattr(vkdml.Device, "__init__", lambda self, device=None: opened.append(device))
    dml.Device()
    dml.Device(False)
    assert opened == [None, 1]


def test_wrong_graphs(graph):
    other = Graph()
    x, foreign = graph.input(numbers(3)), other.input(numbers(3))
    tanh = dml.activation_tanh(x)
    square = dml.TensorDesc(FLOAT32, [1, 1, H, H])
    wrong(lambda: dml.rnn(dml.input_tensor(graph.builder, 1, dml.TensorDesc(FLOAT32, [1, T, B, H])),
                          *(dml.input_tensor(other.builder, i, square) for i in (1, 2)), activation_descs=[TANH],
                          direction=FORWARD, output_options=dml.OutputOptions.Both),
          "rnn: WeightTensor: found an Expression of another GraphBuilder; expected one of the same GraphBuilder")
    wrong(lambda: graph.build(), "build: outputs: found none; expected at least one Expression")
    wrong(lambda: graph.build(tanh, x), r"build: outputs\[1\]: found input 0; expected the output of an operator")
    wrong(lambda: graph.build(dml.reinterpret(x, FLOAT32, [3], None)), r"build: outputs\[0\]: found input 0")
    wrong(lambda: graph.build(dml.activation_relu(foreign)), r"build: outputs\[0\]: found an Expression of another GraphBuilder")
    wrong(lambda: graph.build(dml.Expression()), r"build: outputs\[0\]: found an empty Expression")
    wrong(lambda: graph.build(tanh, None), r"build: outputs\[1\]: found NoneType")
    wrong(lambda: graph.builder.build(dml.ExecutionFlags.NONE, tanh), "build: outputs: found Expression; expected a list of")
    wrong(lambda: graph.builder.build(0, [tanh]), "build: flags: found int; expected DML_EXECUTION_FLAGS")
    wrong(lambda: dml.GraphBuilder(vkdml.Device()), "GraphBuilder: device: found Device")
    wrong(lambda: dml.input_tensor(graph.device, 0, square), "input_tensor: scope: found Device; expected GraphBuilder")
    wrong(lambda: dml.input_tensor(graph.builder, 0, square), "input_tensor: input_index: found 0, which another input has; expected a different index")
    wrong(lambda: dml.input_tensor(graph.builder, -1, square), "input_tensor: input_index: found")
    wrong(lambda: dml.input_tensor(graph.builder, 9, [1]), "input_tensor: tensor_desc: found list; expected TensorDesc")
    wrong(lambda: dml.reinterpret(x, FLOAT32, [4], None), "TotalTensorSizeInBytes: found 12; expected .* at least 16")
    wrong(lambda: dml.reinterpret(None, FLOAT32, [4], None), "reinterpret: input: found NoneType")


def test_wrong_bindings(graph):
    x = dml.input_tensor(graph.builder, 0, dml.TensorDesc(FLOAT32, [2, 3]))
    lengths = dml.input_tensor(graph.builder, 1, dml.TensorDesc(UINT32, [2]))
    wrong(lambda: dml.Binding(x, np.zeros(5)), r"Binding: data: found 5 elements; expected 6, for dml.TensorDesc of type 1")
    wrong(lambda: dml.Binding(x, [[1, 2], [3]]), "Binding: data: found lists of different lengths")
    wrong(lambda: dml.Binding(x, ["a"] * 6), "Binding: data: found <U1; expected numbers")
    wrong(lambda: dml.Binding(x, np.zeros(6, complex)), "Binding: data: found complex128; expected numbers")
    wrong(lambda: dml.Binding(None, np.zeros(6)), "Binding: expr: found NoneType")
    wrong(lambda: dml.Binding(dml.Expression(), np.zeros(6)), "Binding: expr: found an empty Expression")
    for data in ([1, -1], [1, 1.5], [1, np.nan], [1, 2**32]):
        wrong(lambda: dml.Binding(lengths, data), "Binding: data: found .* that uint32 cannot hold; expected whole numbers")  # noqa: B023
    with pytest.raises(TypeError):
        dml.Binding(x)


def test_wrong_computations(graph, monkeypatch):
    x, y = graph.input(numbers(3)), graph.input(numbers(3))
    tanh, relu = dml.activation_tanh(x), dml.activation_relu(y)
    model, device, bindings = graph.build(tanh), graph.device, graph.bindings
    foreign = Graph()
    foreign.input(numbers(3))
    wrong(lambda: device.compute(None, bindings, [tanh]), "compute: model: found NoneType; expected Model")
    wrong(lambda: device.compute(model, [], [tanh]), "compute: bindings: found none for input 0; expected one for each input")
    wrong(lambda: device.compute(model, bindings + bindings[:1], [tanh]), r"compute: bindings\[2\]: found a second one for input 0")
    wrong(lambda: device.compute(model, foreign.bindings, [tanh]), r"compute: bindings\[0\]: found input 0 of another GraphBuilder")
    wrong(lambda: device.compute(model, [*bindings, dml.Binding(relu, numbers(3))], [tanh]),
          r"compute: bindings\[2\]: found OutputTensor 1 of another GraphBuilder or of an operator; expected an input")
    wrong(lambda: device.compute(model, [numbers(3)], [tanh]), r"compute: bindings\[0\]: found ndarray; expected Binding")
    wrong(lambda: device.compute(model, bindings[0], [tanh]), "compute: bindings: found Binding; expected a list of Binding")
    wrong(lambda: device.compute(model, bindings, [tanh, relu]), r"compute: outputs\[1\]: found OutputTensor 1; expected one of the outputs given to build")
    wrong(lambda: device.compute(model, bindings, tanh), "compute: outputs: found Expression; expected a list of Expression")
    wrong(lambda: device.compute(model, bindings, [None]), r"compute: outputs\[0\]: found NoneType; expected Expression")
    with monkeypatch.context() as other:
        other.setattr(vkdml.Device, "__eq__", lambda self, other: False)
        wrong(lambda: device.compute(model, bindings, [tanh]), "compute: model: found one for .*; expected one for")
    close(device.compute(model, bindings, [tanh])[0][0, 0, 0], np.tanh(numbers(3)))


def test_sequence_lengths_above_t(graph):
    arrays = arrays_of("rnn") | {"sequence_lengths": np.array([1, T + 1, 0])}
    sequence = dml.rnn(**graph.inputs(arrays), activation_descs=[TANH], direction=FORWARD,
                       output_options=dml.OutputOptions.Both).sequence
    wrong(lambda: graph.compute(sequence), "sequence length of row 1: found 5; expected 0 to T = 4")
