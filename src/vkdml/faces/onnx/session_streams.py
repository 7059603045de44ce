"""A model that is run again and again, some of its outputs being inputs of the next run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from ...engine.vulkan.system import Closing, OfOneProcess
from ...errors import InvalidArgumentError, shown
from ..sessions import StatefulSession
from .exchange import streaming

# numpy's names of the types that onnxruntime calls otherwise
_DTYPES: dict[str, Any] = {"float": np.float32, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}


class StatefulNode:
    """A recurrent node whose last states are the initial states of its next run, and stay on the device.

    node: a RecurrentNode. carried: last state -> initial state, by the graph's names.
    """

    def __init__(self, node: Any, carried: Mapping[str, str]) -> None:
        self.carried, self._node = carried, node
        self._fields = {name: field for field, name in node.fields.items() if name in carried.values()}
        self._session: StatefulSession | None = None
        self._state: dict[str, np.ndarray] = {}

    def write(self, state: Mapping[str, np.ndarray]) -> None:
        """Set what the next run begins with, for every carried input."""
        self._state, self._session = {field: state[name] for name, field in self._fields.items()}, None

    def read(self) -> dict[str, np.ndarray]:
        """What the next run begins with, by input."""
        state = self._session.read() if self._session else self._state
        return {name: state[field] for name, field in self._fields.items()}

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The node's outputs. Of carried inputs what was written last counts; carried outputs are nothing but arrays."""
        node, checked = self._node, self._node.convert(values)
        if self._session is None:
            self._session = StatefulSession(node.operator, node.settings, self._state)
        others = {field: array for field, array in checked.items() if field not in self._state}
        results = zip((name for name in node.outputs if name not in self.carried), self._session.run(
            node.operator, node.settings, others))
        return {**dict(results), **{output: values[name] for output, name in self.carried.items()}}


class SessionStream(OfOneProcess, Closing):
    """Runs of a session that hand values on from each to the next. Made by InferenceSession.stream. For one thread.

    carried, output_names: arguments of InferenceSession.stream.
    """

    def __init__(self, session: Any, provider: Any, carried: Mapping[str, str],
                 output_names: Sequence[str] | None) -> None:
        inputs, outputs = ({arg.name: arg for arg in args} for args in (session.get_inputs(), session.get_outputs()))
        if not isinstance(carried, Mapping):
            raise InvalidArgumentError("stream", "carried", type(carried).__name__, "a dictionary of inputs by output")
        _expect_names("carried", carried, outputs)
        _expect_names("carried", list(carried.values()), inputs)
        _expect_names("output_names", [] if output_names is None else output_names, outputs)
        for output, name in carried.items():
            taken, made = inputs[name], outputs[output]
            wrong = [("another type", taken.type == made.type and re.fullmatch(r"tensor\((?!string).*\)", taken.type)),
                     ("another shape", _agree(made.shape, taken.shape)),
                     ("the input of another output", list(carried.values()).count(name) == 1)]
            for what, is_right in wrong:
                if not is_right:
                    found = f"{made.type} {made.shape} for {name}, which is {what}"
                    raise InvalidArgumentError("stream", f"carried: {output}", found, "an input of its own, a tensor of "
                                               "numbers of that type and shape")
        self._session = object.__new__(type(session))  # shares the parts, but is not closed with the other
        self._session.__dict__.update(session.__dict__)
        self._inputs = {name: inputs[name] for name in carried.values()}
        self._output_names = [*(output_names or [name for name in outputs if name not in carried])]
        is_parallel = session.get_session_options().execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
        self._nodes = {} if provider is None or is_parallel else self._on_device(provider, carried, list(outputs))
        kept = {output for node in self._nodes.values() for output in node.carried}
        self._carried = {output: name for output, name in carried.items() if output not in kept}
        self._write({name: np.zeros([size if isinstance(size, int) else 1 for size in arg.shape], self._dtype(name))
                     for name, arg in self._inputs.items()})

    def _on_device(self, provider: Any, carried: Mapping[str, str], outputs: Sequence[str]
                   ) -> dict[Any, StatefulNode]:
        """The nodes that keep their state on the device: where an output is a recurrent node's last state, an input is its
        initial state, and no other node uses either.
        """
        found = {}
        for run in provider.runs:
            used = Counter(name for part in run.parts for name in part.inputs)
            private = {output: name for output, name in carried.items() if output not in (*self._output_names, *used)
                       and output in run.outputs and name in run.fed and provider.users[name] == used[name] == 1
                       and not provider.users[output] and name not in outputs}
            found.update({node: StatefulNode(node, kept) for node in run.recurrent if (kept := node.kept(private))})
        return found

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = self._inputs[name].type[len("tensor("):-1]
        return np.dtype(_DTYPES.get(kind, kind))

    def step(self, input_feed: Mapping[str, Any]) -> list[Any]:
        """Run the model once more.

        input_feed: an array for each input that is not carried, by name. Returns the outputs that are not carried, or those
        that were asked for. Raises what InferenceSession.run raises. After an error of a wrong argument the state is as it was,
        after another error it is unknown: `reset`, or set `state`.
        """
        for name in self._inputs.keys() & input_feed:
            raise InvalidArgumentError("stream", "input_feed", name, "inputs that are not carried")
        streaming.steps = self._nodes
        try:
            results = self._session.run([*self._output_names, *self._carried], {**input_feed, **self._state})
        finally:
            streaming.steps = None
        handed_on = map(np.array, results[len(self._output_names):])  # copies: the caller may have the same arrays
        self._state.update(zip(self._carried.values(), handed_on))
        return results[:len(self._output_names)]

    def reset(self) -> None:
        """Begin again with zeros, in the shapes of the state."""
        self._write({name: np.zeros_like(array) for name, array in self._state.items()})

    @property
    def state(self) -> dict[str, np.ndarray]:
        """What the next step begins with, by input. May be set, to arrays of the types and sizes that the model declares;
        sizes that it does not declare, such as the batch, are 1 at first. InvalidArgumentError for others.
        """
        on_device = {name: array for node in self._nodes.values() for name, array in node.read().items()}
        return {name: array.copy() for name, array in (self._state | on_device).items()}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping) or set(state) != set(self._state):
            found = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise InvalidArgumentError("stream", "state", found, "a dictionary with " + " and ".join(self._state))
        arrays = {name: np.array(value) for name, value in state.items()}
        for name, array in arrays.items():
            if array.dtype != self._dtype(name) or not _agree(self._inputs[name].shape, array.shape):
                raise InvalidArgumentError("stream", f"state: {name}", f"{array.dtype} {array.shape}",
                                           f"{self._dtype(name)} {self._inputs[name].shape}")
        self._write(arrays)

    def _write(self, state: Mapping[str, np.ndarray]) -> None:
        """Set the state. For what is held on the device, `_state` only has the types and shapes."""
        self._state = dict(state)
        for node in self._nodes.values():
            node.write(state)


def _agree(shape: Sequence[int | str | None], other: Sequence[int | str | None]) -> bool:
    """Whether two declared shapes could be one. [] is that of a scalar, and of what has no shape."""
    return not shape or not other or (len(shape) == len(other) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, other)))


def _expect_names(argument: str, names: Any, allowed: Mapping[str, object]) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence | Mapping):
        raise InvalidArgumentError("stream", argument, shown(names), "names")
    for name in names:
        if not isinstance(name, str) or name not in allowed:
            raise InvalidArgumentError("stream", argument, shown(name), "one of " + ", ".join(allowed))
