"""DirectML's structures of graphs, bindings and features. They only hold data: a Device or a BindingTable checks it.

Nodes' names appear in errors; edges' names are not used. Counts are optional where the list is given; a given count must be
right.
Sources: DirectML's pages "Binding in DirectML", "DML_FEATURE_LEVEL enumeration", and those of the structures.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from . import descs
from .fields import Structure

DML_BINDING_TYPE = IntEnum("DML_BINDING_TYPE", ["NONE", "BUFFER", "BUFFER_ARRAY"], start=0)
DML_GRAPH_EDGE_TYPE = IntEnum("DML_GRAPH_EDGE_TYPE", ["INVALID", "INPUT", "OUTPUT", "INTERMEDIATE"], start=0)
# A constant node is refused: bind it as an input
DML_GRAPH_NODE_TYPE = IntEnum("DML_GRAPH_NODE_TYPE", ["INVALID", "OPERATOR", "CONSTANT"], start=0)
DML_FEATURE = IntEnum("DML_FEATURE", ["TENSOR_DATA_TYPE_SUPPORT", "FEATURE_LEVELS"], start=0)
# C's DML_FEATURE_LEVEL_1_0 is LEVEL_1_0 here, as a name cannot begin with a digit
DML_FEATURE_LEVEL = IntEnum("DML_FEATURE_LEVEL", {
    "LEVEL_1_0": 0x1000, "LEVEL_2_0": 0x2000, "LEVEL_2_1": 0x2100, "LEVEL_3_0": 0x3000, "LEVEL_3_1": 0x3100,
    "LEVEL_4_0": 0x4000, "LEVEL_4_1": 0x4100, "LEVEL_5_0": 0x5000, "LEVEL_5_1": 0x5100, "LEVEL_5_2": 0x5200,
    "LEVEL_6_0": 0x6000, "LEVEL_6_1": 0x6100, "LEVEL_6_2": 0x6200, "LEVEL_6_3": 0x6300, "LEVEL_6_4": 0x6400})


class DML_BUFFER_BINDING(Structure):
    """A part of a Buffer, in bytes; None binds nothing. Wherever one is expected, a Buffer alone is accepted too.

    SizeInBytes: by default up to the buffer's end. A tensor uses as many of these bytes as its description says.
    """

    Buffer: Any
    Offset: int = 0
    SizeInBytes: int | None = None


class DML_BUFFER_ARRAY_BINDING(Structure, kw_only=True):
    """The bindings of all inputs of one operator, for an initializer of several operators."""

    Bindings: Sequence[Any]
    BindingCount: int | None = None


class DML_BINDING_DESC(Structure):
    """A binding with its type. Wherever one is expected, `Desc` alone is accepted too, and None for no binding."""

    Type: DML_BINDING_TYPE
    Desc: Any = None


class DML_BINDING_TABLE_DESC(Structure):
    """Describes a binding table. Wherever one is expected, `Dispatchable` alone is accepted too.

    There are no descriptor heaps: handles are ignored, and SizeInDescriptors need only be large enough.
    """

    Dispatchable: Any
    CPUDescriptorHandle: Any = None
    GPUDescriptorHandle: Any = None
    SizeInDescriptors: int | None = None


class DML_INPUT_GRAPH_EDGE_DESC(Structure):
    """An edge from an input of the graph to an input of a node. One input of the graph may go to several nodes."""

    GraphInputIndex: int
    ToNodeIndex: int
    ToNodeInputIndex: int
    Name: str | None = None


class DML_OUTPUT_GRAPH_EDGE_DESC(Structure):
    """An edge from an output of a node to one output of the graph. The node's output may go to other nodes too."""

    FromNodeIndex: int
    FromNodeOutputIndex: int
    GraphOutputIndex: int
    Name: str | None = None


class DML_INTERMEDIATE_GRAPH_EDGE_DESC(Structure):
    """An edge from an output of a node to an input of another node. One output may go to several nodes."""

    FromNodeIndex: int
    FromNodeOutputIndex: int
    ToNodeIndex: int
    ToNodeInputIndex: int
    Name: str | None = None


class DML_GRAPH_EDGE_DESC(Structure):
    """An edge with its type. Wherever one is expected, the structure in `Desc` alone is accepted too."""

    Type: DML_GRAPH_EDGE_TYPE
    Desc: Any


class DML_OPERATOR_GRAPH_NODE_DESC(Structure):
    """A node that runs an operator made by Device.create_operator."""

    Operator: Any
    Name: str | None = None


class DML_GRAPH_NODE_DESC(Structure):
    """A node with its type. Wherever one is expected, the structure in `Desc` alone is accepted too."""

    Type: DML_GRAPH_NODE_TYPE
    Desc: Any


class DML_GRAPH_DESC(Structure, kw_only=True):
    """A graph of operators. Edges connect their tensors to each other and to the graph's inputs and outputs.

    Each input of a node needs an edge. An output without an edge is computed and dropped.
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


class DML_FEATURE_QUERY_FEATURE_LEVELS(Structure, kw_only=True):
    """Asks for the highest of these feature levels that the device supports."""

    RequestedFeatureLevels: Sequence[int]
    RequestedFeatureLevelCount: int | None = None


class DML_FEATURE_DATA_FEATURE_LEVELS(Structure):
    """Answers with the highest supported feature level of those that were asked for."""

    MaxSupportedFeatureLevel: int


class DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT(Structure):
    """Asks whether any operator takes tensors of this type."""

    DataType: descs.DML_TENSOR_DATA_TYPE


class DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT(Structure):
    """Answers whether any operator takes tensors of the type that was asked for."""

    IsSupported: bool


NAMES = [name for name in dir() if name.startswith("DML_")]
if not TYPE_CHECKING:  # type checkers understand only literal lists in __all__, and find the names without it
    __all__ = NAMES
