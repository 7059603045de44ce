"""DirectML's structures of what a device does with operators: graphs, bindings and features. They only hold data: a Device or a
BindingTable checks it.

Names of nodes are for errors; those of edges are not used. Counts are optional where the list beside them tells; if they are
given, they must be right.
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
# DML_FEATURE_LEVEL_1_0 and so on in C: a name cannot begin with a number
DML_FEATURE_LEVEL = IntEnum("DML_FEATURE_LEVEL", {
    "LEVEL_1_0": 0x1000, "LEVEL_2_0": 0x2000, "LEVEL_2_1": 0x2100, "LEVEL_3_0": 0x3000, "LEVEL_3_1": 0x3100,
    "LEVEL_4_0": 0x4000, "LEVEL_4_1": 0x4100, "LEVEL_5_0": 0x5000, "LEVEL_5_1": 0x5100, "LEVEL_5_2": 0x5200,
    "LEVEL_6_0": 0x6000, "LEVEL_6_1": 0x6100, "LEVEL_6_2": 0x6200, "LEVEL_6_3": 0x6300, "LEVEL_6_4": 0x6400})


class DML_BUFFER_BINDING(Structure):
    """A part of a Buffer, in bytes; None binds nothing. Wherever one is expected, a Buffer alone is accepted too.

    SizeInBytes: by default to the buffer's end. Of that, a tensor has as many bytes as it is described with.
    """

    Buffer: Any
    Offset: int = 0
    SizeInBytes: int | None = None


class DML_BUFFER_ARRAY_BINDING(Structure, kw_only=True):
    """The bindings of all inputs of one operator, for an initializer of several."""

    Bindings: Sequence[Any]
    BindingCount: int | None = None


class DML_BINDING_DESC(Structure):
    """A binding with its type. Wherever one is expected, what is in `Desc` is accepted alone, and None for no binding."""

    Type: DML_BINDING_TYPE
    Desc: Any = None


class DML_BINDING_TABLE_DESC(Structure):
    """What a binding table is for. Wherever one is expected, what is in `Dispatchable` is accepted alone too.

    There are no descriptor heaps: handles are not looked at, and SizeInDescriptors need only be enough.
    """

    Dispatchable: Any
    CPUDescriptorHandle: Any = None
    GPUDescriptorHandle: Any = None
    SizeInDescriptors: int | None = None


class DML_INPUT_GRAPH_EDGE_DESC(Structure):
    """An edge from an input of the graph to one of a node. One input may go to several."""

    GraphInputIndex: int
    ToNodeIndex: int
    ToNodeInputIndex: int
    Name: str | None = None


class DML_OUTPUT_GRAPH_EDGE_DESC(Structure):
    """An edge from an output of a node to one of the graph. The output may go to nodes too, but to no other of the graph."""

    FromNodeIndex: int
    FromNodeOutputIndex: int
    GraphOutputIndex: int
    Name: str | None = None


class DML_INTERMEDIATE_GRAPH_EDGE_DESC(Structure):
    """An edge from an output of a node to an input of another one. One output may go to several."""

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
    """A node that is an operator of Device.create_operator."""

    Operator: Any
    Name: str | None = None


class DML_GRAPH_NODE_DESC(Structure):
    """A node with its type. Wherever one is expected, the structure in `Desc` alone is accepted too."""

    Type: DML_GRAPH_NODE_TYPE
    Desc: Any


class DML_GRAPH_DESC(Structure, kw_only=True):
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


class DML_FEATURE_QUERY_FEATURE_LEVELS(Structure, kw_only=True):
    """Which is the highest of these feature levels that the device has?"""

    RequestedFeatureLevels: Sequence[int]
    RequestedFeatureLevelCount: int | None = None


class DML_FEATURE_DATA_FEATURE_LEVELS(Structure):
    """The highest of those that were asked for."""

    MaxSupportedFeatureLevel: int


class DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT(Structure):
    """Does any operator take tensors of this type?"""

    DataType: descs.DML_TENSOR_DATA_TYPE


class DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT(Structure):
    """Whether any operator takes tensors of the type."""

    IsSupported: bool


NAMES = [name for name in dir() if name.startswith("DML_")]
if not TYPE_CHECKING:  # a type checker reads lists of __all__ only, and finds the names without
    __all__ = NAMES
