"""PyDirectML's surface: its scripts run with another import, and what they compute is the reference's."""

import inspect

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from tests.faces.graph_support import (
    BACKWARD,
    BIDIRECTIONAL,
    CELLS,
    DIRECTIONS,
    FLOAT16,
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
)
from vkdml.spec import activations, element_types, reference


@pytest.fixture
def graph():
    return Graph()


def layer(graph, cell, x, inputs, seed):
    """An operator's outputs with weights of their own, and what the reference needs of it."""
    gates, fused, _ = CELLS[cell]
    weights = {"weight": numbers(1, gates * H, inputs, seed=seed), "recurrence": numbers(1, gates * H, H, seed=seed + 1)}
    outputs = getattr(dml, cell)(x, **graph.inputs(weights), activation_descs=fused, direction=FORWARD,
                                 output_options=dml.OutputOptions.Both)
    return outputs, weights


SCRIPT = """
import pydirectml as dml
import numpy as np

device = dml.Device(True, True)
builder = dml.GraphBuilder(device)

data_type = dml.TensorDataType.FLOAT32
flags = dml.TensorFlags.OWNED_BY_DML
input_bindings = []

def append_input_tensor(builder: dml.GraphBuilder, input_bindings: list, input_tensor: dml.TensorDesc, array):
    tensor = dml.input_tensor(builder, len(input_bindings), input_tensor)
    if array is None:
        input_bindings.append(dml.Binding(tensor, np.zeros(tensor.get_output_desc().sizes)))
    else:
        input_bindings.append(dml.Binding(tensor, array))
    return tensor

input = dml.input_tensor(builder, 0, dml.TensorDesc(data_type, [1, T, B, I]))
input_bindings.append(dml.Binding(input, x))
weight = append_input_tensor(builder, input_bindings, dml.TensorDesc(data_type, flags, [1, 2, 3 * H, I]), w)
recurrence = append_input_tensor(builder, input_bindings, dml.TensorDesc(data_type, flags, (1, 2, 3 * H, H)), r)
bias = append_input_tensor(builder, input_bindings, dml.TensorDesc(data_type, flags, [1, 1, 2, 6 * H]), b)
hidden = append_input_tensor(builder, input_bindings, dml.TensorDesc(data_type=data_type, sizes=[1, 2, B, H]), None)
lengths = append_input_tensor(builder, input_bindings, dml.TensorDesc(dml.TensorDataType.UINT32, [1, 1, 1, B]), sequence_lens)

f = dml.FusedActivation(dml.OperatorType.ACTIVATION_SIGMOID)
g = dml.FusedActivation(activation = dml.OperatorType.ACTIVATION_SCALED_TANH, param_1 = 0.9, param_2 = 0.7)
gru = dml.gru(input, weight, recurrence, bias = bias, hidden_init = hidden, sequence_lengths = lengths,
              activation_descs = [f, g, f, g], direction = dml.RecurrentNetworkDirection.BIDIRECTIONAL,
              linear_before_reset = linear, output_options = dml.OutputOptions.Both)
relu = dml.activation_relu(gru.sequence)

op = builder.build(dml.ExecutionFlags.NONE, [relu, gru.single])
output_data = device.compute(op, input_bindings, [relu, gru.single])
output_tensor = np.array(output_data[0], np.float32)
last = np.array(output_data[1], np.float32)
"""


@pytest.mark.parametrize("lengths_as", [np.int64, np.float32])
@pytest.mark.parametrize("linear", [0, 1])
def test_a_script_with_only_its_import_changed(linear, lengths_as):
    """PyDirectML itself takes lengths as float32 bits only."""
    given = {"x": numbers(T, B, I), "w": numbers(2, 3 * H, I), "r": numbers(2, 3 * H, H), "b": numbers(2, 6 * H),
             "sequence_lens": np.array([T, 0, 2])}
    run = {"T": T, "B": B, "I": I, "H": H, "linear": linear, **given}
    if lengths_as is np.float32:
        run["sequence_lens"] = given["sequence_lens"].astype(np.uint32).view(np.float32)
    exec(SCRIPT.replace("import pydirectml as dml", "import vkdml.pydirectml as dml"), run)
    scaled = {"activation_alpha": [0.9, 0.9], "activation_beta": [0.7, 0.7]}
    y, y_h = reference.gru(**given, direction="bidirectional", linear_before_reset=bool(linear),
                           activations=["Sigmoid", "ScaledTanh"] * 2, **scaled)
    assert type(run["output_tensor"]) is np.ndarray
    close(run["output_tensor"], np.maximum(y, 0))
    close(run["last"], y_h[None])


