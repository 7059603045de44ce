"""What PyDirectML's surface refuses, and how it says so."""

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from tests.faces.graph_support import (
    BIDIRECTIONAL,
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
)

OWNED = dml.TensorFlags.OWNED_BY_DML


@pytest.fixture
def graph():
    return Graph()


@pytest.mark.parametrize(("arguments", "message"), [
    (([1], FLOAT32), r"TensorDesc: found \(list, DML_TENSOR_DATA_TYPE\); expected \(data_type, sizes, tensor_policy\) or"),
    ((FLOAT32,), "TensorDesc: found"),
    ((FLOAT32, OWNED), "TensorDesc: found"),
    ((FLOAT32, OWNED, [1], [1]), "TensorDesc: found"),
    ((1, [1]), "TensorDesc: found"),
    ((FLOAT32, [1], [1], [1]), "TensorDesc: found"),
    ((FLOAT32, [0, 1]), r"TensorDesc.sizes: found \[0, 1\]; expected whole numbers from 1"),
    ((FLOAT32, [1.5]), "TensorDesc.sizes: found"),
    ((FLOAT32, []), "TensorDesc.DimensionCount: found 0"),
    ((FLOAT32, [1] * 9), "TensorDesc.DimensionCount: found 9"),
    ((FLOAT32, [2, 2], [1]), "TensorDesc.Strides: found 1 strides; expected 2"),
    ((FLOAT32, [2, 2], [-1, 1]), "TensorDesc.Strides: found"),
    ((dml.TensorDataType.UNKNOWN, [2]), "TensorDesc.DataType: found UNKNOWN"),
    ((FLOAT32, OWNED, [2, 2], None, 12, 0), "TensorDesc.TotalTensorSizeInBytes: found 12; expected a multiple of 4, at least 16"),
    ((FLOAT32, OWNED, [2, 2], None, 16, 3), "TensorDesc.GuaranteedBaseOffsetAlignment: found 3"),
])
def test_wrong_tensor_descs(arguments, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        dml.TensorDesc(*arguments)


def test_a_name_given_twice_is_no_tensor_desc():
    with pytest.raises(vkdml.InvalidArgumentError, match="TensorDesc: found .*sizes: list"):
        dml.TensorDesc(FLOAT32, [1], sizes=[1])
    with pytest.raises(vkdml.InvalidArgumentError, match="TensorDesc: found .*shape: list"):
        dml.TensorDesc(FLOAT32, shape=[1])


def wrong(action, message, operator=None):
    with pytest.raises(vkdml.InvalidArgumentError, match=message) as raised:
        action()
    assert operator is None or raised.value.operator == operator


@pytest.mark.parametrize(("changes", "message"), [
    ({"input": None}, "gru: InputTensor: found NoneType; expected Expression"),
    ({"weight": dml.Expression()}, "gru: WeightTensor: found an empty Expression"),
    ({"recurrence": None}, "gru: RecurrenceTensor: found NoneType"),
    ({"bias": 3}, "gru: BiasTensor: found int"),
    ({"output_options": None}, "gru: output_options: found NoneType; expected OutputOptions"),
    ({"output_options": 1}, "gru: output_options: found int; expected OutputOptions"),
    ({"direction": None}, "DML_GRU_OPERATOR_DESC: Direction: found None"),
    ({"direction": BIDIRECTIONAL}, "DML_GRU_OPERATOR_DESC: WeightTensor.Sizes: found"),
    ({"activation_descs": ()}, "DML_GRU_OPERATOR_DESC: ActivationDescs: found 0"),
    ({"activation_descs": TANH}, "gru: activation_descs: found FusedActivation; expected a list of FusedActivation"),
    ({"activation_descs": [SIGMOID, "TANH"]}, r"gru: activation_descs\[1\]: found str; expected FusedActivation"),
    ({"activation_descs": [SIGMOID, dml.FusedActivation(dml.OperatorType.ACTIVATION_SOFTMAX)]},
     r"ActivationDescs\[1\].Type: found ACTIVATION_SOFTMAX"),
    ({"activation_descs": [SIGMOID, dml.FusedActivation(dml.OperatorType.ACTIVATION_SOFTPLUS)]},
     r"ActivationDescs\[1\].Steepness: found 0; expected a number other than 0"),
    ({"linear_before_reset": 3}, "LinearBeforeReset: found 3"),
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
    wrong(lambda: gru(input=dml.TensorDesc(UINT32, [1, T, B, I])), "InputTensor.DataType: found UINT32")
    wrong(lambda: gru(weight=dml.TensorDesc(FLOAT16, [1, 1, 3 * H, I])), "WeightTensor.DataType: found FLOAT16")
    wrong(lambda: gru(bias=dml.TensorDesc(FLOAT32, [1, 1, 1, H])), "BiasTensor.Sizes: found")
    wrong(lambda: gru(sequence_lengths=dml.TensorDesc(FLOAT32, [1, 1, 1, B])), "SequenceLengthsTensor.DataType: found FLOAT32")


def test_wrong_parameters_of_activations(graph):
    x = graph.input(numbers(3))
    wrong(lambda: dml.activation_relu(None), "activation_relu: input: found NoneType; expected Expression")
    wrong(lambda: dml.activation_celu(x, 0), "Alpha: found 0; expected a number other than 0")
    wrong(lambda: dml.activation_elu(x, alpha="a"), "Alpha: found 'a'; expected a number")
    wrong(lambda: dml.activation_tanh(dml.input_tensor(graph.builder, 5, dml.TensorDesc(UINT32, [1]))), "DataType: found UINT32")
    wrong(lambda: dml.FusedActivation("RELU"), "FusedActivation: activation: found str; expected DML_OPERATOR_TYPE")
    with pytest.raises(TypeError, match="gamma"):
        dml.activation_elu(x, gamma=1)


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


# PyDirectML's functions that are not here
ABSENT = """convolution up_sample_2d add subtract multiply divide padding mean_variance_normalization slice value_scale_2d
    batch_normalization local_response_normalization gemm average_pooling max_pooling activation_soft_max join gather""".split()


@pytest.mark.parametrize("name", ABSENT)
def test_operators_that_are_absent_say_so_when_called(graph, name):
    function = getattr(dml, name)
    wrong(lambda: function(graph.input(numbers(3)), axis=1), f"{name}: operator: found one that vkdml does not have", name)


def test_arithmetic_is_absent(graph):
    x = graph.input(numbers(3))
    for action, name in {(lambda: x + x): "add", (lambda: 1 + x): "add", (lambda: x - 2.0): "subtract", (lambda: 1 - x): "subtract",
                         (lambda: x * x): "multiply", (lambda: 2 * x): "multiply", (lambda: x / x): "divide", (lambda: 1 / x): "divide",
                         (lambda: x % x): "modulus", (lambda: -x): "negate"}.items():
        wrong(action, f"{name}: operator: found one that vkdml does not have", name)
    with pytest.raises(vkdml.InvalidArgumentError, match="add: operator"):
        x += x


@pytest.mark.parametrize("name", ["ConvolutionMode", "MatrixTransform", "Size2D", "MaxPoolingOutputs", "no_such_thing"])
def test_other_names_are_absent(name):
    with pytest.raises(AttributeError, match=f"vkdml.pydirectml has no '{name}': of PyDirectML, it has what recurrent networks need"):
        getattr(dml, name)
