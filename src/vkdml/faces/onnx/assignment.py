"""Places of a model's nodes: device, or onnxruntime."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from tabulate import tabulate

from ...errors import printable

Place = Literal["device", "onnxruntime"]
PLACES = DEVICE, ONNXRUNTIME = get_args(Place)


@dataclass(frozen=True)
class AssignedNode:
    """A node of a model, after onnxruntime has put functions' nodes in the functions' place and computed what is constant.

    name, op_type, domain: as onnxruntime has them.
    graph: "" in the model's own; in the body of an If, Loop or Scan its name.
    runs_on: "device", the Vulkan device, or "onnxruntime".
    reason: why a recurrent node does not run on the device; else "".
    """

    name: str
    op_type: str
    domain: str
    graph: str
    runs_on: Place
    reason: str = ""


@dataclass(frozen=True)
class Assignment:
    """The places of all nodes of a model. Its str() is a table.

    device: the name of the Vulkan device; "" in a session without it.
    """

    device: str
    nodes: tuple[AssignedNode, ...]

    def on(self, place: Place) -> list[AssignedNode]:
        """The nodes of one `runs_on`."""
        return [node for node in self.nodes if node.runs_on == place]

    def groups(self) -> list[dict[str, object]]:
        """One for each place: its `runs_on`, number of `nodes`, and of nodes by type in `operators`."""
        return [{"runs_on": place, "nodes": len(found), "operators": dict(Counter(map(_operator, found)))}
                for place in PLACES if (found := self.on(place))]

    @property
    def refused(self) -> list[str]:
        """The recurrent nodes that do not run on the device, each with the reason."""
        return [(name := f"{node.op_type} node {node.name!r}: ") + node.reason.removeprefix(name)  # errors name the node
                for node in self.nodes if node.reason]

    def __str__(self) -> str:
        rows = [(node.runs_on, _operator(node), node.name, node.graph, node.reason) for node in self.nodes]
        return printable(f"{self.headline}\n" + tabulate(rows, ["runs on", "operator", "name", "graph", "reason"]))

    @property
    def headline(self) -> str:
        if not self.device and not self.nodes:
            return "no node runs on a Vulkan device: the session's providers lack VkdmlExecutionProvider"
        return f"{len(self.on(DEVICE))} of {len(self.nodes)} nodes run on {self.device or 'no Vulkan device'}"


def _operator(node: AssignedNode) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type
