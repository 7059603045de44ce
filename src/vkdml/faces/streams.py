"""A sequence that comes in pieces: the state stays on the device from one piece to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.vulkan.system import OfOneProcess
from ..errors import InvalidArgumentError, shown
from ..operators.arguments import convert_to
from ..operators.cells import STATES
from ..operators.element_types import ElementType
from .sessions import Arrays, Settings, StatefulSession


class Stream(OfOneProcess):
    """Sequences of a layer that go on from call to call. Made by the layer's `stream`.

    A step computes the same as one call of the layer with all steps so far. 16-bit types are rounded once more, as the state
    between two calls is of the layer's type. Streams of a layer do not know of each other; a stream is for one thread.
    """

    def __init__(self, settings: Settings, element: ElementType, weights: Arrays, batch: int) -> None:
        cell = settings.cell
        self._name = f"{cell.name}.stream"
        if settings.attributes["direction"] != "forward":
            raise InvalidArgumentError(self._name, "direction", settings.attributes["direction"],
                                       "forward: others need the end of the sequence first")
        if not isinstance(batch, int | np.integer) or batch < 1:
            raise InvalidArgumentError(self._name, "batch", shown(batch), "a whole number from 1")
        self._weights = weights
        self._settings = settings
        self._batch_axis = 0 if settings.attributes["layout"] else 1
        states = [field for output, field in STATES.items() if output in cell.outputs]
        self._zeros = settings.zeros(weights, 1, int(batch), states)
        self._session = StatefulSession(self._name, settings, element, self._zeros)
        # What every single step needs is looked up once, as a step is short
        x = settings.zeros(weights, 1, int(batch), ["InputTensor"])["InputTensor"]
        self._step_shape, self._dtype = (x.shape[self._batch_axis], x.shape[2]), x.dtype
        self._example = {**weights, "InputTensor": x}
        self._prepare()
        hidden = self._zeros["HiddenInitTensor"].shape[-1]
        self._results = {"OutputSequenceTensor": ((int(batch), hidden), x.dtype)}

    def _prepare(self) -> None:
        self._execution = self._session.prepare(self._name, self._example).execution

    def step(self, x: np.ndarray) -> np.ndarray:
        """Go on by one step, or by several.

        Args:
            x: [B, I], or [T, B, I] for several steps ([B, T, I] for a layer with layout 1), of the layer's type or one that
                converts to it exactly.

        Returns:
            h after each step: [B, H], or [T, B, H] ([B, T, H]).

        Raises:
            InvalidArgumentError: an array of another type or shape.
            DriverError: the driver failed.

        After an error the state is as before, but where it is about a result out of the range of float64. Where the device is
        lost, so is the state: steps raise DeviceLostError until it is reset or set.
        """
        if self._execution.gpu.driver.lost:
            self._prepare()
        if (type(x) is np.ndarray and x.shape == self._step_shape and x.dtype == self._dtype and x.flags.c_contiguous
                and not self._session.element.pairs):
            self._session.enter()
            return self._execution.run({"InputTensor": x}, self._results)["OutputSequenceTensor"]
        return self._any_steps(x)

    def _any_steps(self, x: Any) -> np.ndarray:
        arrays = convert_to(self._name, self._settings.cell, self._dtype, "WeightTensor", {"InputTensor": x})
        array = arrays["InputTensor"]
        if array is None:
            raise InvalidArgumentError(self._name, "X", "None", "an array")
        single = array.ndim == 2
        steps = np.expand_dims(array, 1 - self._batch_axis) if single else array
        fits = steps.ndim == 3 and (steps.shape[self._batch_axis], steps.shape[2]) == self._step_shape and 0 not in steps.shape
        if not fits:
            batch, size = self._step_shape
            several = f"[{batch}, T, {size}]" if self._batch_axis == 0 else f"[T, {batch}, {size}]"
            raise InvalidArgumentError(self._name, "X", f"the shape {array.shape}", f"[{batch}, {size}] or {several}")
        y, = self._session.run(self._name, {**self._weights, "InputTensor": steps})
        y = y.squeeze(2 if self._batch_axis == 0 else 1)  # the direction
        return y.squeeze(1 - self._batch_axis) if single else y

    def reset(self) -> None:
        """Begin again with states of 0."""
        self._session.write(self._name, self._zeros)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The state after the last step, by the names of the layer's arguments: initial_h and, of an LSTM, initial_c.

        layer(x, **stream.state) goes on from here, and so does a stream of the same layer whose state is set to it. May be set,
        to arrays of the same shapes: [1, B, H], or [B, 1, H] for layout 1. InvalidArgumentError for others.
        """
        return {self._settings.cell.arguments[field]: array for field, array in self._session.read().items()}

    @state.setter
    def state(self, state: Mapping[str, np.ndarray]) -> None:
        fields = {self._settings.cell.arguments[field]: field for field in self._zeros}
        if not isinstance(state, Mapping) or set(state) != set(fields):
            found = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise InvalidArgumentError(self._name, "state", found, "a dictionary with " + " and ".join(fields))
        arrays = convert_to(self._name, self._settings.cell, self._dtype, "WeightTensor",
                            {field: state[argument] for argument, field in fields.items()})
        for field, array in arrays.items():
            if array is None or array.shape != self._zeros[field].shape:
                found = "None" if array is None else f"the shape {array.shape}"
                raise InvalidArgumentError(self._name, self._settings.cell.arguments[field], found,
                                           str(self._zeros[field].shape))
        self._session.write(self._name, {field: array for field, array in arrays.items() if array is not None})
