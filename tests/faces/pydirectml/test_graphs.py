"""Graphs out of PyDirectML's expressions: what is built, bound, chained and computed."""

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from tests.faces.pydirectml.support import CELLS, SIGMOID, TANH, B, Graph, H, I, T, arrays_of, close, numbers, refer, wrong
from vkdml.pydirectml import FLOAT16, FLOAT32, FORWARD, OWNED_BY_DML, UINT32


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
    wrong(lambda: dml.GraphBuilder(dml.Device), "GraphBuilder: device: found the class Device; expected")
    wrong(lambda: dml.input_tensor(graph.device, 0, square), "input_tensor: scope: found Device; expected GraphBuilder")
    wrong(lambda: dml.input_tensor(graph.builder, 0, square), "input_tensor: input_index: found 0, which another input has; expected a different one")
    wrong(lambda: dml.input_tensor(graph.builder, -1, square), "input_tensor: input_index: found")
    wrong(lambda: dml.input_tensor(graph.builder, 9, [1]), "input_tensor: tensor_desc: found list; expected TensorDesc")
    wrong(lambda: dml.reinterpret(x, FLOAT32, [4], None), "TotalTensorSizeInBytes: found 12; expected .* at least 16")
    wrong(lambda: dml.reinterpret(None, FLOAT32, [4], None), "reinterpret: input: found NoneType")


def test_wrong_bindings(graph):
    x = dml.input_tensor(graph.builder, 0, dml.TensorDesc(FLOAT32, [2, 3]))
    lengths = dml.input_tensor(graph.builder, 1, dml.TensorDesc(UINT32, [2]))
    wrong(lambda: dml.Binding(x, np.zeros(5)), r"Binding of input 0: data: found 5 elements; expected 6, for dml.TensorDesc of type 1")
    wrong(lambda: dml.Binding(x, [[1, 2], [3]]), "Binding of input 0: data: found lists of different lengths")
    wrong(lambda: dml.Binding(x, ["a"] * 6), "Binding of input 0: data: found <U1; expected numbers")
    wrong(lambda: dml.Binding(x, np.zeros(6, complex)), "Binding of input 0: data: found complex128; expected numbers")
    wrong(lambda: dml.Binding(None, np.zeros(6)), "Binding: expr: found NoneType")
    wrong(lambda: dml.Binding(dml.Expression(), np.zeros(6)), "Binding: expr: found an empty Expression")
    for data in ([1, -1], [1, 1.5], [1, np.nan], [1, 2**32]):
        wrong(lambda: dml.Binding(lengths, data), "Binding of input 1: data: found .* that uint32 cannot hold; expected whole numbers")  # noqa: B023
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


def test_zeros_follow_what_a_binding_gives(graph):
    """An input may be described, or bound, as less than operators read of its memory. They must not read another call's data."""
    one = [1, 1, 1]
    x = dml.input_tensor(graph.builder, 0, dml.TensorDesc(FLOAT32, dml.TensorFlags.NONE, [*one, 4], None, 32, 0))
    halves = dml.input_tensor(graph.builder, 1, dml.TensorDesc(FLOAT16, [3]))
    whole = [dml.activation_identity(dml.reinterpret(x, FLOAT32, [*one, 8], None)),
             dml.activation_identity(dml.reinterpret(halves, FLOAT16, [4], None))]
    model = graph.build(*whole)
    all_8, all_4 = np.arange(1, 9), np.arange(1, 5)
    full = [dml.Binding(x, all_8), dml.Binding(halves, all_4)]
    part = dml.reinterpret(x, FLOAT32, [2], None)
    for first, second, counts in ((*full, (8, 4)), (dml.Binding(x, all_8[:4]), full[1], (4, 4)),
                                  (dml.Binding(part, all_8[:2]), dml.Binding(halves, all_4[:3]), (2, 3))):
        graph.device.compute(model, full, whole)  # fills the buffers that the next call shares
        for result, count, all_numbers in zip(graph.device.compute(model, [first, second], whole), counts, (all_8, all_4), strict=True):
            np.testing.assert_array_equal(result.reshape(-1), np.where(np.arange(all_numbers.size) < count, all_numbers, 0))
    written = dml.activation_identity(halves)
    wrong(lambda: dml.reinterpret(written, FLOAT16, [4], None), "reinterpret: new_size: found 8 bytes; expected at most 6, which are written")