@pytest.mark.parametrize(("direction", "options"), list(zip(DIRECTIONS, reversed(dml.OutputOptions))))
@pytest.mark.parametrize("cell", CELLS)
def test_directions_and_output_options(graph, cell, direction, options):
    d = 2 if direction == BIDIRECTIONAL else 1
    arrays = arrays_of(cell, d)
    _, fused, names = CELLS[cell]
    outputs = getattr(dml, cell)(**graph.inputs(arrays), activation_descs=fused * d, direction=direction, output_options=options)
    attributes = {"linear_before_reset": True} if cell == "gru" else {}  # PyDirectML's default
    expected = dict(zip(names, refer(cell, arrays, direction=DIRECTIONS[direction], **attributes), strict=True))
    wanted = {dml.OutputOptions.Both: names, dml.OutputOptions.Sequence: names[:1], dml.OutputOptions.Single: names[1:]}[options]
    for name in names:
        if name not in wanted:
            with pytest.raises(vkdml.InvalidArgumentError, match="found an empty Expression"):
                getattr(outputs, name).get_output_desc()
    expressions = [getattr(outputs, name) for name in wanted]
    for name, expression, result in zip(wanted, expressions, graph.compute(*expressions), strict=True):
        sizes = (T if name == "sequence" else 1, d, B, H)
        assert expression.get_output_desc().sizes == list(sizes)
        assert isinstance(result, dml.TensorData)
        close(result, expected[name].reshape(sizes))


def test_without_what_is_optional_and_all_by_position(graph):
    for cell, (_, fused, _) in CELLS.items():
        arrays = {argument: arrays_of(cell)[argument] for argument in ("input", "weight", "recurrence")}
        own = {"gru": [0], "lstm": [0.25, True], "rnn": []}[cell]
        left_out = [None] * (5 if cell == "lstm" else 3)
        outputs = getattr(dml, cell)(*graph.inputs(arrays).values(), *left_out, fused, BACKWARD, *own, dml.OutputOptions.Both)
        attributes = {"clip": 0.25, "input_forget": True} if cell == "lstm" else {}
        close(graph.compute(outputs.sequence)[0], refer(cell, arrays, direction="reverse", **attributes)[0])


def test_signatures_are_pydirectml_s():
    assert list(inspect.signature(dml.gru).parameters) == [
        "input", "weight", "recurrence", "bias", "hidden_init", "sequence_lengths", "activation_descs", "direction",
        "linear_before_reset", "output_options"]
    assert inspect.signature(dml.gru).parameters["linear_before_reset"].default == 1
    for function, names in {dml.input_tensor: "scope input_index tensor_desc", dml.FusedActivation: "activation param_1 param_2",
                            dml.reinterpret: "input new_type new_size new_strides", dml.Binding: "expr data",
                            dml.activation_linear: "input alpha beta", dml.GRUOutputs: "sequence single",
                            dml.Device: "use_gpu use_debug_layer", dml.activation_tanh: "input"}.items():
        assert list(inspect.signature(function).parameters) == names.split()
    outputs = dml.GRUOutputs(dml.Expression(), dml.Expression())
    outputs.single = outputs.sequence
    assert list(map(int, dml.OutputOptions)) == [0, 1, 2]
    assert (dml.FLOAT16, dml.OWNED_BY_DML, dml.BIDIRECTIONAL, dml.ACTIVATION_ELU, dml.DISABLE_META_COMMANDS) == (
        FLOAT16, dml.TensorFlags.OWNED_BY_DML, BIDIRECTIONAL, dml.OperatorType.ACTIVATION_ELU,
        dml.ExecutionFlags.DISABLE_META_COMMANDS)


# FusedActivation's parameters are the structure's fields in DirectML.h's order
FUSED = {"HARD_SIGMOID": {"Alpha": 0.4, "Beta": 0.3}, "SHRINK": {"Bias": 0.1, "Threshold": 0.2}, "ELU": {"Alpha": 0.7},
         "SCALED_ELU": {"Alpha": 1.2, "Gamma": 0.8}, "PARAMETRIC_SOFTPLUS": {"Alpha": 0.6, "Beta": 1.3},
         "SOFTPLUS": {"Steepness": 1.5}, "LINEAR": {"Alpha": 0.7, "Beta": 0.2}, "LEAKY_RELU": {}, "IDENTITY": {}}


@pytest.mark.parametrize(("name", "parameters"), FUSED.items())
def test_fused_activations(graph, name, parameters):
    arrays = {argument: arrays_of("rnn")[argument] for argument in ("input", "weight", "recurrence")}
    fused = dml.FusedActivation(getattr(dml, f"ACTIVATION_{name}"), *parameters.values())
    outputs = dml.rnn(**graph.inputs(arrays), activation_descs=(fused,), direction=FORWARD,
                      output_options=dml.OutputOptions.Sequence)
    parameters = parameters or {"LEAKY_RELU": {"Alpha": 0}}.get(name, {})  # not given is 0 there, whatever DirectMLX's defaults
    desc = getattr(vkdml, f"DML_ACTIVATION_{name}_OPERATOR_DESC")(**parameters)
    close(graph.compute(outputs.sequence)[0], refer("rnn", arrays, activations=[desc])[0])


