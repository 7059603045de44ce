"""The operators as objects that hold their weights, which are checked, copied and packed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..engine.weights import constant
from ..operators import cells
from ..operators.arguments import Activations, convert_to, typed_array
from ..operators.cells import STATES, Cell
from ..planning.options import Options
from .directml.device import Device
from .sessions import Session, Settings, shapes_to_warm_up
from .streams import Stream


class Layer:
    """Base of GRU, LSTM and RNN."""

    _cell: ClassVar[Cell]

    def __init__(self, weights: Mapping[str, Any], attributes: Mapping[str, Any], device: Device | int | str | None,
                 options: Options) -> None:
        name, cell = self._cell.name, self._cell
        w, element = typed_array(name, cell, "WeightTensor", weights["WeightTensor"])
        converted = convert_to(name, cell, w.dtype.newbyteorder("="), "WeightTensor", {**weights, "WeightTensor": w})
        self._weights = {field: None if array is None else constant(array) for field, array in converted.items()}
        settings = Settings(name, cell, attributes, [True] * len(cell.outputs), device, options)
        settings.problem(name, self._weights | settings.zeros(self._weights, 1, 1, ["InputTensor"]), element)  # checks them
        self._session = Session(settings, element)

    def __getstate__(self) -> dict[str, Any]:
        """The state from which another process makes the layer again."""
        settings = self._session.settings
        return {**self.__dict__, "_session": (settings.attributes, settings.given_device, settings.options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Layer.__init__(self, state["_weights"], *state["_session"])
        self.__dict__.update({name: value for name, value in state.items() if name not in self.__dict__})

    def _run(self, **arrays: Any) -> list[np.ndarray]:
        """Call the operator. arrays: by field, all that are no weights."""
        name, w = self._cell.name, self._weights["WeightTensor"]
        assert w is not None
        return self._session.run(name, self._weights | convert_to(name, self._cell, w.dtype, "WeightTensor", arrays))

    def warm_up(self, T: int | Iterable[int], B: int | Iterable[int] = 1, *, initial_states: bool = False,
                sequence_lens: bool = False) -> None:
        """Pack the weights and compile all that calls with these lengths and batches need: they compile nothing then.

        Each length is prepared with each batch size, in a few milliseconds where nothing is to be compiled. Lengths of
        about the same size share what is compiled, so a few of them are enough for a range.

        Args:
            T: time steps: a number, or several, such as range(10, 200, 10).
            B: batch rows: likewise.
            initial_states, sequence_lens: whether the calls will give them.

        Raises:
            InvalidArgumentError: no whole number from 1, or a size that the device cannot hold.
            DriverError: the driver failed.
        """
        fields = ["InputTensor", *["SequenceLengthsTensor"] * sequence_lens]
        fields += [field for field in STATES.values() if initial_states and field in self._cell.inputs]
        for t, b in shapes_to_warm_up(self._cell.name, T, B):
            zeros = self._session.settings.zeros(self._weights, t, b, fields)
            self._session.prepare(self._cell.name, {**self._weights, **zeros})

    def stream(self, batch: int = 1) -> Stream:
        """A sequence that comes in pieces: one or several time steps at a call, the states kept on the device in between.

        batch: rows, of as many sequences. It compiles what its steps need.

        Raises InvalidArgumentError for a direction other than forward, DriverError when the driver fails.
        """
        return Stream(self._session.settings, self._session.element, self._weights, batch)


class GRU(Layer):
    """A gated recurrent unit (ONNX GRU-22, DML_OPERATOR_GRU) with its weights, on a Vulkan device.

    Args:
        w, r, b: weights, as those of `vkdml.gru`: [D, 3H, I], [D, 3H, H] and [D, 6H]; gates z r h. They are copied. The type of
            w is the layer's: float32, float16, bfloat16 or float64. Other arrays, those of calls too, are of this type or of
            one that converts to it exactly.
        direction, activations, activation_alpha, activation_beta, clip, linear_before_reset, layout: as `vkdml.gru` has them.
        device: a Device, or what Device() takes.
        options: what to force in the schedule.

    Raises:
        InvalidArgumentError: an argument is wrong; the message names it, what was found and what is allowed.
        DriverError: no device.
    """

    _cell = cells.GRU

    def __init__(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, direction: str = "forward",
                 activations: Activations | None = None, activation_alpha: Sequence[float] | None = None,
                 activation_beta: Sequence[float] | None = None, clip: float | None = None, linear_before_reset: bool = False,
                 layout: int = 0, device: Device | int | str | None = None, options: Options = Options()) -> None:
        attributes = {"direction": direction, "activations": activations, "activation_alpha": activation_alpha,
                      "activation_beta": activation_beta, "clip": clip, "linear_before_reset": linear_before_reset,
                      "layout": layout}
        super().__init__({"WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b}, attributes, device, options)

    def __call__(self, x: np.ndarray, initial_h: np.ndarray | None = None, sequence_lens: np.ndarray | None = None
                 ) -> tuple[np.ndarray, np.ndarray]:
        """Run it on x [T, B, I]. T and B may differ from call to call. The weights are not looked at again.

        Arguments, results and errors are those of `vkdml.gru`.
        """
        y, y_h = self._run(InputTensor=x, HiddenInitTensor=initial_h, SequenceLengthsTensor=sequence_lens)
        return y, y_h


class LSTM(Layer):
    """A long short-term memory (ONNX LSTM-22, DML_OPERATOR_LSTM) with its weights, on a Vulkan device.

    Args:
        w, r, b, p: weights, as those of `vkdml.lstm`: [D, 4H, I], [D, 4H, H], [D, 8H] and [D, 3H]; gates i o f c. They are
            copied. The type of w is the layer's, as GRU has it.
        direction, activations, activation_alpha, activation_beta, clip, input_forget, layout: as `vkdml.lstm` has them.
        device, options: as GRU has them.

    Raises what GRU raises.
    """

    _cell = cells.LSTM

    def __init__(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, p: np.ndarray | None = None, *,
                 direction: str = "forward", activations: Activations | None = None,
                 activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
                 clip: float | None = None, input_forget: bool = False, layout: int = 0,
                 device: Device | int | str | None = None, options: Options = Options()) -> None:
        attributes = {"direction": direction, "activations": activations, "activation_alpha": activation_alpha,
                      "activation_beta": activation_beta, "clip": clip, "input_forget": input_forget, "layout": layout}
        super().__init__({"WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "PeepholeTensor": p}, attributes, device,
                         options)

    def __call__(self, x: np.ndarray, initial_h: np.ndarray | None = None, initial_c: np.ndarray | None = None,
                 sequence_lens: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run it on x [T, B, I]. T and B may differ from call to call. The weights are not looked at again.

        Arguments, results and errors are those of `vkdml.lstm`.
        """
        y, y_h, y_c = self._run(InputTensor=x, HiddenInitTensor=initial_h, CellMemInitTensor=initial_c,
                                SequenceLengthsTensor=sequence_lens)
        return y, y_h, y_c


