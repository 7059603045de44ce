"""PyDirectML's functions: its scripts run with another import, and what they compute is the reference's."""

import inspect
from enum import Enum

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from tests.faces.pydirectml.support import CELLS, DIRECTIONS, SIGMOID, TANH, B, H, I, T, arrays_of, close, numbers, refer, wrong
from vkdml.operators import activations, element_types, reference
from vkdml.pydirectml import BACKWARD, BIDIRECTIONAL, FLOAT16, FLOAT32, FORWARD, TRANSPOSE, UINT32

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


@pytest.mark.device
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


@pytest.mark.family("each cell with each direction")
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
                            dml.gemm: "a b c trans_a trans_b alpha beta fused_activation", dml.add: "a b fused_activation",
                            dml.subtract: "a b", dml.multiply: "a b", dml.join: "input axis",
                            dml.slice: "input input_window_offsets input_window_sizes input_window_strides",
                            dml.gather: "input indices axis index_dimensions",
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


def test_all_activations_with_their_defaults_and_parameters(graph):
    given, expected = graph.input(numbers(40)), []
    expressions = []
    for desc, row in activations.BY_DESC.items():
        function = getattr(dml, row.operator_type.name.lower())
        assert function.__name__ in dml.__all__
        for parameters in ({}, {field: 0.75 + i for i, field in enumerate(row.fields)}, dict.fromkeys(row.fields[1:], 0.6)):
            by_name = {field.lower(): value for field, value in parameters.items()}
            in_order = len(parameters) == len(row.fields)
            expressions.append(function(given, *parameters.values()) if in_order else function(given, **by_name))
            fused = activations.parametrize("", "", desc(**parameters), element_types.FLOAT32)
            expected.append(fused(numbers(40).astype(np.float64)))
    for result, wanted in zip(graph.compute(*expressions), expected, strict=True):
        close(result[0, 0, 0], wanted)


def test_float16(graph):
    arrays = arrays_of("gru", 2)
    outputs = dml.gru(**graph.inputs(arrays, data_type=FLOAT16), activation_descs=[SIGMOID, TANH] * 2, direction=BIDIRECTIONAL,
                      output_options=dml.OutputOptions.Both)
    rounded = {name: array if array.dtype.kind == "i" else array.astype(np.float16) for name, array in arrays.items()}
    expected = refer("gru", rounded, direction="bidirectional", linear_before_reset=True)
    results = graph.compute(dml.activation_relu(outputs.sequence), outputs.single)
    close(results[0], np.maximum(expected[0], 0), "float16")
    close(results[1], expected[1][None], "float16")


@pytest.mark.parametrize(("changes", "message"), [
    ({"input": None}, "gru: InputTensor: found NoneType; expected Expression"),
    ({"weight": dml.Expression()}, "gru: WeightTensor: found an empty Expression"),
    ({"recurrence": None}, "gru: RecurrenceTensor: found NoneType"),
    ({"bias": 3}, "gru: BiasTensor: found int"),
    ({"output_options": None}, "gru: output_options: found NoneType; expected OutputOptions"),
    ({"output_options": 1}, "gru: output_options: found int; expected OutputOptions"),
    ({"direction": None}, "DML_GRU_OPERATOR_DESC: Direction: found None"),
    ({"activation_descs": TANH}, "gru: activation_descs: found FusedActivation; expected a list of FusedActivation"),
    ({"activation_descs": [SIGMOID, "TANH"]}, r"gru: activation_descs\[1\]: found str; expected FusedActivation"),
    ({"activation_descs": [SIGMOID, dml.FusedActivation(dml.OperatorType.ACTIVATION_SOFTPLUS)]},
     r"ActivationDescs\[1\].Steepness: found 0; expected a number other than 0"),
])
def test_wrong_arguments_of_gru(graph, changes, message):
    arrays = {argument: arrays_of("gru")[argument] for argument in ("input", "weight", "recurrence")}
    arguments = {**graph.inputs(arrays), "activation_descs": [SIGMOID, TANH], "direction": FORWARD,
                 "output_options": dml.OutputOptions.Both}
    wrong(lambda: dml.gru(**(arguments | changes)), message)


def test_wrong_tensors_of_gru(graph):
    def gru(**descs):
        sizes = {"input": [1, T, B, I], "weight": [1, 1, 3 * H, I], "recurrence": [1, 1, 3 * H, H]}
        descs = {name: dml.TensorDesc(FLOAT32, size) for name, size in sizes.items()} | descs
        builder = dml.GraphBuilder(graph.device)
        inputs = {name: dml.input_tensor(builder, i, desc) for i, (name, desc) in enumerate(descs.items())}
        return dml.gru(**inputs, activation_descs=[SIGMOID, TANH], direction=FORWARD, output_options=dml.OutputOptions.Both)

    gru()
    wrong(lambda: gru(input=dml.TensorDesc(FLOAT32, [T, B, I])), "GRU_OPERATOR_DESC: InputTensor.DimensionCount: found 3")
    wrong(lambda: gru(recurrence=dml.TensorDesc(FLOAT32, [15])), "GRU_OPERATOR_DESC: RecurrenceTensor.DimensionCount: found 1")
    wrong(lambda: gru(input=dml.TensorDesc(UINT32, [1, T, B, I])), "InputTensor.DataType: found DML_TENSOR_DATA_TYPE.UINT32")


