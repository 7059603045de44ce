"""PyDirectML's operators without a time loop, and a model made of them and of recurrent ones."""

import numpy as np
import pytest

import vkdml.pydirectml as dml
from tests.faces.pydirectml.support import BIDIRECTIONAL, FLOAT16, FLOAT32, FORWARD, SIGMOID, TANH, close, numbers, refer, wrong

TRANSPOSE = dml.MatrixTransform.TRANSPOSE
RELU = dml.FusedActivation(dml.OperatorType.ACTIVATION_RELU)


def test_arithmetic(graph):
    x, y = numbers(2, 3), numbers(2, 3, seed=1)
    a, b = graph.input(x), graph.input(y)
    cases = {dml.add(a, b): x + y, dml.subtract(a, b): x - y, dml.multiply(a, b): x * y, a + b: x + y, a - b: x - y, a * b: x * y,
             dml.add(a, b, RELU): np.maximum(x + y, 0), a + 2: x + 2, 2 + a: x + 2, a - 0.5: x - 0.5, 1 - a: 1 - x, 3 * a: 3 * x,
             a * np.float32(2): 2 * x, -a: -x, dml.identity(a): x, dml.identity(a, dml.ScaleBias(2, 1)): 2 * x + 1}
    for result, expected in zip(graph.compute(*cases), cases.values(), strict=True):
        close(result[0, 0], expected)


def test_a_broadcast_input(graph):
    """As PyDirectML's scripts do it: a bias by strides of 0."""
    x, bias = numbers(4, 3), numbers(3)
    broadcast = dml.reinterpret(graph.input(bias), FLOAT32, [1, 1, 4, 3], [0, 0, 0, 1])
    close(graph.compute(graph.input(x) + broadcast)[0][0, 0], x + bias)


@pytest.mark.parametrize(("data_type", "element"), [(FLOAT32, "float32"), (FLOAT16, "float16")])
def test_gemm(graph, data_type, element):
    x, w, c = (numbers(*sizes).astype(element) for sizes in ((2, 3, 5), (2, 4, 5), (2, 3, 4)))
    a, b, bias = (graph.input(array, graph.desc(array, data_type)) for array in (x, w, c))
    product = x.astype(np.float64) @ w.astype(np.float64).swapaxes(-1, -2)
    plain, full = dml.gemm(a, b, trans_b=TRANSPOSE), dml.gemm(a, b, bias, trans_b=TRANSPOSE, alpha=0.5, beta=2, fused_activation=TANH)
    first, second = graph.compute(plain, full)
    close(first[0], product, element)
    close(second[0], np.tanh(0.5 * product + 2 * c.astype(np.float64)), element)


def test_two_dimensions(graph):
    x = numbers(3, 5)
    a = graph.input(x, dml.TensorDesc(FLOAT32, [3, 5]))
    close(graph.compute(dml.gemm(a, a, trans_a=TRANSPOSE))[0], x.T @ x)


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
    (commands,) = model._execution._commands.values()
    assert commands.counts[0] == 1
    wrong_words = [binding for binding in graph.bindings if binding.memory.dtype == np.uint32]
    assert len(wrong_words) == 1
    bindings = [dml.Binding(_expression(graph, 1), np.full((6, 3), 11)) if binding in wrong_words else binding for binding in graph.bindings]
    wrong(lambda: graph.device.compute(model, bindings, [scores]), r"IndicesTensor\[0, 0, 0, 0\]: found 11; expected 0 to 10")


def _expression(graph, index):
    """That of an input once more."""
    from vkdml.faces.pydirectml.expression_graphs import express
    return express(graph.bindings[index].value)


@pytest.mark.device
def test_checked_calls(monkeypatch):
    """Every operator of the model is checked against the reference."""
    from tests.faces.pydirectml.support import Graph
    monkeypatch.setenv("VKDML_VERIFY", "1")
    graph = Graph()
    scores, expected = embedding_layers_and_head(graph, 3, 2, 4, 3, 5, 2)
    close(graph.compute(scores)[0][0, 0], expected)
    assert graph.device.device.verify == 1


def test_wrong_arguments(graph):
    x, y, i = graph.input(numbers(4, 3)), graph.input(numbers(3, 4)), graph.input(np.zeros((1, 2), np.uint32))
    other = dml.GraphBuilder(dml.Device())
    foreign = dml.input_tensor(other, 0, dml.TensorDesc(FLOAT32, [1, 1, 4, 3]))
    flat = graph.input(numbers(3), dml.TensorDesc(FLOAT32, [3]))
    wrong(lambda: x + y, r"BTensor.Sizes: found \(1, 1, 3, 4\); expected \(1, 1, 4, 3\), as ATensor has")
    wrong(lambda: x + foreign, "BTensor: found an Expression of another GraphBuilder")
    wrong(lambda: i + i, "ATensor.DataType: found UINT32; expected FLOAT32 or FLOAT16")
    wrong(lambda: x + np.nan, "ScaleBias.Bias: found nan; expected a finite float32")
    wrong(lambda: dml.add(x, x, TANH.activation), "add: fused_activation: found DML_OPERATOR_TYPE; expected FusedActivation")
    wrong(lambda: dml.gemm(x, x), r"BTensor.Sizes: found \(1, 1, 4, 3\); expected \(1, 1, 3, 3\)")
    wrong(lambda: dml.gemm(flat, flat), "ATensor.DimensionCount: found 1")
    wrong(lambda: dml.gemm(x, y, trans_a=3), "TransA: found 3; expected NONE or TRANSPOSE")
    wrong(lambda: dml.gemm(x, y, fused_activation=dml.FusedActivation(dml.OperatorType.GRU)), "FusedActivation.Type: found GRU")
    wrong(lambda: dml.join([], 0), "join: input: found")
    wrong(lambda: dml.join(x, 0), "join: input: found Expression; expected a list of Expression")
    wrong(lambda: dml.join([x, flat], 3), r"InputTensors\[1\].DimensionCount: found 1")
    wrong(lambda: dml.join([x], 4), "join: axis: found 4; expected a whole number from 0 to 3")
    wrong(lambda: dml.slice(x, [0] * 4, [1, 1, 4, 3], [1, 1, 0, 1]), r"InputWindowStrides\[2\]: found 0")
    wrong(lambda: dml.slice(x, [0] * 3, [1, 1, 4, 3], [1] * 4), "InputWindowOffsets: found 3 numbers; expected 4")
    wrong(lambda: dml.gather(x, i, 4, 1), "gather: axis: found 4")
    wrong(lambda: dml.gather(x, y, 2, 2), "IndicesTensor.DataType: found FLOAT32; expected UINT32 or INT32 or UINT64 or INT64")
    with pytest.raises(TypeError):
        x + "a"
