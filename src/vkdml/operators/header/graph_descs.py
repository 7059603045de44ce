"""Graphs of operators as in DirectML.h: structures that only hold data. Device.compile_graph checks them.

Names of nodes are for errors; those of edges are not used. Counts are optional where the list beside them tells; if they are
given, they must be right. Sources: DirectML's pages on DML_GRAPH_DESC and the structures in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..fields import tell_fields

__all__ = [
    "DML_GRAPH_DESC",
    "DML_GRAPH_EDGE_DESC",
    "DML_GRAPH_EDGE_TYPE",
    "DML_GRAPH_NODE_DESC",
    "DML_GRAPH_NODE_TYPE",
    "DML_INPUT_GRAPH_EDGE_DESC",
    "DML_INTERMEDIATE_GRAPH_EDGE_DESC",
    "DML_OPERATOR_GRAPH_NODE_DESC",
    "DML_OUTPUT_GRAPH_EDGE_DESC",
]


class DML_GRAPH_EDGE_TYPE(IntEnum):
    INVALID = 0
    INPUT = 1
    OUTPUT = 2
    INTERMEDIATE = 3


class DML_GRAPH_NODE_TYPE(IntEnum):
    """Types of nodes. A constant is refused: bind it as an input."""

    INVALID = 0
    OPERATOR = 1
    CONSTANT = 2


@dataclass(frozen=True)
class DML_INPUT_GRAPH_EDGE_DESC:
    """An edge from an input of the graph to one of a node. One input may go to several."""

    GraphInputIndex: int
    ToNodeIndex: int
    ToNodeInputIndex: int
    Name: str | None = None


@dataclass(frozen=True)
class DML_OUTPUT_GRAPH_EDGE_DESC:
    """An edge from an output of a node to one of the graph. The output may go to nodes too, but to no other of the graph."""

    FromNodeIndex: int
    FromNodeOutputIndex: int
    GraphOutputIndex: int
    Name: str | None = None


@dataclass(frozen=True)
class DML_INTERMEDIATE_GRAPH_EDGE_DESC:
    """An edge from an output of a node to an input of another one. One output may go to several."""

    FromNodeIndex: int
    FromNodeOutputIndex: int
    ToNodeIndex: int
    ToNodeInputIndex: int
    Name: str | None = None


@dataclass(frozen=True)
class DML_GRAPH_EDGE_DESC:
    """An edge with its type. Wherever one is expected, the structure in `Desc` alone is accepted too."""

    Type: DML_GRAPH_EDGE_TYPE
    Desc: Any


@dataclass(frozen=True)
class DML_OPERATOR_GRAPH_NODE_DESC:
    """A node that is an operator of Device.create_operator."""

    Operator: Any
    Name: str | None = None


@dataclass(frozen=True)
class DML_GRAPH_NODE_DESC:
    """A node with its type. Wherever one is expected, the structure in `Desc` alone is accepted too."""

    Type: DML_GRAPH_NODE_TYPE
    Desc: Any


@dataclass(frozen=True, kw_only=True)
class DML_GRAPH_DESC:
    """Operators, and what of their tensors is the graph's inputs and outputs and each other's.

    Each tensor of a node's inputs has an edge. An output without any is computed and dropped.
    """

    InputCount: int
    OutputCount: int
    Nodes: Sequence[DML_GRAPH_NODE_DESC | DML_OPERATOR_GRAPH_NODE_DESC]
    InputEdges: Sequence[DML_GRAPH_EDGE_DESC | DML_INPUT_GRAPH_EDGE_DESC] = ()
    OutputEdges: Sequence[DML_GRAPH_EDGE_DESC | DML_OUTPUT_GRAPH_EDGE_DESC] = ()
    IntermediateEdges: Sequence[DML_GRAPH_EDGE_DESC | DML_INTERMEDIATE_GRAPH_EDGE_DESC] = ()
    NodeCount: int | None = None
    InputEdgeCount: int | None = None
    OutputEdgeCount: int | None = None
    IntermediateEdgeCount: int | None = None


tell_fields(globals())
