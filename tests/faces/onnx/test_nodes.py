"""ONNX nodes: versions, attributes, inputs and outputs left out."""

import numpy as np
import onnx
import pytest
from onnx import helper

import vkdml
from vkdml.onnx import run_node
from vkdml.operators import reference
from vkdml_lab.suite.support import ATOL, RTOL

pytestmark = pytest.mark.device

T, B, I, H = 5, 2, 3, 4
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
rng = np.random.default_rng(0)
X, W, R, BIAS = ((rng.standard_normal(shape) * 0.4).astype(np.float32)
                 for shape in ((T, B, I), (1, 3 * H, I), (1, 3 * H, H), (1, 6 * H)))
H0 = rng.standard_normal((1, B, H)).astype(np.float32)


def gru_node(inputs=("X", "W", "R"), outputs=("Y", "Y_h"), **attributes):
    return helper.make_node("GRU", inputs, outputs, hidden_size=H, **attributes)


def test_the_newest_version():
    results = run_node(gru_node(), [X, W, R])
    for result, expected in zip(results, reference.gru(X, W, R), strict=True):
        np.testing.assert_allclose(result, expected, rtol=RTOL, atol=ATOL)


SCHEMAS = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name in GATES and not schema.domain]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: f"{schema.name}-{schema.since_version}")
def test_attributes_are_the_schemas(schema):
    """With the schema's own defaults as without any; refused if another version has them."""
    rng, rows = np.random.default_rng(1), GATES[schema.name] * H
    arrays = [X, *(rng.standard_normal((1, rows, size)).astype(np.float32) * 0.4 for size in (I, H))]

    def y(**attributes):
        return run_node(helper.make_node(schema.name, ["X", "W", "R"], ["Y", "Y_h"], **attributes), arrays, opset_version=schema.since_version).Y

    defaults = {name: helper.get_attribute_value(one.default_value) for name, one in schema.attributes.items() if one.default_value.name}
    np.testing.assert_array_equal(y(), y(hidden_size=H, **defaults))
    np.testing.assert_allclose(y(), getattr(reference, schema.name.lower())(*arrays)[0], rtol=RTOL, atol=ATOL)
    for name in {name for other in SCHEMAS for name in other.attributes} - schema.attributes.keys():
        with pytest.raises(vkdml.InvalidArgumentError, match=f"attribute {name}: found one that operator version"):
            y(**{name: 1})


