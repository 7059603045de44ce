"""Graphs of operators: bound and recorded as one."""

import gc
from dataclasses import replace

import numpy as np
import pytest

import vkdml as v
from tests.engine.ready import bind, recorded
from vkdml.operators import reference
from vkdml.operators.problem import from_desc
from vkdml_lab.suite.support import ATOL, RTOL, gru_desc, owned, random_arrays, tensor

T, B, H = 5, 3, 9  # a layer of as many inputs as units
NO_OUTPUT = {"OutputSingleTensor": None, "SequenceLengthsTensor": None, "HiddenInitTensor": None}
Into, Out, Between = v.DML_INPUT_GRAPH_EDGE_DESC, v.DML_OUTPUT_GRAPH_EDGE_DESC, v.DML_INTERMEDIATE_GRAPH_EDGE_DESC


def layer(**changes):
    return gru_desc(T, B, H, H, **NO_OUTPUT, **changes)


def relu():
    described = tensor(T, 1, B, H)
    return v.DML_ACTIVATION_RELU_OPERATOR_DESC(described, described)


def nodes(device, *descs):
    return [v.DML_OPERATOR_GRAPH_NODE_DESC(device.create_operator(desc)) for desc in descs]


def weights_edges(graph_inputs, node):
    """To WeightTensor, RecurrenceTensor and BiasTensor."""
    return [Into(graph_input, node, 1 + place) for place, graph_input in enumerate(graph_inputs)]


def two_layers(device, desc):
    """output 0 = relu(h1), output 1 = h0, of h0 = GRU(x), h1 = GRU(h0); the nodes stand in another order than they run."""
    return v.DML_GRAPH_DESC(
        InputCount=7, OutputCount=2, Nodes=nodes(device, relu(), desc, desc), NodeCount=3,
        InputEdges=[Into(0, 2, 0), *weights_edges((1, 2, 3), 2), *weights_edges((4, 5, 6), 1)],
        IntermediateEdges=[Between(2, 0, 1, 0), Between(1, 0, 0, 0)], OutputEdges=[Out(0, 0, 0), Out(2, 0, 1)])


class Layers:
    """The graph's inputs, and what its outputs are."""

    def __init__(self, desc):
        first, second = (random_arrays(desc, np.random.default_rng(seed)) for seed in range(2))
        self.inputs = [*first.values(), *(array for field, array in second.items() if field != "InputTensor")]
        h0 = reference.run(from_desc(desc), first)["OutputSequenceTensor"]
        h1 = reference.run(from_desc(desc), second | {"InputTensor": h0.reshape(1, T, B, H)})["OutputSequenceTensor"]
        self.outputs = [np.maximum(h1, 0), h0]


def run(device, graph, inputs, prepare=lambda table: None):
    outputs = [device.create_buffer(T * B * H * 4) for _ in graph.output_fields]
    table = bind(device, graph, [None if array is None else device.upload(array) for array in inputs], outputs)
    prepare(table)
    recorder = recorded(device, table)
    for _ in range(2):
        recorder.execute()
    return [output.download((T, 1, B, H)) for output in outputs]


def assert_right(results, expected):
    for result, right in zip(results, expected):
        np.testing.assert_allclose(result, right, rtol=RTOL, atol=ATOL)


def test_a_graph_of_two_layers(device):
    layers = Layers(layer())
    graph = device.compile_graph(two_layers(device, layer()))
    assert (len(graph.input_fields), graph.output_fields) == (7, ("output 0", "output 1"))
    assert_right(run(device, graph, layers.inputs), layers.outputs)


@pytest.mark.device
def test_a_graph_on_a_device_that_checks():
    device = v.Device(verify=1)
    layers = Layers(layer())
    assert_right(run(device, device.compile_graph(two_layers(device, layer())), layers.inputs), layers.outputs)


def test_the_memory_of_a_graph(device):
    """What is reported is what is made, under the names of the nodes."""
    gc.collect()
    desc, before = two_layers(device, layer()), device.gpu.memory.used
    desc.Nodes[1].Operator.set_name("second")
    graph = device.compile_graph(desc)
    memory = graph.memory()
    assert device.gpu.memory.used == before
    alone = device.compile_operator(desc.Nodes[1].Operator).memory()
    assert memory.tensors == {"input 0": 4 * T * B * H, "output 0": 4 * T * B * H, "output 1": 4 * T * B * H, **{
        f"input {3 * node + place}": alone.tensors[field] for node in range(2)
        for place, field in enumerate(("WeightTensor", "RecurrenceTensor", "BiasTensor"), 1)}}
    assert memory.temporary == {"node 1 output 0": 4 * T * B * H, **{
        f"{node}: {name}": size for node in ("node 1 'second'", "node 2") for name, size in alone.temporary.items()}}
    assert memory.persistent == {
        f"{node}: {name}": size for node in ("node 1 'second'", "node 2") for name, size in alone.persistent.items()}
    assert memory.total == sum(size for _, _, size in memory.rows)
    run(device, graph, Layers(layer()).inputs)
    assert device.gpu.memory.used - before == sum(memory.temporary.values()) + sum(memory.persistent.values())