def test_activations_of_pydirectml(graph):
    x = numbers(2, 3, 4)
    formulas = {
        dml.activation_relu: lambda x: np.maximum(x, 0), dml.activation_sigmoid: lambda x: 1 / (1 + np.exp(-x)),
        dml.activation_identity: lambda x: x, dml.activation_tanh: np.tanh,
        (lambda x: dml.activation_linear(x, 2, -3)): lambda x: 2 * x - 3,
        (lambda x: dml.activation_linear(x, beta=0.5, alpha=-1)): lambda x: 0.5 - x,
    }
    given = graph.input(x)
    for result, formula in zip(graph.compute(*(function(given) for function in formulas)), formulas.values()):
        close(result, formula(x.astype(np.float64))[None])


def test_all_activations_with_their_defaults_and_parameters(graph):
    given, expected = graph.input(numbers(40)), []
    expressions = []
    for desc, row in activations.BY_DESC.items():
        function = getattr(dml, row.operator_type.name.lower())
        assert function.__name__ in dml.__all__
        for parameters in ({}, {field: 0.75 + i for i, field in enumerate(row.fields)}, dict.fromkeys(row.fields[1:], 0.6)):
            expressions.append(function(given, **{field.lower(): value for field, value in parameters.items()}))
            fused = activations.parametrize("", "", desc(**parameters), element_types.FLOAT32)
            expected.append(fused(numbers(40).astype(np.float64)))
    for result, wanted in zip(graph.compute(*expressions), expected, strict=True):
        close(result[0, 0, 0], wanted)


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


def test_float16(graph):
    arrays = arrays_of("gru", 2)
    outputs = dml.gru(**graph.inputs(arrays, data_type=FLOAT16), activation_descs=[SIGMOID, TANH] * 2, direction=BIDIRECTIONAL,
                      output_options=dml.OutputOptions.Both)
    rounded = {name: array if array.dtype.kind == "i" else array.astype(np.float16) for name, array in arrays.items()}
    expected = refer("gru", rounded, direction="bidirectional", linear_before_reset=True)
    results = graph.compute(dml.activation_relu(outputs.sequence), outputs.single)
    close(results[0], np.maximum(expected[0], 0), "float16")
    close(results[1], expected[1][None], "float16")


def test_an_odd_number_of_halves(graph):
    """Their memory is rounded up to 4 bytes; data may fill it or not."""
    for data in (numbers(3), [*numbers(3), 9.0]):
        given = graph.input(np.array(data), dml.TensorDesc(FLOAT16, [3]))
        (result,) = graph.compute(dml.activation_identity(given))
        np.testing.assert_array_equal(result, numbers(3).astype(np.float16))


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


OWNED = dml.TensorFlags.OWNED_BY_DML
ALL_NAMED = {"data_type": FLOAT16, "flags": OWNED, "sizes": [2, 3], "strides": [4, 1], "total_tensor_size_in_bytes": 24,
             "guaranteed_base_offset_alignment": 16}


@pytest.mark.parametrize(("desc", "expected"), [
    (dml.TensorDesc(FLOAT32, [2, 3, 5]), (FLOAT32, 0, [2, 3, 5], None, 120, 0)),
    (dml.TensorDesc(FLOAT32, (2, 3, 5), dml.TensorPolicy.default), (FLOAT32, 0, [2, 3, 5], None, 120, 0)),
    (dml.TensorDesc(sizes=[2, 3, 5, 7], data_type=FLOAT32, tensor_policy=dml.TensorPolicy.interleaved_channel),
     (FLOAT32, 0, [2, 3, 5, 7], [105, 1, 21, 3], 840, 0)),
    (dml.TensorDesc(FLOAT16, OWNED, np.array([3]), dml.TensorPolicy.interleaved_channel), (FLOAT16, 1, [3], [1], 8, 0)),
    (dml.TensorDesc(FLOAT16, OWNED, dml.Dimensions([3, 1])), (FLOAT16, 1, [3, 1], None, 8, 0)),
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


def test_devices(monkeypatch):
    assert repr(dml.Device()) == repr(dml.Device(True, use_debug_layer=True)) == "dml.Device on GPU"
    if any(info.is_cpu for info in vkdml.Device.enumerate()):
        assert repr(dml.Device(use_gpu=False)) == "dml.Device on CPU"
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