def test_wrong_parameters_of_activations(graph):
    x = graph.input(numbers(3))
    wrong(lambda: dml.activation_relu(None), "activation_relu: input: found NoneType; expected Expression")
    wrong(lambda: dml.activation_celu(x, 0), "Alpha: found 0; expected a number other than 0")
    wrong(lambda: dml.activation_tanh(dml.input_tensor(graph.builder, 5, dml.TensorDesc(UINT32, [1]))), "DataType: found DML_TENSOR_DATA_TYPE.UINT32")
    wrong(lambda: dml.FusedActivation("RELU"), "FusedActivation: activation: found str; expected DML_OPERATOR_TYPE")
    with pytest.raises(TypeError, match="gamma"):
        dml.activation_elu(x, gamma=1)


@pytest.mark.parametrize("name", ["convolution", "divide", "activation_soft_max", "Size2D", "no_such_thing"])
def test_other_operators_are_absent(name):
    with pytest.raises(AttributeError, match=f"vkdml.pydirectml has no '{name}': of PyDirectML, it has what recurrent networks need"):
        getattr(dml, name)


# The operators without a time loop, and a model made of them and of recurrent ones

RELU = dml.FusedActivation(dml.OperatorType.ACTIVATION_RELU)


def test_arithmetic(graph):
    x, y = numbers(2, 3), numbers(2, 3, seed=1)
    a, b = graph.input(x), graph.input(y)
    cases = {dml.add(a, b): x + y, dml.subtract(a, b): x - y, dml.multiply(a, b): x * y, a + b: x + y, a - b: x - y, a * b: x * y,
             dml.add(a, b, RELU): np.maximum(x + y, 0), a + 2: x + 2, 2 + a: x + 2, a - 0.5: x - 0.5, 1 - a: 1 - x, 3 * a: 3 * x,
             a * np.float32(2): 2 * x, a / 4: x / 4, -a: -x, dml.identity(a): x, dml.identity(a, dml.ScaleBias(2, 1)): 2 * x + 1}
    for result, expected in zip(graph.compute(*cases), cases.values(), strict=True):
        close(result[0, 0], expected)


@pytest.mark.parametrize(("data_type", "element"), [(FLOAT32, "float32"), (FLOAT16, "float16")])
def test_gemm(graph, data_type, element):
    x, w, c = (numbers(*sizes).astype(element) for sizes in ((2, 3, 5), (2, 4, 5), (2, 3, 4)))
    a, b, bias = (graph.input(array, graph.desc(array, data_type)) for array in (x, w, c))
    product = x.astype(np.float64) @ w.astype(np.float64).swapaxes(-1, -2)
    plain, full = dml.gemm(a, b, trans_b=TRANSPOSE), dml.gemm(a, b, bias, trans_b=TRANSPOSE, alpha=0.5, beta=2, fused_activation=TANH)
    flat = graph.input(x[0], dml.TensorDesc(data_type, [3, 5]))
    first, second, third = graph.compute(plain, full, dml.gemm(flat, flat, trans_a=TRANSPOSE))
    close(third, x[0].astype(np.float64).T @ x[0].astype(np.float64), element)
    close(first[0], product, element)
    close(second[0], np.tanh(0.5 * product + 2 * c.astype(np.float64)), element)


def test_join_slice_and_gather(graph):
    x, y, indices = numbers(4, 3), numbers(4, 2), np.array([[3, 0], [0, 2], [1, 1]], np.uint32)
    a, b, i = (graph.input(array) for array in (x, y, indices))
    joined, cut = dml.join([a, b, a], 3), dml.slice(a, [0, 0, 1, 0], [1, 1, 3, 3], [1, 1, -2, 2])
    found = dml.gather(a, i, 2, 2)
    results = graph.compute(joined, cut, found)
    np.testing.assert_array_equal(results[0][0, 0], np.concatenate([x, y, x], 1))
    np.testing.assert_array_equal(results[1][0, 0], x[3:0:-2, ::2])
    np.testing.assert_array_equal(results[2][0], x[indices])