@pytest.mark.parametrize("bound", [False, True])
def test_a_graph_with_owned_weights(device, bound):
    desc = owned(layer())
    layers = Layers(layer())
    graph = device.compile_graph(two_layers(device, desc))
    persistent = device.create_buffer(graph.get_binding_properties().PersistentResourceSize) if bound else None
    with pytest.raises(v.InvalidArgumentError, match="DML_GRAPH_DESC: record_dispatch: found an operator that is not initialized"):
        run(device, graph, [layers.inputs[0], *[None] * 6])
    weights = v.DML_BUFFER_ARRAY_BINDING(Bindings=[None, *map(device.upload, layers.inputs[1:])])
    recorded(device, bind(device, device.create_operator_initializer([graph]), [weights], [persistent])).execute()
    results = run(device, graph, [layers.inputs[0], *[None] * 6], lambda table: table.bind_persistent_resource(persistent))
    assert_right(results, layers.outputs)


def test_types_around_nodes_and_edges_and_inputs_that_go_nowhere(device):
    """Input 0 is not used; input 1 goes to two nodes."""
    describe = tensor(T, 1, B, H)
    x = np.random.default_rng(0).standard_normal((T, 1, B, H)).astype(np.float32)
    wrapped = [v.DML_GRAPH_NODE_DESC(v.DML_GRAPH_NODE_TYPE.OPERATOR, node)
               for node in nodes(device, relu(), v.DML_ACTIVATION_LINEAR_OPERATOR_DESC(describe, describe, Alpha=-1))]
    edge, kinds = v.DML_GRAPH_EDGE_DESC, v.DML_GRAPH_EDGE_TYPE
    graph = device.compile_graph(v.DML_GRAPH_DESC(
        InputCount=2, OutputCount=2, Nodes=wrapped, InputEdges=[edge(kinds.INPUT, Into(1, node, 0)) for node in range(2)],
        InputEdgeCount=2, OutputEdges=[edge(kinds.OUTPUT, Out(node, 0, 1 - node)) for node in range(2)], OutputEdgeCount=2,
        IntermediateEdgeCount=0))
    results = run(device, graph, [None, x])
    np.testing.assert_array_equal(results[1], np.maximum(x, 0))
    np.testing.assert_array_equal(results[0], -x)


def test_a_nodes_name_is_in_errors(device):
    layers = Layers(layer())
    desc = layer()
    named = replace(desc, SequenceLengthsTensor=tensor(1, 1, 1, B, data_type=v.DML_TENSOR_DATA_TYPE.UINT32))
    node = v.DML_OPERATOR_GRAPH_NODE_DESC(device.create_operator(named), Name="encoder")
    graph = device.compile_graph(v.DML_GRAPH_DESC(
        InputCount=5, OutputCount=1, Nodes=[node], InputEdges=[Into(0, 0, 0), *weights_edges((1, 2, 3), 0), Into(4, 0, 5)],
        OutputEdges=[Out(0, 0, 0)]))
    with pytest.raises(v.InvalidArgumentError, match="DML_GRU_OPERATOR_DESC 'encoder': sequence length of row 1: found 9"):
        run(device, graph, [*layers.inputs[:4], np.array([1, 9, 0], np.uint32)])
    assert repr(graph) == f"<CompiledGraph of DML_GRAPH_DESC of 1 operators on {device.info.name}>"


