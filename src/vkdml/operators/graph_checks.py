"""Checks a DML_GRAPH_DESC, names its tensors and puts its nodes in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..errors import InvalidArgumentError, shown
from .checks import CheckedOperator, Tensor, integers, is_count, is_one_of
from .header import device_descs as header
from .header.device_descs import DML_GRAPH_DESC

NAME = "DML_GRAPH_DESC"


@dataclass(frozen=True)
class Graph:
    """A checked graph.

    problem: the graph as one operator, whose inputs and outputs are named "input 0", "output 0" and so on. order: the nodes,
    in the order in which they run. names: for each node, the names of its tensors, by field; both ends of an edge have one
    name. intermediate: bytes of the tensors that are neither inputs nor outputs, by name.
    """

    problem: CheckedOperator
    order: tuple[int, ...]
    names: tuple[Mapping[str, str], ...]
    intermediate: Mapping[str, int]


def nodes_of(desc: Any) -> list[header.DML_OPERATOR_GRAPH_NODE_DESC]:
    """List a graph's nodes. Raises InvalidArgumentError unless desc is a DML_GRAPH_DESC whose nodes are all operators."""
    if not isinstance(desc, DML_GRAPH_DESC):
        raise InvalidArgumentError("compile_graph", "desc", type(desc).__name__, NAME)
    nodes = _listed(desc, "Nodes", header.DML_GRAPH_NODE_DESC, header.DML_GRAPH_NODE_TYPE.OPERATOR,
                    header.DML_OPERATOR_GRAPH_NODE_DESC)
    if not nodes:
        raise InvalidArgumentError(NAME, "Nodes", "none", "at least one")
    return nodes


def check_graph(desc: DML_GRAPH_DESC, problems: Sequence[CheckedOperator]) -> Graph:
    """Check a graph's edges. problems: the nodes' checked operators. Raises InvalidArgumentError, which names the edge."""
    kinds = header.DML_GRAPH_EDGE_TYPE
    edges = {field: _listed(desc, field, header.DML_GRAPH_EDGE_DESC, kind, structure) for field, kind, structure in (
        ("InputEdges", kinds.INPUT, header.DML_INPUT_GRAPH_EDGE_DESC),
        ("OutputEdges", kinds.OUTPUT, header.DML_OUTPUT_GRAPH_EDGE_DESC),
        ("IntermediateEdges", kinds.INTERMEDIATE, header.DML_INTERMEDIATE_GRAPH_EDGE_DESC))}
    counts = {field: integers(NAME, field, (getattr(desc, field),), 0)[0] for field in ("InputCount", "OutputCount")}
    names: list[dict[str, str]] = [{} for _ in problems]
    for i, edge in enumerate(edges["OutputEdges"]):
        node, field = _end(f"OutputEdges[{i}]", edge, problems, "From", "Output")
        name = f"output {_index(f'OutputEdges[{i}].GraphOutputIndex', edge.GraphOutputIndex, counts['OutputCount'])}"
        _name(f"OutputEdges[{i}]", names[node], field, name)
        if sum(name in of_node.values() for of_node in names) > 1 or list(names[node].values()).count(name) > 1:
            raise InvalidArgumentError(NAME, f"OutputEdges[{i}].GraphOutputIndex", f"a second edge to {name}", "one for each")
    for node, problem in enumerate(problems):
        for place, field in enumerate(problem.outputs):
            if problem.has(field):
                names[node].setdefault(field, f"node {node} output {place}")
    for i, edge in enumerate(edges["InputEdges"]):
        name = f"input {_index(f'InputEdges[{i}].GraphInputIndex', edge.GraphInputIndex, counts['InputCount'])}"
        node, field = _end(f"InputEdges[{i}]", edge, problems, "To", "Input")
        _name(f"InputEdges[{i}]", names[node], field, name)
    before: list[set[int]] = [set() for _ in problems]
    for i, edge in enumerate(edges["IntermediateEdges"]):
        where = f"IntermediateEdges[{i}]"
        source, output = _end(where, edge, problems, "From", "Output")
        target, field = _end(where, edge, problems, "To", "Input")
        _check_connection(where, problems[source].tensor(output), problems[target].tensor(field))
        _name(where, names[target], field, names[source][output])
        before[target].add(source)
    _check_connected(desc, problems, names)
    tensors = _tensors(problems, names)
    inputs = tuple(f"input {place}" for place in range(counts["InputCount"]))
    outputs = tuple(f"output {place}" for place in range(counts["OutputCount"]))
    given = {name: tensors.get(name) for name in (*inputs, *outputs)}
    problem = CheckedOperator(NAME, problems[0].element, given, inputs, outputs, weights=inputs)
    return Graph(problem, _order(before), tuple(names),
                 {name: tensor.size_in_bytes for name, tensor in tensors.items() if name.startswith("node")})


