"""Graphs in DxDispatch's models, and what is bound once: as in Microsoft's dml_gemm_graph.json and dml_graph_quadratic.json."""

import numpy as np
import pytest

import vkdml
from lab.tests.dxdispatch.support import changed, zeros
from vkdml.operators import reference
from vkdml.operators.problem import from_desc
from vkdml_lab.fuzz.json_models import array_resource, short
from vkdml_lab.suite.support import cells, make_desc, owned, random_arrays

ONES = {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 1024, "value": 1}}
MATRIX = {"DataType": "FLOAT32", "Sizes": [1, 1, 32, 32]}
OWNED = MATRIX | {"Flags": "DML_TENSOR_FLAG_OWNED_BY_DML"}
GEMM = {"type": "DML_OPERATOR_GEMM", "desc": {
    "ATensor": MATRIX, "BTensor": OWNED, "OutputTensor": MATRIX, "TransA": "DML_MATRIX_TRANSFORM_NONE",
    "TransB": "DML_MATRIX_TRANSFORM_NONE", "Alpha": 1.0, "Beta": 1.0}, "dmlCompileType": "DmlCompileGraph",
    "executionFlags": "DML_EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION", "bindings": {"BTensor": "B"}}
GEMM_GRAPH = {"resources": {"A": ONES, "B": ONES, "output": ONES}, "dispatchables": {"gemm": GEMM}, "commands": [
    {"type": "dispatch", "dispatchable": "gemm", "bindings": {"ATensor": "A", "OutputTensor": "output"}},
    {"type": "print", "resource": "output"}]}

GRAPH = ("dispatchables", "graph", "desc")
FOUR = {"DataType": "FLOAT32", "Sizes": [4]}
LINE = {"InputTensor": FOUR, "OutputTensor": FOUR}


def edge(source, target, place, **ends):
    return {"FromNodeIndex": source, "FromNodeOutputIndex": 0, "ToNodeIndex": target, "ToNodeInputIndex": place} | ends


# x (2 x + 10) + 3.5. Microsoft's model multiplies by 0 before it adds, and two of its edges end at no free input
QUADRATIC = {
    "resources": {"x": {"initialValuesDataType": "FLOAT32", "initialValues": [4, -2, 3, -5]}, "y": zeros(4)},
    "dispatchables": {
        "graph": {"type": "DML_GRAPH_DESC", "desc": {
            "InputCount": 1, "OutputCount": 1,
            "Nodes": [{"type": "DML_GRAPH_NODE_TYPE_OPERATOR", "Name": f"node_{i}"} for i in range(3)],
            "InputEdges": [{"GraphInputIndex": 0, "ToNodeIndex": 0, "ToNodeInputIndex": 0, "Name": "x"},
                           {"GraphInputIndex": 0, "ToNodeIndex": 1, "ToNodeInputIndex": 0, "Name": "x"}],
            "OutputEdges": [{"FromNodeIndex": 2, "FromNodeOutputIndex": 0, "GraphOutputIndex": 0, "Name": "ax^2+bx+c"}],
            "IntermediateEdges": [edge(0, 1, 1), edge(1, 2, 0)]}},
        "node_0": {"type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY", "desc": LINE | {"ScaleBias": {"Scale": 2, "Bias": 10}}},
        "node_1": {"type": "DML_OPERATOR_ELEMENT_WISE_MULTIPLY", "desc": {"ATensor": FOUR, "BTensor": FOUR, "OutputTensor": FOUR}},
        "node_2": {"type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY", "desc": LINE | {"ScaleBias": {"Scale": 1, "Bias": 3.5}}}},
    "commands": [{"type": "dispatch", "dispatchable": "graph", "inputBindings": ["x"], "outputBindings": ["y"]},
                 {"type": "print", "resource": "y"}]}


def test_a_matrix_that_is_bound_once(run_model):
    model = changed(("commands", 0, "bindings", "OutputTensor"), "B", GEMM_GRAPH)  # later executions see what it was at first
    model["commands"] += [{"type": "dispatch", "dispatchable": "gemm", "bindings": {"ATensor": "A", "OutputTensor": "output"}},
                          {"type": "print", "resource": "output"}]
    _, before, _, after = run_model(model, iterations=2)
    assert before.values == [1] * 1024
    assert after.values == [32] * 1024