def wrong_graphs(device):
    """Each wrong graph, and what its message must name."""
    operators = nodes(device, relu(), relu())
    right = {"InputCount": 1, "OutputCount": 1, "Nodes": operators, "InputEdges": [Into(0, 0, 0)],
             "IntermediateEdges": [Between(0, 0, 1, 0)], "OutputEdges": [Out(1, 0, 0)]}
    named = [replace(node, Name=np.zeros(2)) for node in operators]
    half = tensor(T, 1, B, H, data_type=v.DML_TENSOR_DATA_TYPE.FLOAT16)
    short = tensor(T, 1, B, H - 1)
    other = lambda described: nodes(device, v.DML_ACTIVATION_RELU_OPERATOR_DESC(described, described), relu())  # noqa: E731
    no_single = nodes(device, layer(), relu())
    return [(v.DML_GRAPH_DESC(**{**right, **change}), message) for change, message in [
        ({"Nodes": []}, "Nodes: found none; expected at least one"),
        ({"Nodes": 3}, "Nodes: found int; expected a list of DML_OPERATOR_GRAPH_NODE_DESC"),
        ({"Nodes": [relu()]}, r"Nodes\[0\]: found DML_ACTIVATION_RELU_OPERATOR_DESC; expected DML_OPERATOR_GRAPH_NODE_DESC"),
        ({"Nodes": [v.DML_OPERATOR_GRAPH_NODE_DESC(relu())]}, r"Nodes\[0\].Operator: found DML_ACTIVATION_RELU_OPERATOR_DESC; expected Operator"),
        ({"Nodes": [v.DML_GRAPH_NODE_DESC(v.DML_GRAPH_NODE_TYPE.CONSTANT, operators[0])]}, r"Nodes\[0\].Type: found"),
        ({"NodeCount": np.zeros(2)}, "NodeCount: found .*; expected 2"), ({"Nodes": named}, "name: found ndarray; expected str"),
        ({"NodeCount": 3}, "NodeCount: found 3; expected 2"), ({"InputEdgeCount": 0}, "InputEdgeCount: found 0; expected 1"),
        ({"InputEdges": []}, r"Nodes\[0\]: found no edge for InputTensor; expected one"),
        ({"InputEdges": [Into(1, 0, 0)]}, r"InputEdges\[0\].GraphInputIndex: found 1; expected less than 1"),
        ({"InputEdges": [Into(0, 2, 0)]}, r"InputEdges\[0\].ToNodeIndex: found 2; expected less than 2"),
        ({"InputEdges": [Into(0, 0, 1)]}, r"InputEdges\[0\].ToNodeInputIndex: found 1; expected less than 1"),
        ({"InputEdges": [Into(0, 0, 0), Into(0, 1, 0)]}, r"IntermediateEdges\[0\]: found a second edge for InputTensor"),
        ({"InputEdges": [Out(0, 0, 0)]}, r"InputEdges\[0\]: found DML_OUTPUT_GRAPH_EDGE_DESC; expected DML_INPUT_GRAPH_EDGE_DESC"),
        ({"OutputEdges": []}, "OutputEdges: found none for output 0; expected one for each of 1"),
        ({"OutputEdges": [Out(1, 0, 0), Out(0, 0, 0)]}, r"OutputEdges\[1\].GraphOutputIndex: found a second edge to output 0"),
        ({"OutputEdges": [Out(1, 0, 0), Out(1, 0, 1)], "OutputCount": 2}, r"OutputEdges\[1\]: found a second edge for OutputTensor"),
        ({"OutputEdges": [Out(1, -1, 0)]}, r"OutputEdges\[0\].FromNodeOutputIndex: found"),
        ({"OutputCount": "one"}, "OutputCount: found"),
        ({"Nodes": other(half)}, r"IntermediateEdges\[0\]: found FLOAT16 in 270 bytes for FLOAT32 in 540; expected the same type"),
        ({"Nodes": other(short)}, r"IntermediateEdges\[0\]: found FLOAT32 in 480 bytes for FLOAT32 in 540"),
        ({"Nodes": no_single, "IntermediateEdges": [Between(0, 1, 1, 0)]}, r"FromNodeOutputIndex: found OutputSingleTensor of node 0, which is None"),
        ({"InputEdges": [], "IntermediateEdges": [Between(0, 0, 1, 0), Between(1, 0, 0, 0)]}, "IntermediateEdges: found a circle of nodes 0, 1"),
    ]]


def test_wrong_graphs_are_refused(device):
    for desc, message in wrong_graphs(device):
        with pytest.raises(v.InvalidArgumentError, match=message):
            device.compile_graph(desc)
    with pytest.raises(v.InvalidArgumentError, match="compile_graph: desc: found list; expected DML_GRAPH_DESC"):
        device.compile_graph([])


def test_weights_that_are_owned_and_not(device):
    """By two nodes that have the same input, and by one whose weights another one computes."""
    graph = two_layers(device, layer())
    mixed = nodes(device, relu(), layer(), owned(layer()))
    shared = [Into(0, 2, 0), *weights_edges((1, 2, 3), 2), *weights_edges((1, 2, 3), 1)]
    with pytest.raises(v.InvalidArgumentError, match="input 1: found OWNED_BY_DML for some nodes"):
        device.compile_graph(replace(graph, Nodes=mixed, InputEdges=shared))
    described = tensor(1, 1, 3 * H, H)
    makes_weights = nodes(device, v.DML_ACTIVATION_RELU_OPERATOR_DESC(described, described), owned(layer()))
    with pytest.raises(v.InvalidArgumentError, match=r"IntermediateEdges\[0\]: found an edge to a tensor that is OWNED_BY_DML"):
        device.compile_graph(v.DML_GRAPH_DESC(
            InputCount=5, OutputCount=1, Nodes=makes_weights, IntermediateEdges=[Between(0, 0, 1, 1)], OutputEdges=[Out(1, 0, 0)],
            InputEdges=[Into(0, 0, 0), Into(1, 1, 0), Into(2, 1, 2), Into(3, 1, 3)]))