def test_all_attributes():
    attributes = {"direction": "reverse", "activations": ["HardSigmoid", "ScaledTanh"], "activation_alpha": [0.3, 0.9],
                  "activation_beta": [0.4, 0.8], "clip": 0.7, "linear_before_reset": 1}
    results = run_node(gru_node(**attributes), [X, W, R])
    np.testing.assert_allclose(results.Y, reference.gru(X, W, R, **attributes)[0], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("outputs", [["Y"], ["", "Y_h"], ["Y", ""], ["Y", "Y_h"], [], ["", ""]])
@pytest.mark.parametrize("opset", [1, 3, 22])
def test_outputs_left_out(outputs, opset):
    """GRU 1 alone requires one of them."""
    if opset == 1 and "Y_h" not in outputs:
        with pytest.raises(vkdml.InvalidArgumentError, match="output: found .*; expected Y_h among them, as version 1 requires"):
            run_node(gru_node(outputs=outputs), [X, W, R], opset_version=opset)
        return
    results = run_node(gru_node(outputs=outputs), [X, W, R], opset_version=opset)
    assert results._fields == tuple(filter(None, outputs))
    expected = dict(zip(["Y", "Y_h"], reference.gru(X, W, R), strict=True))
    for name in results._fields:
        np.testing.assert_allclose(getattr(results, name), expected[name], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize(("names", "given", "others"), [
    *[(["", "", "h"], given, {}) for given in ([X, W, R, None, None, H0], [X, W, R, H0], {"X": X, "W": W, "R": R, "h": H0})],
    (["B", "l", "h"], [X, W, R, BIAS, np.array([4, 2], np.int32), H0], {"b": BIAS, "sequence_lens": np.array([4, 2], np.int32)})])
def test_inputs_and_empty_lists_left_out(names, given, others):
    node = gru_node(["X", "W", "R", *names])
    node.attribute.append(onnx.AttributeProto(name="activation_alpha", type=onnx.AttributeProto.FLOATS))
    np.testing.assert_allclose(run_node(node, given).Y, reference.gru(X, W, R, initial_h=H0, **others)[0], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("where", [None, "CPU", "CUDA:0", 0, "default"])
def test_device(where, device):
    chosen = device if where == "default" else where
    results = run_node(gru_node(), [X, W, R], device=chosen)
    np.testing.assert_allclose(results.Y, reference.gru(X, W, R)[0], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize(("node", "inputs", "message"), [
    (helper.make_node("MatMul", ["a", "b"], ["c"]), [X, W], "MatMul node: op_type: found :MatMul; expected one of GRU"),
    (helper.make_node("GRU", ["X", "W", "R"], ["Y"], domain="com.microsoft"), [X, W, R], "found com.microsoft:GRU"),
    (helper.make_node("GRU", ["X", "W", "R"], ["Y"], name="g", hidden_size=5), [X, W, R], "GRU node 'g': hidden_size: found 5; expected 4"),
    (gru_node(swish=1), [X, W, R], "attribute swish: found one that operator version 22 does not have; expected one of activations"),
    (gru_node(), [X, W], "inputs: found 2 arrays; expected 3"),
    (gru_node(), {"X": X, "W": W}, "inputs: found none named 'R'"),
    (gru_node(["X", "W", "R", "", "", "", ""]), [X] * 7, "input: found .*; expected at most 6 names"),
    (gru_node(outputs=[]), [X, W[:, 1:], R], "W: found"),
    (gru_node(outputs=["Y", "Y_h", "Y_c"]), [X, W, R], "output: found"),
    (gru_node(), [X, W.astype(np.float64), R], "W: found float64; expected float32"),
    (gru_node(["X", "W", "R", "", "l"]), [X, W, R, None, np.array([4, 2])], "sequence_lens: found int64; expected int32"),
    (None, [X, W, R], "run_node: node: found NoneType"),
    (gru_node(), None, "inputs: found NoneType"),
    (gru_node(), [X.tolist(), W, R], "X: found list; expected float32"),
    (gru_node(direction=b"\xff"), [X, W, R], "direction: found"),
    (gru_node(), [X.astype(np.int8), W, R], "X: found int8; expected float32 or float16 or bfloat16 or float64"),
    (gru_node(direction="up"), [X, W, R], "direction: found 'up'"),
    (gru_node(["X", "", "R"]), [X, None, R], "W: found None"),
])
def test_wrong_nodes(node, inputs, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        run_node(node, inputs)


@pytest.mark.parametrize("opset", [0, "7"])
def test_wrong_opset(opset):
    with pytest.raises(vkdml.InvalidArgumentError, match="opset_version: found"):
        run_node(gru_node(), [X, W, R], opset_version=opset)


@pytest.mark.parametrize(("steps", "rows"), [(0, 2), (3, 0), (0, 0)])
@pytest.mark.parametrize(("op", "gates", "layout"), [("GRU", 3, 0), ("LSTM", 4, 1), ("RNN", 1, 0)])
def test_no_steps_or_no_rows(op, gates, layout, steps, rows):
    units = 4 if steps or rows else 1024  # what stands in for no size is small

    def shaped(*sizes):
        return np.ones([sizes[1], sizes[0], *sizes[2:]] if layout else sizes, np.float32)

    node = helper.make_node(op, ["X", "W", "R", "", "lengths", "h"], ["Y", "Y_h"], hidden_size=units, layout=layout,
                            direction="bidirectional")
    feed = {"X": shaped(steps, rows, 3), "W": np.ones((2, gates * units, 3), np.float32), "R": np.ones((2, gates * units, units), np.float32),
            "lengths": np.zeros(rows, np.int32), "h": shaped(2, rows, units)}
    y, y_h = run_node(node, feed)
    assert y.shape == ((rows, steps, 2, units) if layout else (steps, 2, rows, units))
    assert (y_h.shape, y_h.dtype) == (shaped(2, rows, units).shape, np.float32)
    assert not y_h.any()
    for wrong, field in (({"lengths": np.full(rows + 1, 0, np.int32)}, "sequence_lens"), ({"h": shaped(1, rows, units)}, "initial_h"),
                         ({"X": shaped(steps, rows, 2)}, "X"), ({"R": np.ones((2, gates * units + 1, units), np.float32)}, "R")):
        with pytest.raises(vkdml.InvalidArgumentError, match=f"{op} node: {field}: "):
            run_node(node, feed | wrong)