def test_weights_of_a_recurrent_operator_that_are_bound_once(run_model):
    desc = make_desc(cells.GRU, 3, 2, 4, 5)
    arrays = random_arrays(desc, np.random.default_rng(0))
    weights = list(from_desc(owned(desc)).initialized)
    resources = {field: array_resource(array) for field, array in arrays.items()} | {"y": zeros(10)}
    outputs = [field for field in from_desc(desc).outputs if from_desc(desc).has(field)]
    resources |= {field: zeros(from_desc(desc).tensor(field).size_of_elements) for field in outputs}
    model = {"resources": resources, "commands": [
        {"type": "dispatch", "dispatchable": "gru", "bindings": {
            field: field for field in [*arrays, *outputs] if field not in weights}},
        {"type": "print", "resource": outputs[-1]}], "dispatchables": {"gru": {
            "type": "GRU", "desc": short(owned(desc)), "bindings": {field: field for field in weights}}}}
    expected = reference.run(from_desc(desc), arrays)[outputs[-1]]
    np.testing.assert_allclose(run_model(model)[1].values, expected.reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("member", ["Name", "Operator"])
def test_a_graph(run_model, member):
    nodes = [{"type": "DML_GRAPH_NODE_TYPE_OPERATOR", member: f"node_{i}"} for i in range(3)]
    results = run_model(changed((*GRAPH, "Nodes"), nodes, QUADRATIC), iterations=2)
    assert str(results[1]) == "Resource 'y': 75.5, -8.5, 51.5, 3.5"


@pytest.mark.parametrize(("model", "path", "value", "message"), [
    (GEMM_GRAPH, ("dispatchables", "gemm", "bindings"), {"ATensor": "A"},
     "dispatchables.gemm.bindings.ATensor: found no tensor that is OWNED_BY_DML; expected BTensor"),
    (GEMM_GRAPH, ("dispatchables", "gemm", "bindings"), {"BTensor": {"name": "B", "elementOffset": 1}},
     "dispatchables.gemm.bindings.BTensor: found 4092 bytes of B; expected 4096 bytes or more"),
    (GEMM_GRAPH, ("dispatchables", "gemm", "bindings"), ..., "commands[0].bindings.BTensor: found nothing; expected a resource's name"),
    (GEMM_GRAPH, ("dispatchables", "gemm", "desc", "OutputTensor"), OWNED, "desc.OutputTensor.Flags: found OWNED_BY_DML; expected NONE"),
    (GEMM_GRAPH, ("commands", 0, "bindings", "BTensor"), "B", "commands[0].bindings.BTensor: found an unknown member"),
    (QUADRATIC, (*GRAPH, "IntermediateEdges"), [edge(0, 1, 0), edge(1, 2, 1)],  # Microsoft's
     "dispatchables.graph.desc.IntermediateEdges[0]: found a second edge for ATensor; expected one for each"),
    (QUADRATIC, (*GRAPH, "IntermediateEdges", 1), edge(1, 2, 1), "IntermediateEdges[1].ToNodeInputIndex: found 1; expected less than 1"),
    (QUADRATIC, (*GRAPH, "InputEdges", 0, "ToNodeIndex"), -1, "desc.InputEdges[0].ToNodeIndex: found -1; expected a whole number, 0 or more"),
    (QUADRATIC, (*GRAPH, "Nodes"), ..., "dispatchables.graph.desc.Nodes: found NoneType; expected a list"),
    (QUADRATIC, (*GRAPH, "Nodes", 1, "Name"), "graph", 'Nodes[1].Name: found "graph"; expected one of node_0, node_1, node_2'),
    (QUADRATIC, (*GRAPH, "Nodes", 1, "Name"), ..., 'Nodes[1].Name: found ""; expected one of node_0, node_1, node_2'),
    (QUADRATIC, (*GRAPH, "Nodes", 1, "type"), "DML_GRAPH_NODE_TYPE_CONSTANT", 'found "DML_GRAPH_NODE_TYPE_CONSTANT"; expected OPERATOR'),
    (QUADRATIC, (*GRAPH, "OutputCount"), 2, "desc.OutputEdges: found none for output 1; expected one for each of 2"),
    (QUADRATIC, ("commands", 0, "inputBindings"), ["x", "x"], 'commands[0].inputBindings: found ["x", "x"]; expected a list of 1'),
    (QUADRATIC, ("commands", 0, "inputBindings"), [None], "commands[0].inputBindings[0]: found nothing; expected a resource's name"),
    (QUADRATIC, ("commands", 0, "bindings"), {}, "commands[0].bindings: found an unknown member"),
])
def test_refused_before_any_work(load_model, model, path, value, message):
    with pytest.raises(vkdml.InvalidArgumentError) as refused:
        load_model(changed(path, value, model))
    assert message in str(refused.value)


def test_an_input_of_a_graph_that_goes_nowhere(load_model, run_model):
    model = changed((*GRAPH, "InputCount"), 2, QUADRATIC)
    with pytest.raises(vkdml.InvalidArgumentError, match=r'inputBindings\[1\]: found "x"; expected null: no node has input 1'):
        load_model(changed(("commands", 0, "inputBindings"), ["x", "x"], model))
    assert run_model(changed(("commands", 0, "inputBindings"), ["x", None], model))[1].values == [75.5, -8.5, 51.5, 3.5]
