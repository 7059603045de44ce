"""The layers GRU, LSTM and RNN hold weights, which they check, copy and pack once. A Stream runs a layer on a sequence that
comes in pieces: it keeps the state from one piece to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar

import numpy as np

from ..engine.vulkan.system import Closing, OfOneProcess
from ..engine.weights import constant
from ..errors import InvalidArgumentError, shown
from ..operators import cells
from ..operators.arguments import Activations, Direction, convert_to, frozen, typed_array
from ..operators.cells import STATES, Cell
from ..planning.options import Options
from .directml.device import Device
from .sessions import Arrays, Session, Settings, shapes_to_warm_up


class RecurrentLayer:
    """Base of GRU, LSTM and RNN."""

    _cell: ClassVar[Cell]

    def _set(self, weights: Mapping[str, Any], device: Device | int | str | None, options: Options, **attributes: Any) -> None:
        """Copy and check the weights, by DirectML's field, and the attributes, by ONNX's name."""
        name, cell = self._cell.name, self._cell
        w, _ = typed_array(name, cell, "WeightTensor", weights["WeightTensor"])
        converted = convert_to(name, cell, w.dtype.newbyteorder("="), "WeightTensor", {**weights, "WeightTensor": w})
        self._weights = {field: None if array is None else constant(array) for field, array in converted.items()}
        self._settings = Settings(name, cell, attributes, [True] * len(cell.outputs), device, options)
        self._session = Session(weights={field: array for field, array in self._weights.items() if array is not None})
        self._settings.problem(name, self._weights | self._settings.zeros(self._weights, 1, 1, ["InputTensor"]))  # checks them

    def __repr__(self) -> str:
        w, r, *_ = (array for array in self._weights.values() if array is not None)
        return f"<{type(self).__name__}: I {w.shape[2]}, H {r.shape[2]}, {w.dtype}, {self._settings}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle needs to make the layer again in another process: attributes, weights and settings."""
        settings = self._settings
        return {**self.__dict__, "_session": None, "_settings": (settings.given_device, settings.options, settings.attributes)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        device, options, attributes = state["_settings"]
        self._set(state["_weights"], device, options, **attributes)
        self.__dict__.update({name: value for name, value in state.items() if name not in self.__dict__})

    def __call__(self, x: np.ndarray, initial_h: np.ndarray | None = None, sequence_lens: np.ndarray | None = None
                 ) -> tuple[np.ndarray, np.ndarray]:
        """Run the layer on x [T, B, I]. T and B may differ from call to call. The weights are not compared again.

        Arguments, results and errors are those of the function: `vkdml.gru` or `vkdml.rnn`.
        """
        y, y_h = self._run(InputTensor=x, HiddenInitTensor=initial_h, SequenceLengthsTensor=sequence_lens)
        return y, y_h

    def _run(self, **arrays: Any) -> list[np.ndarray]:
        """Run the operator. arrays: by field, all but the weights."""
        name, w = self._cell.name, self._weights["WeightTensor"]
        assert w is not None
        return self._session.run(name, self._settings, convert_to(name, self._cell, w.dtype, "WeightTensor", arrays))

    def warm_up(self, T: int | Iterable[int] | None = None, B: int | Iterable[int] = 1, *, initial_states: bool = False,
                sequence_lens: bool = False) -> None:
        """Pack the weights and compile all kernels for these lengths and batches, so that calls compile nothing.

        It prepares each length with each batch, in a few milliseconds if nothing must be compiled, else with a run on zeros.
        Lengths and batches of about the same size share kernels, so a few of them are enough for a range.

        Args:
            T: time steps: a number, or several, such as range(10, 200, 10).
            B: batch rows: likewise.
            initial_states, sequence_lens: whether your calls will give them.

        Raises:
            InvalidArgumentError: no T, no whole number from 1, or a size that the device cannot hold.
            DriverError: the driver failed.
        """
        fields = ["InputTensor", *["SequenceLengthsTensor"] * sequence_lens]
        fields += [field for field in STATES.values() if initial_states and field in self._cell.inputs]
        for t, b in shapes_to_warm_up(self._cell.name, T, B):
            self._session.prepare(self._cell.name, self._settings, self._settings.zeros(self._weights, t, b, fields))

    def stream(self, batch: int = 1) -> Stream:
        """Make a stream, which runs the layer on a few time steps at a time, and keeps the states in between.

        batch: the number of sequences that it runs side by side. This compiles what single steps need.

        Raises InvalidArgumentError for a direction other than forward, DriverError when the driver fails.
        """
        return Stream(self._session, self._settings, self._weights, batch)


class GRU(RecurrentLayer):
    """A gated recurrent unit (ONNX GRU-22, DML_OPERATOR_GRU) with its weights, on a Vulkan device.

    Args:
        w, r, b: weights, as those of `vkdml.gru`: [D, 3H, I], [D, 3H, H] and [D, 6H]; gates z r h. They are copied. The type of
            w is the layer's: float32, float16, bfloat16 or float64. Other arrays, those of calls too, are of this type or of
            one that converts to it exactly.
        direction, activations, activation_alpha, activation_beta, clip, linear_before_reset, layout: as for `vkdml.gru`.
        device: a Device, or what Device() takes. The default device is opened at the first call, so a process may fork before.
        options: the parts of the schedule that you want to force.

    Raises:
        InvalidArgumentError: an argument is wrong; the message names it, what was found and what is allowed.
        DriverError: no device.
    """

    _cell = cells.GRU

    def __init__(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, direction: Direction = "forward",
                 activations: Activations | None = None, activation_alpha: Sequence[float] | None = None,
                 activation_beta: Sequence[float] | None = None, clip: float | None = None, linear_before_reset: bool = False,
                 layout: int = 0, device: Device | int | str | None = None, options: Options = Options()) -> None:
        self._set({"WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b}, device, options, direction=direction,
                  activations=activations, activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip,
                  layout=layout, linear_before_reset=linear_before_reset)


class LSTM(RecurrentLayer):
    """A long short-term memory (ONNX LSTM-22, DML_OPERATOR_LSTM) with its weights, on a Vulkan device.

    Args:
        w, r, b, p: weights, as those of `vkdml.lstm`: [D, 4H, I], [D, 4H, H], [D, 8H] and [D, 3H]; gates i o f c. They are
            copied. The type of w is the layer's, as for GRU.
        direction, activations, activation_alpha, activation_beta, clip, input_forget, layout: as for `vkdml.lstm`.
        device, options: as for GRU.

    Raises what GRU raises.
    """

    _cell = cells.LSTM

    def __init__(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, p: np.ndarray | None = None, *,
                 direction: Direction = "forward", activations: Activations | None = None,
                 activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
                 clip: float | None = None, input_forget: bool = False, layout: int = 0,
                 device: Device | int | str | None = None, options: Options = Options()) -> None:
        self._set({"WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "PeepholeTensor": p}, device, options,
                  direction=direction, activations=activations, activation_alpha=activation_alpha,
                  activation_beta=activation_beta, clip=clip, input_forget=input_forget, layout=layout)

    def __call__(self, x: np.ndarray, initial_h: np.ndarray | None = None, initial_c: np.ndarray | None = None,  # type: ignore[override]
                 sequence_lens: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run the layer on x [T, B, I]. T and B may differ from call to call. The weights are not compared again.

        Arguments, results and errors are those of `vkdml.lstm`.
        """
        y, y_h, y_c = self._run(InputTensor=x, HiddenInitTensor=initial_h, CellMemInitTensor=initial_c,
                                SequenceLengthsTensor=sequence_lens)
        return y, y_h, y_c


class RNN(RecurrentLayer):
    """A simple recurrent network (ONNX RNN-22, DML_OPERATOR_RNN) with its weights, on a Vulkan device.

    Its arguments are those of GRU, with one gate: w [D, H, I], r [D, H, H], b [D, 2H]; the others are as for `vkdml.rnn`.
    """

    _cell = cells.RNN

    def __init__(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, direction: Direction = "forward",
                 activations: Activations | None = None, activation_alpha: Sequence[float] | None = None,
                 activation_beta: Sequence[float] | None = None, clip: float | None = None, layout: int = 0,
                 device: Device | int | str | None = None, options: Options = Options()) -> None:
        self._set({"WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b}, device, options, direction=direction,
                  activations=activations, activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip,
                  layout=layout)


class Stream(OfOneProcess, Closing):
    """Runs a layer on sequences that continue from call to call. A layer's `stream` makes it.

    A step computes the same as one call of the layer with all steps so far. 16-bit types are rounded once more, as the state
    between two calls is of the layer's type. Streams of one layer are independent. Use a stream in one thread only.
    """

    def __init__(self, session: Session, settings: Settings, weights: Arrays, batch: int) -> None:
        cell = settings.cell
        self._name = f"{cell.name}.stream"
        if settings.attributes["direction"] != "forward":
            raise InvalidArgumentError(self._name, "direction", settings.attributes["direction"],
                                       "forward: others need the end of the sequence first")
        if not isinstance(batch, int | np.integer) or batch < 1:
            raise InvalidArgumentError(self._name, "batch", shown(batch), "a whole number from 1")
        self._session, self._settings = session, settings
        # The last h of one step is its y, so that no step copies both from the device
        wanted = [output != "OutputSingleTensor" for output in cell.outputs]
        self._of_one_step = Settings(cell.name, cell, settings.attributes, wanted, settings.given_device, settings.options)
        self._batch_axis = 0 if settings.attributes["layout"] else 1
        self._zeros = settings.zeros(weights, 1, int(batch), [STATES[output] for output in cell.outputs if output in STATES])
        self._state = self._zeros
        # A step is short, so all that it needs is looked up once, here
        x = settings.zeros(weights, 1, int(batch), ["InputTensor"])["InputTensor"]
        self._step_shape, self._dtype = (x.shape[self._batch_axis], x.shape[2]), x.dtype
        self._example = {**self._zeros, "InputTensor": x}
        self._prepare()

    def _prepare(self) -> None:
        call = self._session.prepare(self._name, self._of_one_step, self._example)
        y_shape = self._step_shape[0], self._zeros["HiddenInitTensor"].shape[-1]
        self._execution, self._results = call.execution, {**call.results, "OutputSequenceTensor": (y_shape, self._dtype)}

    def step(self, x: np.ndarray) -> np.ndarray:
        """Run one time step, or several, from the current state.

        Args:
            x: [B, I], or [T, B, I] for several steps ([B, T, I] for a layer with layout 1), of the layer's type or one that
                converts to it exactly.

        Returns:
            h after each step: [B, H], or [T, B, H] ([B, T, H]).

        Raises:
            InvalidArgumentError: an array of another type or shape.
            DriverError: the driver failed.

        An error leaves the state as it was.
        """
        if self._execution.gpu.driver.lost:
            self._prepare()
        if (type(x) is np.ndarray and x.shape == self._step_shape and x.dtype == self._dtype and x.flags.c_contiguous
                and self._dtype != np.float64):
            return self._keep(self._execution.run({"InputTensor": x, **self._state}, self._results))
        return self._any_steps(x)

    def _any_steps(self, x: Any) -> np.ndarray:
        array = convert_to(self._name, self._settings.cell, self._dtype, "WeightTensor", {"InputTensor": x})["InputTensor"]
        assert array is not None  # convert_to refuses it
        single = array.ndim == 2
        steps = np.expand_dims(array, 1 - self._batch_axis) if single else array
        if steps.ndim != 3 or (steps.shape[self._batch_axis], steps.shape[2]) != self._step_shape or 0 in steps.shape:
            batch, size = self._step_shape
            several = f"[{batch}, T, {size}]" if self._batch_axis == 0 else f"[T, {batch}, {size}]"
            raise InvalidArgumentError(self._name, "X", f"the shape {array.shape}", f"[{batch}, {size}] or {several}")
        settings = self._of_one_step if steps.shape[1 - self._batch_axis] == 1 else self._settings
        results = self._session.run(self._name, settings, {**self._state, "InputTensor": steps})
        y = self._keep(dict(zip(compress(settings.cell.outputs, settings.wanted), results)))
        y = y.squeeze(2 - self._batch_axis)  # the direction
        return y.squeeze(1 - self._batch_axis) if single else y

    def _keep(self, results: dict[str, np.ndarray]) -> np.ndarray:
        """Keep the last states. Returns y."""
        y = results.pop("OutputSequenceTensor")
        state = {STATES[output]: array for output, array in results.items()} if results else {}
        if "HiddenInitTensor" not in state:
            state["HiddenInitTensor"] = y.reshape(self._zeros["HiddenInitTensor"].shape).copy()
        self._state = state
        return y

    def reset(self) -> None:
        """Set all states to 0, for new sequences."""
        self._state = self._zeros

    @property
    def state(self) -> Mapping[str, np.ndarray]:
        """The state after the last step, by the names of the layer's arguments: initial_h and, for an LSTM, initial_c. They are
        copies, which are read-only.

        `layer(x, **stream.state)` goes on from here, and so does a stream of the same layer whose state you set to it. You may
        set a dictionary of arrays of the same shapes: [1, B, H], or [B, 1, H] for layout 1. Others raise InvalidArgumentError.
        """
        return frozen({self._settings.cell.arguments[field]: array for field, array in self._state.items()})

    @state.setter
    def state(self, state: Mapping[str, np.ndarray]) -> None:
        cell = self._settings.cell
        fields = {cell.arguments[field]: field for field in self._zeros}
        if not isinstance(state, Mapping) or set(state) != set(fields):
            found = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise InvalidArgumentError(self._name, "state", found, "a dictionary with " + " and ".join(fields))
        arrays = convert_to(self._name, cell, self._dtype, "WeightTensor",
                            {field: state[argument] for argument, field in fields.items()})
        for field, array in arrays.items():
            if array is None or array.shape != self._zeros[field].shape:
                found = "None" if array is None else f"the shape {array.shape}"
                raise InvalidArgumentError(self._name, cell.arguments[field], found, str(self._zeros[field].shape))
        self._state = {field: array.copy() for field, array in arrays.items() if array is not None}
