"""A model that is run again and again, some of its outputs being inputs of the next run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ...engine.vulkan.system import Closing, OfOneProcess
from ...errors import InvalidArgumentError, shown
from ...operators.arguments import frozen

# numpy's names of the types that onnxruntime calls otherwise
_DTYPES: dict[str, Any] = {"float": np.float32, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}


class SessionStream(OfOneProcess, Closing):
    """Runs of a session that hand values on from each to the next. Made by InferenceSession.stream. For one thread.

    carried, output_names: arguments of InferenceSession.stream.
    """

    def __init__(self, session: Any, carried: Mapping[str, str], output_names: Sequence[str] | None) -> None:
        inputs, outputs = ({arg.name: arg for arg in args} for args in (session.get_inputs(), session.get_outputs()))
        if not isinstance(carried, Mapping) or not carried:
            raise InvalidArgumentError("stream", "carried", shown(carried), "a dictionary of at least one input by output")
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
        self._carried = dict(carried)
        self._state = {name: np.zeros([size if isinstance(size, int) else 1 for size in arg.shape], self._dtype(name))
                       for name, arg in self._inputs.items()}

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = self._inputs[name].type[len("tensor("):-1]
        return np.dtype(_DTYPES.get(kind, kind))

    def step(self, input_feed: Mapping[str, Any]) -> list[Any]:
        """Run the model once more.

        input_feed: an array for each input that is not carried, by name. Returns the outputs that are not carried, or those
        that were asked for. Raises what InferenceSession.run raises. An error leaves the state as it was.
        """
        if not isinstance(input_feed, Mapping):
            raise InvalidArgumentError("stream", "input_feed", type(input_feed).__name__, "a dictionary of arrays by input")
        for name in self._inputs.keys() & input_feed:
            raise InvalidArgumentError("stream", "input_feed", name, "inputs that are not carried")
        results = self._session.run([*self._output_names, *self._carried], {**input_feed, **self._state})
        handed_on = map(np.array, results[len(self._output_names):])  # copies: the caller may have the same arrays
        self._state.update(zip(self._carried.values(), handed_on))
        return results[:len(self._output_names)]

    def reset(self) -> None:
        """Begin again with zeros, in the shapes of the state."""
        self._state = {name: np.zeros_like(array) for name, array in self._state.items()}

    @property
    def state(self) -> Mapping[str, np.ndarray]:
        """What the next step begins with, by input, in read-only copies. To change it, set a whole dictionary of arrays. Their
        types and sizes must be those that the model declares, or InvalidArgumentError is raised. Sizes that it leaves open,
        such as the batch, are 1 at first.
        """
        return frozen(self._state)

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
        self._state = arrays


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