def embedding_layers_and_head(graph, t, b, vocabulary, e, h, classes):
    """A whole model's expression, and what the reference makes of it."""
    table, head, bias = numbers(vocabulary, e), numbers(classes, h), numbers(classes)
    words = np.random.default_rng(0).integers(0, vocabulary, (t, b)).astype(np.uint32)
    first = {"weight": numbers(2, 3 * h, e), "recurrence": numbers(2, 3 * h, h), "bias": numbers(2, 6 * h)}
    second = {"weight": numbers(1, 3 * h, 2 * h), "recurrence": numbers(1, 3 * h, h, seed=2), "bias": numbers(1, 6 * h)}
    sequence = dml.OutputOptions.Sequence
    # Data first, then ever more weights: a model of PyDirectML's samples
    x = dml.gather(graph.input(table), graph.input(words), 2, 2)  # {1, T, B, E}
    y = dml.gru(x, **graph.inputs(first), activation_descs=[SIGMOID, TANH] * 2, direction=BIDIRECTIONAL, output_options=sequence).sequence
    halves = [dml.slice(y, [0, d, 0, 0], [t, 1, b, h], [1] * 4) for d in (0, 1)]  # {T, 2, B, H} -> {T, 1, B, 2H}
    x = dml.reinterpret(dml.join(halves, 3), FLOAT32, [1, t, b, 2 * h], None)
    y = dml.gru(x, **graph.inputs(second), activation_descs=[SIGMOID, TANH], direction=FORWARD, output_options=sequence).sequence
    rows = dml.reinterpret(y, FLOAT32, [1, 1, t * b, h], None)
    wide = dml.reinterpret(graph.input(bias), FLOAT32, [1, 1, t * b, classes], [0, 0, 0, 1])
    scores = dml.gemm(rows, graph.input(head), wide, trans_b=TRANSPOSE, fused_activation=SIGMOID)

    y = refer("gru", {"input": table[words], **first}, direction="bidirectional", linear_before_reset=True)[0]
    y = refer("gru", {"input": np.concatenate([y[:, 0], y[:, 1]], -1), **second}, linear_before_reset=True)[0]
    return scores, 1 / (1 + np.exp(-(y.reshape(t * b, h) @ head.T + bias)))


def test_a_whole_model_in_one_submission(graph):
    scores, expected = embedding_layers_and_head(graph, 6, 3, 11, 5, 7, 4)
    model = graph.build(scores)
    for _ in range(2):
        close(graph.device.compute(model, graph.bindings, [scores])[0][0, 0], expected)
    ((turn,),) = model.execution._turns.values()
    assert turn.commands.counts[0] == 1
    bindings = [dml.Binding(binding.expression, np.full((6, 3), 11)) if binding.memory.dtype == np.uint32 else binding for binding in graph.bindings]
    wrong(lambda: graph.device.compute(model, bindings, [scores]), r"IndicesTensor\[0, 0, 0, 0\]: found 11; expected 0 to 10")


def test_wrong_arguments_of_plain_operators(graph):
    x, y, i = graph.input(numbers(4, 3)), graph.input(numbers(3, 4)), graph.input(np.zeros((1, 2), np.uint32))
    other = dml.GraphBuilder(dml.Device())
    foreign = dml.input_tensor(other, 0, dml.TensorDesc(FLOAT32, [1, 1, 4, 3]))
    flat = graph.input(numbers(3), dml.TensorDesc(FLOAT32, [3]))
    wrong(lambda: x + y, r"BTensor.Sizes: found \(1, 1, 3, 4\); expected \(1, 1, 4, 3\), as ATensor has")
    wrong(lambda: x + foreign, "BTensor: found an Expression of another GraphBuilder")
    wrong(lambda: x + np.nan, "ScaleBias.Bias: found nan; expected a finite float32")
    wrong(lambda: dml.add(x, x, TANH.activation), "add: fused_activation: found DML_OPERATOR_TYPE; expected FusedActivation")
    wrong(lambda: dml.gemm(flat, flat), "ATensor.DimensionCount: found 1")
    wrong(lambda: dml.gemm(x, y, fused_activation=dml.FusedActivation(dml.OperatorType.GRU)), "FusedActivation.Type: found DML_OPERATOR_TYPE.GRU;")
    wrong(lambda: dml.join([], 0), "join: input: found")
    wrong(lambda: dml.join(x, 0), "join: input: found Expression; expected a list of Expression")
    wrong(lambda: dml.join([x, flat], 3), r"InputTensors\[1\].DimensionCount: found 1")
    wrong(lambda: dml.join([x], 4), "join: axis: found 4; expected a whole number from 0 to 3")
    wrong(lambda: dml.slice(x, [0] * 4, [1, 1, 4, 3], [1, 1, 0, 1]), r"InputWindowStrides\[2\]: found 0")
    wrong(lambda: dml.gather(x, i, 4, 1), "gather: axis: found 4")
    wrong(lambda: x / 0, "ScaleBias.Scale: found inf; expected a finite float32")
    for wrong_type in (lambda: x + "a", lambda: x / x, lambda: 2 / x):
        with pytest.raises(TypeError):
            wrong_type()


def test_objects_take_no_other_attributes(graph):
    x = graph.input(numbers(4, 3))
    y = x + x
    model = graph.build(y)
    objects = [x, x.desc, *graph.bindings, *graph.device.compute(model, graph.bindings, [y]), graph.device, graph.builder, model,
               dml.TensorPolicy.default, TANH, dml.GRUOutputs(x, x), dml.LSTMOutputs(x, x, x)]
    classes = {cls for name in dml.__all__ if isinstance(cls := getattr(dml, name), type) and not issubclass(cls, Enum)}
    assert {type(made) for made in objects} == classes - {dml.Dimensions, dml.ScaleBias}
    for made in objects:
        for name in ("expr", "mode", "recurrent"):
            with pytest.raises(AttributeError):
                setattr(made, name, 1)