class RNN(Layer):
    """A simple recurrent network (ONNX RNN-22, DML_OPERATOR_RNN) with its weights, on a Vulkan device.

    As GRU, with one gate: w [D, H, I], r [D, H, H], b [D, 2H]; the other arguments are those of `vkdml.rnn`.
    """

    _cell = cells.RNN

    def __init__(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, direction: str = "forward",
                 activations: Activations | None = None, activation_alpha: Sequence[float] | None = None,
                 activation_beta: Sequence[float] | None = None, clip: float | None = None, layout: int = 0,
                 device: Device | int | str | None = None, options: Options = Options()) -> None:
        attributes = {"direction": direction, "activations": activations, "activation_alpha": activation_alpha,
                      "activation_beta": activation_beta, "clip": clip, "layout": layout}
        super().__init__({"WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b}, attributes, device, options)

    def __call__(self, x: np.ndarray, initial_h: np.ndarray | None = None, sequence_lens: np.ndarray | None = None
                 ) -> tuple[np.ndarray, np.ndarray]:
        """Run it on x [T, B, I]. T and B may differ from call to call. The weights are not looked at again.

        Arguments, results and errors are those of `vkdml.rnn`.
        """
        y, y_h = self._run(InputTensor=x, HiddenInitTensor=initial_h, SequenceLengthsTensor=sequence_lens)
        return y, y_h
