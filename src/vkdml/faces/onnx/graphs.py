"""Helpers for ONNX graphs: the values that a node uses, constant nodes, and onnxruntime's names of types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)

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


def ordered(graph: GraphProto, known: Collection[str]) -> list[NodeProto]:
    """The nodes in an order in which each comes after those whose values it uses. Refuses a graph that uses unknown values.

    known: the names of the values that the nodes can use besides their own.
    """
    names = set(known)
    users: defaultdict[str, list[int]] = defaultdict(list)  # value name -> nodes still waiting for it
    missing: list[int] = []  # for each node: number of values that it waits for
    result: list[NodeProto] = []
    for place, node in enumerate(graph.node):
        absent = uses(node) - names
        missing.append(len(absent))
        for name in absent:
            users[name].append(place)
        ready = [] if absent else [place]
        while ready:
            result.append(graph.node[ready.pop()])
            names |= made([result[-1]])
            for user in chain.from_iterable(users.pop(name, ()) for name in result[-1].output):
                missing[user] -= 1
                ready += [] if missing[user] else [user]
    if len(result) < len(graph.node):
        node = next(node for node, count in zip(graph.node, missing) if count)
        raise InvalidArgumentError(describe(node), "input", repr(min(uses(node) - names)),
                                   "a value of an input, an initializer or a node before it")
    for output in graph.output:
        if output.name not in names:
            raise InvalidArgumentError(f"graph {graph.name!r}", "output", repr(output.name), "a value of the graph")
    return result


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


def initializers(graph: GraphProto) -> Iterator[TensorProto]:
    """All initializers of a graph, those of bodies too."""
    yield from graph.initializer
    for node in graph.node:
        for inner in bodies(node):
            yield from initializers(inner)


def parse_type(text: str) -> TypeProto:
    """A TypeProto without a shape, from onnxruntime's name of a type, such as seq(tensor(float))."""
    outer, _, inner = text.removesuffix(")").partition("(")
    if outer == "seq":
        return TypeProto(sequence_type=TypeProto.Sequence(elem_type=parse_type(inner)))
    if outer == "sparse_tensor":
        return TypeProto(sparse_tensor_type=TypeProto.SparseTensor(elem_type=TensorProto.DataType.Value(inner.upper())))
    if outer == "optional":
        return TypeProto(optional_type=TypeProto.Optional(elem_type=parse_type(inner)))
    if outer == "map":
        key, _, value = inner.partition(",")
        return TypeProto(map_type=TypeProto.Map(key_type=TensorProto.DataType.Value(key.upper()), value_type=parse_type(value)))
    return tensor_type(TensorProto.DataType.Value(inner.upper()))


def type_name(kind: TypeProto) -> str:
    """onnxruntime's name of a type."""
    if kind.HasField("sequence_type"):
        return f"seq({type_name(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({type_name(kind.optional_type.elem_type)})"
    if kind.HasField("map_type"):
        return f"map({TensorProto.DataType.Name(kind.map_type.key_type).lower()},{type_name(kind.map_type.value_type)})"
    if kind.HasField("sparse_tensor_type"):
        return f"sparse_tensor({TensorProto.DataType.Name(kind.sparse_tensor_type.elem_type).lower()})"
    return f"tensor({TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()})"


def dimensions(value: ValueInfoProto) -> Sequence[TensorShapeProto.Dimension]:
    """Dimensions of a tensor, or of an optional one."""
    kind = value.type.optional_type.elem_type if value.type.HasField("optional_type") else value.type
    return kind.tensor_type.shape.dim


def sizes(value: ValueInfoProto) -> list[int | None]:
    """The dimensions of a tensor, None for those that may vary."""
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in dimensions(value)]


def without_shape(kind: TypeProto) -> TypeProto:
    return parse_type(type_name(kind))


def tensor_type(elem_type: int) -> TypeProto:
    """A tensor of any shape."""
    return TypeProto(tensor_type=TypeProto.Tensor(elem_type=elem_type))
