"""Orders of nodes, and names of types."""

import pytest

from tests.faces.onnx.support import check, model, weights
from vkdml.faces.onnx import graphs


@pytest.mark.device
def test_nodes_in_any_order():
    proto = model("g (float[T,B,3] x) => (float[T,D,B,4] z) { a = Tanh(x) y = GRU <hidden_size=4> (a, W, R, B) z = Neg(y) }", weights())
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    check(proto)


@pytest.mark.parametrize("name", ["tensor(float)", "seq(tensor(int64))", "optional(seq(tensor(bfloat16)))", "tensor(string)", "sparse_tensor(float)"])
def test_names_of_types(name):
    assert graphs.type_name(graphs.parse_type(name)) == name
