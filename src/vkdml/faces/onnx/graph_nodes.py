"""Nodes of graphs, as onnxruntime and the package onnx describe them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InvalidArgumentError, expect_ours

RECURRENT = ("GRU", "LSTM", "RNN")


@dataclass(eq=False)
class GraphNode:
    """A node of a graph, with functions' nodes in the functions' place.

    version: of its operator, or of the opset. captured: the values around it that its bodies use. attributes: by name, without
    empty lists; None for what is no number, no text and no list of them. provider: the one that has taken it already, or "".
    """

    name: str
    op_type: str
    domain: str
    version: int
    inputs: list[str]
    outputs: list[str]
    captured: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    provider: str = ""

    def __post_init__(self) -> None:
        self.attributes = {name: plain for name, value in self.attributes.items() if (plain := _plain(value)) != []}

    def __str__(self) -> str:
        return f"{self.op_type} node {self.name!r}" if self.name else f"{self.op_type} node"


def _plain(value: Any) -> Any:
    """The value with bytes decoded to text."""
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return [_plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


@contextmanager
def refusing(node: GraphNode, arrays: Sequence[np.ndarray | None]) -> Iterator[None]:
    """What numpy raises for arrays that a node cannot take becomes an InvalidArgumentError."""
    try:
        yield
    except (IndexError, MemoryError, OverflowError, TypeError, ValueError) as error:  # numpy's AxisError is two of them
        expect_ours(error)
        if isinstance(error, InvalidArgumentError):
            raise
        found = " and ".join(f"the shape {array.shape}" for array in arrays if array is not None)
        raise InvalidArgumentError(str(node), "input", f"{found} ({error})", "what the node takes") from None
