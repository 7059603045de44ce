"""Orders of nodes, and names of types."""

import onnxruntime
import pytest
from onnx import helper

from tests.faces.onnx.support import check, model, weights
from vkdml.faces.onnx import graphs


@pytest.mark.device
def test_nodes_in_any_order():
    proto = model("g (float[T,B,3] x) => (float[T,D,B,4] z) { a = Tanh(x) y = GRU <hidden_size=4> (a, W, R, B) z = Neg(y) }", weights())
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    check(proto)


@pytest.mark.parametrize("name", ["tensor(float)", "seq(tensor(int64))", "optional(seq(tensor(bfloat16)))", "tensor(string)", "sparse_tensor(float)",
                                  "map(int64,tensor(float))"])
def test_names_of_types(name):
    """A type that is made by its name has that name in onnxruntime."""
    proto = model("g (float x) => (float y) { y = Neg (x) }", {}, 22)
    proto.graph.input.append(helper.make_value_info("given", graphs.parse_type(name)))
    assert [arg.type for arg in onnxruntime.InferenceSession(proto.SerializeToString()).get_inputs()] == ["tensor(float)", name]


@pytest.mark.parametrize("name", ["tensor(float)", "seq(tensor(float))", "optional(seq(tensor(float)))"])
def test_types_without_shapes(name):
    shaped = graphs.parse_type(name)
    inner = shaped
    while not inner.HasField("tensor_type"):
        inner = getattr(inner, inner.WhichOneof("value")).elem_type
    inner.tensor_type.shape.dim.add(dim_value=3)
    assert graphs.without_shape(shaped) == graphs.parse_type(name)
    assert inner.tensor_type.HasField("shape")  # a copy's was taken