def _listed(desc: DML_GRAPH_DESC, field: str, wrapper: Any, kind: int, structure: type) -> list[Any]:
    """Unwrap the items of one of the graph's lists from the structures with their types. Refuses a wrong count of items."""
    values, count = getattr(desc, field), f"{field[:-1]}Count"
    if not isinstance(values, list | tuple):
        raise InvalidArgumentError(NAME, field, type(values).__name__, f"a list of {structure.__name__}")
    if not is_count(getattr(desc, count), len(values)):
        raise InvalidArgumentError(NAME, count, shown(getattr(desc, count)), f"{len(values)}, the length of {field}")
    inner = []
    for i, value in enumerate(values):
        if isinstance(value, wrapper):
            if not is_one_of(value.Type, [kind]):
                raise InvalidArgumentError(NAME, f"{field}[{i}].Type", shown(value.Type), f"the type of {structure.__name__}")
            value = value.Desc
        if not isinstance(value, structure):
            raise InvalidArgumentError(NAME, f"{field}[{i}]", type(value).__name__, structure.__name__)
        inner.append(value)
    return inner


def _end(where: str, edge: Any, problems: Sequence[CheckedOperator], side: str, kind: str) -> tuple[int, str]:
    """Find the node at one end of an edge, and the field of its tensor. side, kind: From and Output, or To and Input."""
    node = _index(f"{where}.{side}NodeIndex", getattr(edge, f"{side}NodeIndex"), len(problems))
    fields = problems[node].outputs if kind == "Output" else problems[node].inputs
    place = f"{side}Node{kind}Index"
    field = fields[_index(f"{where}.{place}", getattr(edge, place), len(fields))]
    if not problems[node].has(field):
        raise InvalidArgumentError(NAME, f"{where}.{place}", f"{field} of node {node}, which is None",
                                   "a tensor that its operator has")
    return node, field


def _index(where: str, value: object, count: int) -> int:
    (index,) = integers(NAME, where, (value,), 0)
    if index >= count:
        raise InvalidArgumentError(NAME, where, index, f"less than {count}")
    return index


def _name(where: str, names: dict[str, str], field: str, name: str) -> None:
    if field in names:
        raise InvalidArgumentError(NAME, where, f"a second edge for {field}", "one for each")
    names[field] = name


def _check_connection(where: str, source: Tensor, target: Tensor) -> None:
    """Refuse an edge between tensors whose type or size does not fit. Strides may differ: each node has its own."""
    if source.data_type != target.data_type or target.bytes_of_elements > source.bytes_of_elements:
        raise InvalidArgumentError(NAME, where, f"{source.data_type.name} in {source.bytes_of_elements} bytes for "
                                   f"{target.data_type.name} in {target.bytes_of_elements}", "the same type, and bytes enough")
    if target.is_owned:
        raise InvalidArgumentError(NAME, where, "an edge to a tensor that is OWNED_BY_DML", "an input of the graph for it")


def _check_connected(desc: DML_GRAPH_DESC, problems: Sequence[CheckedOperator], names: Sequence[Mapping[str, str]]) -> None:
    for node, problem in enumerate(problems):
        missing = [field for field in problem.inputs if problem.has(field) and field not in names[node]]
        if missing:
            raise InvalidArgumentError(NAME, f"Nodes[{node}]", "no edge for " + ", ".join(missing), "one for each input")
    given = {name for of_node in names for name in of_node.values()}
    for place in range(desc.OutputCount):
        if f"output {place}" not in given:
            raise InvalidArgumentError(NAME, "OutputEdges", f"none for output {place}", f"one for each of {desc.OutputCount}")


def _tensors(problems: Sequence[CheckedOperator], names: Sequence[Mapping[str, str]]) -> dict[str, Tensor]:
    """Collect the tensors by name, each with the largest size and alignment that any node describes it with."""
    tensors: dict[str, Tensor] = {}
    for problem, of_node in zip(problems, names):
        for field, name in of_node.items():
            here = problem.tensor(field)
            known = tensors.setdefault(name, here)
            if known.is_owned != here.is_owned:
                raise InvalidArgumentError(NAME, name, "OWNED_BY_DML for some nodes", "for all that it goes to, or for none")
            tensors[name] = replace(known, size_in_bytes=max(known.size_in_bytes, here.size_in_bytes),
                                    alignment=max(known.alignment, here.alignment))
    return tensors


def _order(before: Sequence[set[int]]) -> tuple[int, ...]:
    """Sort the nodes so that each comes after its sources. before: the sources of each node."""
    try:
        return tuple(TopologicalSorter(dict(enumerate(before))).static_order())
    except CycleError as error:
        circle = ", ".join(map(str, sorted(set(error.args[1]))))
        raise InvalidArgumentError(NAME, "IntermediateEdges", f"a circle of nodes {circle}", "no circle") from None