# Tensors: what describes them, and data as they lie in memory

ALL_NAMED = {"data_type": FLOAT16, "flags": OWNED_BY_DML, "sizes": [2, 3], "strides": [4, 1], "total_tensor_size_in_bytes": 24,
             "guaranteed_base_offset_alignment": 16}


@pytest.mark.parametrize(("desc", "expected"), [
    (dml.TensorDesc(FLOAT32, [2, 3, 5]), (FLOAT32, 0, [2, 3, 5], None, 120, 0)),
    (dml.TensorDesc(FLOAT32, (2, 3, 5), dml.TensorPolicy.default), (FLOAT32, 0, [2, 3, 5], None, 120, 0)),
    (dml.TensorDesc(sizes=[2, 3, 5, 7], data_type=FLOAT32, tensor_policy=dml.TensorPolicy.interleaved_channel),
     (FLOAT32, 0, [2, 3, 5, 7], [105, 1, 21, 3], 840, 0)),
    (dml.TensorDesc(FLOAT16, OWNED_BY_DML, np.array([3]), dml.TensorPolicy.interleaved_channel), (FLOAT16, 1, [3], [1], 8, 0)),
    (dml.TensorDesc(FLOAT16, OWNED_BY_DML, dml.Dimensions([3, 1])), (FLOAT16, 1, [3, 1], None, 8, 0)),
    (dml.TensorDesc(FLOAT32, [1, 8, 28, 28], [8, 1, 0, 0]), (FLOAT32, 0, [1, 8, 28, 28], [8, 1, 0, 0], 32, 0)),
    (dml.TensorDesc(UINT32, [2, 2], None), (UINT32, 0, [2, 2], None, 16, 0)),
    (dml.TensorDesc(FLOAT32, [2, 2], strides=[1, 2]), (FLOAT32, 0, [2, 2], [1, 2], 16, 0)),
    (dml.TensorDesc(**ALL_NAMED), (FLOAT16, 1, [2, 3], [4, 1], 24, 16)),
    (dml.TensorDesc(*ALL_NAMED.values()), (FLOAT16, 1, [2, 3], [4, 1], 24, 16)),
])
def test_tensor_descs(desc, expected):
    found = (desc.data_type, desc.flags, desc.sizes, desc.strides, desc.total_tensor_size_in_bytes,
             desc.guaranteed_base_offset_alignment)
    assert found == expected
    sizes = ",".join(map(str, desc.sizes))
    assert repr(desc) == f"dml.TensorDesc of type {desc.data_type.value} and shape [{sizes}] with flags {int(desc.flags)}"
    for name in ("sizes", "data_type", "strides"):
        with pytest.raises(AttributeError):
            setattr(desc, name, None)


def test_tensor_data():
    data = dml.TensorData([[1, 2], [3, 4]])
    assert isinstance(data, dml.TensorData)
    assert memoryview(data).format == "f"
    np.testing.assert_array_equal(np.array(data, np.float64), [[1, 2], [3, 4]])


