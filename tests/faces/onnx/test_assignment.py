"""What a session says of where a model's nodes run."""

import warnings

import numpy as np
import pytest

import vkdml
from tests.faces.onnx.support import model, weights
from tests.faces.onnx.test_programs import IF
from vkdml.onnx import AssignedNode, InferenceSession

pytestmark = pytest.mark.device

CHAIN = """g (float[T,B,3] x) => (float[T,D,B,4] y) {
    axis = Constant <value_ints=[0]> ()
    one = Constant <value_ints=[1]> ()
    W = Unsqueeze (w, axis)
    a = Tanh(x)
    lost = Exp(a)
    h = GRU <hidden_size=4> (a, W, R, B)
    s = Squeeze (h, one)
    t = com.microsoft.Gelu (s)
    y, z = LSTM <hidden_size=4> (t, V, Q) }"""

NOTHING = "g (float[T,B,3] x) => (float[T,B,3] y) { y = Neg(x) }"


def arrays():
    first, second = weights(), weights(4, inputs=4)
    return {"w": first["W"][0], "R": first["R"], "B": first["B"], "V": second["W"], "Q": second["R"]}


def chain():
    """A model of each kind of place but a body."""
    proto = model(CHAIN, arrays())
    proto.opset_import.add(domain="com.microsoft", version=1)
    for node, name in zip(proto.graph.node, ("", "", "weights", "before", "unused", "encoder", "axis", "mine", "decoder"), strict=True):
        node.name = name
    return proto


def test_each_node_runs_somewhere(device):
    told = InferenceSession(chain()).assignment()
    assert told.device == device.info.name
    found = {(node.op_type, node.name): (node.runs_on, node.piece) for node in told.nodes}
    assert found == {
        ("Constant", ""): ("load", None), ("Unsqueeze", "weights"): ("load", None), ("Tanh", "before"): ("onnxruntime", 1),
        ("Exp", "unused"): ("onnxruntime", 1), ("GRU", "encoder"): ("device", None), ("Squeeze", "axis"): ("onnxruntime", 2),
        ("Gelu", "mine"): ("onnxruntime", 2), ("LSTM", "decoder"): ("device", None)}
    assert [node.name for node in told.on("device")] == ["encoder", "decoder"]
    assert {node.name: node.domain for node in told.nodes}["mine"] == "com.microsoft"


def test_as_a_table_and_in_groups(device):
    told = InferenceSession(chain()).assignment()
    lines = str(told).splitlines()
    assert lines[0] == f"2 of 9 nodes run on {device.info.name}"
    assert lines[1].split() == ["runs", "on", "piece", "operator", "name", "graph"]
    assert [line.split() for line in lines if "mine" in line] == [["onnxruntime", "2", "com.microsoft.Gelu", "mine"]]
    assert told.groups() == [
        {"runs_on": "device", "piece": None, "nodes": 2, "operators": {"GRU": 1, "LSTM": 1}},
        {"runs_on": "load", "piece": None, "nodes": 3, "operators": {"Constant": 2, "Unsqueeze": 1}},
        {"runs_on": "onnxruntime", "piece": 1, "nodes": 2, "operators": {"Tanh": 1, "Exp": 1}},
        {"runs_on": "onnxruntime", "piece": 2, "nodes": 2, "operators": {"Squeeze": 1, "com.microsoft.Gelu": 1}}]


def test_bodies():
    told = InferenceSession(model(IF, weights())).assignment()
    assert {(node.graph, node.op_type): node.runs_on for node in told.nodes} == {
        ("", "Tanh"): "onnxruntime", ("", "If"): "host",
        ("/then", "Abs"): "onnxruntime", ("/then", "GRU"): "device", ("/then", "Identity"): "onnxruntime",
        ("/else", "Neg"): "onnxruntime", ("/else", "Exp"): "onnxruntime", ("/else", "GRU"): "device"}
    pieces = {node.piece for node in told.on("onnxruntime")}
    assert pieces == {1, 2, 3}


def test_bodies_of_a_piece_and_nodes_that_nobody_needs():
    text = """g (float[T,B,3] x, bool c) => (float[T,D,B,4] y) {
        a = If (c) < then_branch = then () => (float[T,B,3] p) { p = Neg(x) }, else_branch = else () => (float[T,B,3] q) { q = Abs(x) } >
        y = GRU <hidden_size=4> (a, W, R, B)
        unused = Exp(y) }"""
    told = InferenceSession(model(text, weights())).assignment()
    assert [(node.op_type, node.graph, node.runs_on, node.piece) for node in told.nodes] == [
        ("If", "", "onnxruntime", 1), ("Neg", "/then", "onnxruntime", 1), ("Abs", "/else", "onnxruntime", 1),
        ("GRU", "", "device", None), ("Exp", "", "nowhere", None)]


def test_a_model_without_a_node_for_the_device_warns_once(no_sessions):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        session = InferenceSession(model(NOTHING))
        session.run(None, {"x": np.zeros((1, 1, 3), np.float32)})
    (warning,) = seen
    assert (warning.category, warning.filename) == (vkdml.NothingOnDeviceWarning, __file__)
    assert str(warning.message).startswith("nothing runs on the Vulkan device: of 1 nodes none is ")
    assert len(str(warning.message)) <= 120 - len("00000")  # with more nodes
    assert session.assignment().nodes == (AssignedNode("", "Neg", "", "", "onnxruntime", 1),)


def test_no_warning_where_another_session_uses_the_device(no_sessions):
    first = InferenceSession(model(IF, weights()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", vkdml.NothingOnDeviceWarning)
        InferenceSession(model(NOTHING))
    del first
    with pytest.warns(vkdml.NothingOnDeviceWarning):
        InferenceSession(model(NOTHING))


def test_no_warning_where_a_node_runs_there(no_sessions):
    with warnings.catch_warnings():
        warnings.simplefilter("error", vkdml.NothingOnDeviceWarning)
        InferenceSession(model(IF, weights()))
