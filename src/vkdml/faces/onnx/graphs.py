"""Helpers for ONNX graphs: the values that a node uses, constant nodes, and onnxruntime's names of types."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto, ValueInfoProto, helper

from ...errors import InvalidArgumentError
from .nodes import is_recurrent

# Operators whose results are random, or are no tensors
_NEVER_CONSTANT = {"Bernoulli", "Dropout", "Multinomial", "Optional", "RandomNormal", "RandomNormalLike", "RandomUniform",
                   "RandomUniformLike", "SequenceConstruct", "SequenceEmpty", "SplitToSequence"}


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def body(node: NodeProto, attribute: str) -> GraphProto:
    return next(entry.g for entry in node.attribute if entry.name == attribute)


def describe(node: NodeProto) -> str:
    """A node's name in error messages."""
    return f"{node.op_type} node {node.name!r}"


def opset_version(imports: Iterable[OperatorSetIdProto]) -> int:
    """Version of ONNX's own operators."""
    versions = {entry.version for entry in imports if entry.domain in ("", "ai.onnx")}
    if len(versions) != 1:
        found = " and ".join(map(str, sorted(versions))) or "no version"
        raise InvalidArgumentError("InferenceSession", "opset_import", f"{found} of ai.onnx", "one version")
    return versions.pop()


def ordered(graph: GraphProto) -> list[NodeProto]:
    """The nodes in an order in which each comes after those whose values it uses, and else in their own."""
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    needs = [{makers[name] for name in uses(node) if name in makers} for node in graph.node]
    left = list(range(len(needs)))[::-1]
    done: dict[int, NodeProto] = {}
    while left:
        missing = [place for place in sorted(needs[left[-1]], reverse=True) if place not in done]
        left += missing
        if not missing:
            place = left.pop()
            done[place] = graph.node[place]
    return list(done.values())


def holds_recurrent(node: NodeProto) -> bool:
    """Whether a node is recurrent, or has a recurrent node in its bodies at any depth."""
    return is_recurrent(node) or any(holds_recurrent(inner) for graph in bodies(node) for inner in graph.node)


def uses(node: NodeProto) -> set[str]:
    """The names of the values that a node uses: its inputs, and what its bodies use from the graphs around them."""
    return {name for name in node.input if name}.union(*map(captures, bodies(node)))


def captures(graph: GraphProto) -> set[str]:
    """The names of the values that a body uses from the graphs around it."""
    used = {output.name for output in graph.output}.union(*map(uses, graph.node))
    return used - made(graph.node) - {value.name for value in (*graph.input, *graph.initializer)}


def made(nodes: Iterable[NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.output if name}


def split_constant(nodes: Iterable[NodeProto], constants: Collection[str]) -> tuple[list[NodeProto], list[NodeProto]]:
    """The nodes that compute constants from constants, and all others, both in their order."""
    known = set(constants)
    constant, other = [], []
    for node in nodes:
        pure = node.domain in ("", "ai.onnx") and node.op_type not in _NEVER_CONSTANT and not any(bodies(node)) \
            and not any(attribute.HasField("sparse_tensor") for attribute in node.attribute)
        if pure and not is_recurrent(node) and uses(node) <= known:
            constant.append(node)
            known |= made([node])
        else:
            other.append(node)
    return constant, other


def nested(graph: Any) -> Iterator[Any]:
    """A graph, or a function, and all graphs in the bodies of its nodes."""
    yield graph
    for inner in chain.from_iterable(map(bodies, graph.node)):
        yield from nested(inner)


def initializers(graph: GraphProto) -> Iterator[TensorProto]:
    """All initializers of a graph, those of bodies too."""
    return chain.from_iterable(inner.initializer for inner in nested(graph))


def parse_type(text: str) -> TypeProto:
    """A TypeProto without a shape, from onnxruntime's name of a type, such as seq(tensor(float))."""
    outer, _, inner = text.removesuffix(")").partition("(")
    if outer == "seq":
        return helper.make_sequence_type_proto(parse_type(inner))
    if outer == "optional":
        return helper.make_optional_type_proto(parse_type(inner))
    if outer == "map":
        key, _, value = inner.partition(",")
        return helper.make_map_type_proto(TensorProto.DataType.Value(key.upper()), parse_type(value))
    make = helper.make_sparse_tensor_type_proto if outer == "sparse_tensor" else helper.make_tensor_type_proto
    return make(TensorProto.DataType.Value(inner.upper()), None)


def without_shape(kind: TypeProto) -> TypeProto:
    """The type, of any shape."""
    result = TypeProto()
    result.CopyFrom(kind)
    inner: Any = result
    while (field := inner.WhichOneof("value")) in ("sequence_type", "optional_type"):
        inner = getattr(inner, field).elem_type
    inner.tensor_type.ClearField("shape") if field == "tensor_type" else None
    return result


def sizes(value: ValueInfoProto) -> list[int | None]:
    """The dimensions of a tensor, None for those that may vary."""
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
            for dim in value.type.tensor_type.shape.dim]


def tensor_type(elem_type: int) -> TypeProto:
    """A tensor of any shape."""
    return helper.make_tensor_type_proto(elem_type, None)