def test_strides_of_inputs(graph):
    """Data come as they lie in memory."""
    arrays = {argument: arrays_of("rnn")[argument] for argument in ("input", "weight", "recurrence", "bias")}
    arrays["hidden_init"] = np.broadcast_to(numbers(1, 1, H), (1, B, H))
    interleaved = dml.TensorDesc(FLOAT32, [1, T, B, I], dml.TensorPolicy.interleaved_channel)
    assert interleaved.strides == [T * B * I, 1, I * T, T]
    inputs = {
        "input": graph.input(arrays["input"].transpose(1, 2, 0), interleaved),
        "weight": graph.input(arrays["weight"][0].T, dml.TensorDesc(FLOAT32, [1, 1, H, I], [0, 0, 1, H])),
        "hidden_init": graph.input(arrays["hidden_init"][0, 0], dml.TensorDesc(FLOAT32, [1, 1, B, H], [0, 0, 0, 1])),
        "recurrence": graph.input(np.pad(arrays["recurrence"][0], ((0, 0), (0, 2))).reshape(-1)[:-2],
                                  dml.TensorDesc(FLOAT32, [1, 1, H, H], [0, 0, H + 2, 1])),
        "bias": graph.input(np.append(arrays["bias"], [9, 9]),  # more memory than it needs
                            dml.TensorDesc(FLOAT32, dml.TensorFlags.NONE, [1, 1, 1, 2 * H], None, 8 * H + 8, 0)),
    }
    outputs = dml.rnn(**inputs, activation_descs=[TANH], direction=FORWARD, output_options=dml.OutputOptions.Both)
    assert outputs.sequence.get_output_desc().strides is None
    close(graph.compute(outputs.sequence)[0], refer("rnn", arrays)[0])


def test_strides_of_outputs(graph):
    x = numbers(3, 4)
    relu = dml.activation_relu(graph.input(x))
    transposed = dml.reinterpret(relu, FLOAT32, [4, 3], [1, 4])
    every_other = dml.reinterpret(relu, FLOAT32, [3, 2], [4, 2])
    results = graph.compute(transposed, every_other, dml.activation_identity(every_other))
    assert results[0].strides == (4, 16)
    for result, expected in zip(results, (x.T, x[:, ::2], x[:, ::2])):
        close(result, np.maximum(expected, 0))


def test_integers_of_other_types_are_reinterpreted(graph):
    arrays = arrays_of("rnn")
    lengths = graph.input(arrays.pop("sequence_lengths"), dml.TensorDesc(dml.TensorDataType.INT32, [B]))
    sequence = dml.rnn(**graph.inputs(arrays), sequence_lengths=dml.reinterpret(lengths, UINT32, [1, 1, 1, B], [0, 0, 0, 1]),
                       activation_descs=[TANH], direction=FORWARD, output_options=dml.OutputOptions.Both).sequence
    close(graph.compute(sequence)[0], refer("rnn", arrays | {"sequence_lengths": np.array([T, 0, 2])})[0])


@pytest.mark.parametrize(("arguments", "message"), [
    (([1], FLOAT32), r"TensorDesc: found \(list, DML_TENSOR_DATA_TYPE\); expected \(data_type, sizes, tensor_policy\) or"),
    ((FLOAT32,), "TensorDesc: found"),
    ((FLOAT32, OWNED_BY_DML), "TensorDesc: found"),
    ((FLOAT32, OWNED_BY_DML, [1], [1]), "TensorDesc: found"),
    ((1, [1]), "TensorDesc: found"),
    ((FLOAT32, [1], [1], [1]), "TensorDesc: found"),
    ((FLOAT32, [0, 1]), r"TensorDesc.sizes: found \[0, 1\]; expected whole numbers from 1"),
    ((FLOAT32, []), "TensorDesc.DimensionCount: found 0"),
    ((FLOAT32, OWNED_BY_DML, [2, 2], None, 12, 0), "TensorDesc.TotalTensorSizeInBytes: found 12; expected a multiple of 4, at least 16"),
])
def test_wrong_tensor_descs(arguments, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        dml.TensorDesc(*arguments)


def test_a_name_given_twice_is_no_tensor_desc():
    with pytest.raises(vkdml.InvalidArgumentError, match="TensorDesc: found .*sizes: list"):
        dml.TensorDesc(FLOAT32, [1], sizes=[1])
    with pytest.raises(vkdml.InvalidArgumentError, match="TensorDesc: found .*shape: list"):
        dml.TensorDesc(FLOAT32, shape=[1])
