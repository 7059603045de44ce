"""A model that is run again and again, some of its outputs being inputs of the next run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...engine.vulkan.system import Closing, OfOneProcess
from ...errors import InvalidArgumentError
from .feeds import Inputs, NodeArg, expect_names, own
from .programs import Program


def _agree(shape: Sequence[int | str | None], other: Sequence[int | str | None]) -> bool:
    """Whether two declared shapes could be one. [] is that of a scalar, and of what has no shape."""
    return not shape or not other or (len(shape) == len(other) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, other)))


class SessionStream(OfOneProcess, Closing):
    """Runs of a session that hand values on from each to the next. Made by InferenceSession.stream. For one thread.

    program, inputs, outputs: the session's. carried, output_names: arguments of InferenceSession.stream.
    """

    def __init__(self, program: Program, carried: Mapping[str, str], output_names: Sequence[str] | None, inputs: Inputs,
                 outputs: Sequence[NodeArg]) -> None:
        if not isinstance(carried, Mapping):
            raise InvalidArgumentError("stream", "carried", type(carried).__name__, "a dictionary of inputs by output")
        expect_names("carried", carried, program.outputs)
        expect_names("carried", list(carried.values()), program.inputs)
        asked = expect_names("output_names", output_names, program.outputs)
        taken, made = ({arg.name: arg.type for arg in args} for args in (inputs.args, outputs))
        shapes = {arg.name: arg.shape for arg in (*inputs.args, *outputs)}
        for output, name in carried.items():
            if taken[name] != made[output] or not re.fullmatch(r"tensor\((?!string).*\)", taken[name]):
                raise InvalidArgumentError("stream", f"carried: {output}", f"{made[output]} for {name}, {taken[name]}",
                                           "an input of the same type, a tensor of numbers")
            if not _agree(shapes[output], shapes[name]):
                raise InvalidArgumentError("stream", f"carried: {output}", f"the shape {shapes[output]}",
                                           f"{shapes[name]}, that of {name}")
            if list(carried.values()).count(name) > 1:
                raise InvalidArgumentError("stream", f"carried: {output}", f"{name}, as for another output",
                                           "an input for each output")
        self._carried = dict(carried)
        self._output_names = asked or [name for name in program.outputs if name not in carried]
        self._inputs = inputs
        self._program, self._steps = program.streaming(self._carried, self._output_names)
        self._write({name: inputs.zeros(name) for name in self._carried.values()})

    def step(self, input_feed: Mapping[str, Any]) -> list[Any]:
        """Run the model once more.

        input_feed: an array for each input that is not carried, by name. Returns the outputs that are not carried, or those
        that were asked for. Raises what InferenceSession.run raises. After an error of a wrong argument the state is as it was,
        after another error it is unknown: `reset`, or set `state`.
        """
        fed = self._inputs.feed(input_feed, self._state)
        results = dict(zip(self._program.outputs, self._program.run(fed, None)))
        self._state.update({name: np.array(results[output]) for output, name in self._carried.items() if output in results})
        return [own(results[name], fed) for name in self._output_names]

    def reset(self) -> None:
        """Begin again with zeros, in the shapes of the state."""
        self._write({name: np.zeros_like(array) for name, array in self._state.items()})

    @property
    def state(self) -> dict[str, np.ndarray]:
        """What the next step begins with, by input. May be set, to arrays of the types and sizes that the model declares;
        sizes that it does not declare, such as the batch, are 1 at first. InvalidArgumentError for others.
        """
        on_device = {name: array for step in self._steps for name, array in step.read().items()}
        return {name: array.copy() for name, array in (self._state | on_device).items()}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping) or set(state) != set(self._state):
            found = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise InvalidArgumentError("stream", "state", found, "a dictionary with " + " and ".join(self._state))
        self._write({name: np.array(self._inputs.check(name, array)) for name, array in state.items()})

    def _write(self, state: Mapping[str, np.ndarray]) -> None:
        """Set the state. For what is held on the device, `_state` is only a template of types and shapes."""
        self._state = dict(state)
        for step in self._steps:
            step.write(state)
