"""Places of a model's nodes: device, onnxruntime, host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from onnx import NodeProto
from tabulate import tabulate

from . import graphs

DEVICE, HOST, ONNXRUNTIME, LOAD, NOWHERE = "device", "host", "onnxruntime", "load", "nowhere"


@dataclass(frozen=True)
class AssignedNode:
    """A node of a model, after its functions were inlined.

    name, op_type, domain: as the model has them.
    graph: "" in the model's own; in the body of an If, Loop or Scan its name behind those around it, such as "/then_branch".
    runs_on: "device", the Vulkan device; "onnxruntime", with the other nodes of its piece; "host", for an If, Loop or Scan
        that vkdml runs because recurrent nodes are in its bodies; "load", for what was computed once, when the model was
        loaded; or "nowhere", as nobody uses its results.
    piece: the number of the piece, from 1, in "onnxruntime"; else None.
    """

    name: str
    op_type: str
    domain: str
    graph: str
    runs_on: str
    piece: int | None = None


@dataclass(frozen=True)
class Assignment:
    """The places of all nodes of a model, in the order in which they run. Its str() is a table.

    device: the name of the Vulkan device.
    """

    device: str
    nodes: tuple[AssignedNode, ...]

    def on(self, place: str) -> list[AssignedNode]:
        """The nodes of one `runs_on`."""
        return [node for node in self.nodes if node.runs_on == place]

    def groups(self) -> list[dict[str, object]]:
        """One for each place and piece: its `runs_on`, `piece`, number of `nodes`, and of nodes by type in `operators`."""
        def key(node: AssignedNode) -> tuple[str, int]:
            return node.runs_on, node.piece or 0

        return [{"runs_on": place, "piece": piece or None, "nodes": len(nodes := list(found)),
                 "operators": dict(Counter(map(_operator, nodes)))}
                for (place, piece), found in groupby(sorted(self.nodes, key=key), key)]

    def __str__(self) -> str:
        rows = [(node.runs_on, node.piece, _operator(node), node.name, node.graph) for node in self.nodes]
        return f"{self.headline}\n" + tabulate(rows, ["runs on", "piece", "operator", "name", "graph"])

    @property
    def headline(self) -> str:
        return f"{len(self.on(DEVICE))} of {len(self.nodes)} nodes run on {self.device}"


def assigned(nodes: Iterable[NodeProto], runs_on: str, piece: int | None = None) -> Iterator[AssignedNode]:
    """Nodes of one graph, each with those in its bodies, which run where it does."""
    for node in nodes:
        yield AssignedNode(node.name, node.op_type, node.domain, "", runs_on, piece)
        for body in graphs.bodies(node):
            yield from within(body.name, assigned(body.node, runs_on, piece))


def within(body: str, nodes: Iterable[AssignedNode]) -> Iterator[AssignedNode]:
    """The nodes of a body, as the graph around it has them."""
    return (replace(node, graph=f"/{body}{node.graph}") for node in nodes)


def _operator(node: AssignedNode) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
