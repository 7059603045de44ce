"""The execution provider that onnxruntime asks which nodes it takes, and has them run: Python's part of _provider.cpp."""

from __future__ import annotations

import atexit
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InvalidArgumentError
from ..sessions import open_device
from .assignment import DEVICE, ONNXRUNTIME, AssignedNode
from .exchange import PROVIDER, creation, extension, message, session_calls, under_way
from .nodes import RecurrentNode
from .programs import DTYPES, OPERATORS, RECURRENT_NODES, NodeGraph, groups
from .runs import DeviceRun

_FOR_CALLBACKS = 5  # seconds
_PREFIX = f"ep.{PROVIDER.lower()}."  # of the provider's options among a session's


class Provider:
    """A session's provider. options: onnxruntime's for the session, by their keys.

    assigned: the nodes that were looked at. runs: its groups.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.runs: list[DeviceRun] = []
        self._on_device: list[tuple[Any, ...]] = []  # what AssignedNode() takes
        self._elsewhere: list[tuple[Any, ...]] = []
        self._bodies: list[tuple[Any, ...]] = []
        self._graph = ""
        self._error: BaseException | None = None
        if creation.made is not None:
            creation.made.append(self)
        try:
            self._open(options)
        except Exception as error:
            if creation.errors is None:
                raise
            creation.errors.append(error)  # onnxruntime would print that it falls back to the CPU
            self._error = error

    def _open(self, options: Mapping[str, str]) -> None:
        """Find the device that the options name. Raises InvalidArgumentError for other options, and DriverError."""
        own = {key.removeprefix(_PREFIX): value for key, value in options.items() if key.startswith(_PREFIX)}
        if not own.keys() <= {"device", "device_id"}:
            raise InvalidArgumentError("InferenceSession", f"options of {PROVIDER}", own, "device or device_id")
        if options.get("ep.context_enable") == "1":
            raise InvalidArgumentError("InferenceSession", "ep.context_enable", "1",
                                       f"0: nodes on the device cannot be saved; make the EPContext model without {PROVIDER}")
        named = own.get("device", own.get("device_id"))
        given, self.options = creation.settings
        self.given_device = given if given is not None or named == "None" else named  # onnxruntime makes texts of all values
        self.device = open_device("InferenceSession", self.given_device)

    @property
    def assigned(self) -> tuple[AssignedNode, ...]:
        return tuple(AssignedNode(*row) for row in (*self._on_device, *self._elsewhere))

    def claim(self, name: str, heads: Sequence[Sequence[str]], describe: Callable[[], tuple[Any, Any] | None]
              ) -> list[list[int]]:
        """The groups of nodes of a graph to run on the device, as their places. name: a body's, "" of the model's own graph.
        heads: each node's name, operator, domain and the provider that has taken it. describe: returns what NodeGraph() takes,
        or None where names are alike.

        onnxruntime asks for the bodies in a graph first, and for all again each time that it has put functions' nodes in their
        place: so only graphs with recurrent nodes are described. It would ignore an exception, and run all on the CPU: one is
        raised by `compile`, for which a node is claimed.
        """
        if self._error is not None:
            return [[0]] if heads else []
        try:
            self._graph = name
            recurrent = [place for place, (_, name, domain, _) in enumerate(heads) if (domain, name) in RECURRENT_NODES]
            described = describe() if recurrent else None
            found, reasons = (groups(NodeGraph(*described), self.device, self.options) if described
                              else ([], dict.fromkeys(recurrent, "the model has names that are equal up to a NUL")))
            claimed = {place for group in found for place in group}
            self._bodies += [(*head, self._graph, ONNXRUNTIME, reasons.get(place, ""))
                             for place, (*head, taker) in enumerate(heads) if place not in claimed and taker != PROVIDER]
            if not name:
                self._elsewhere, self._bodies = self._bodies, []
            return found
        except BaseException as error:
            self._error = error
            return [[0]]

    def compile(self, described: tuple[Any, Any], inputs: Sequence[str], outputs: Sequence[str]) -> DeviceRun:
        """A group, ready to run. described: what NodeGraph() takes. inputs, outputs: the names of its own."""
        if self._error is not None:
            raise self._error
        graph = NodeGraph(*described)
        run = DeviceRun(graph, inputs, outputs, self.given_device, self.options)
        self.runs.append(run)
        self._on_device += [(node.name, node.op_type, node.domain, self._graph, DEVICE) for node in graph.nodes]
        return run

    def recurrent(self) -> dict[str, tuple[DeviceRun, RecurrentNode]]:
        """The recurrent nodes on the device, by what errors call them, made unique."""
        found: dict[str, tuple[DeviceRun, RecurrentNode]] = {}
        names = Counter[str]()
        for run in self.runs:
            for node in run.recurrent:
                names[node.operator] += 1
                number = names[node.operator]
                found[f"{node.operator} ({number})" if number > 1 else node.operator] = run, node
        return found


def _end() -> None:
    """Wait for what calls back, at Python's end, but not for ever; then nothing begins any more in other threads."""
    until = time.monotonic() + _FOR_CALLBACKS
    while under_way and time.monotonic() < until:
        time.sleep(0.01)
    session_calls.end()
    extension.end()


extension.set(Provider, message, DTYPES, OPERATORS)
atexit.register(_end)
