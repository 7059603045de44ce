"""The functions `gru`, `lstm` and `rnn`, which take numpy arrays in ONNX's shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..operators import cells
from ..operators.arguments import Activations, Direction, convert
from ..operators.cells import Cell
from ..planning.options import Options
from .directml.device import Device
from .sessions import Settings, shared_session


def gru(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, initial_h: np.ndarray | None = None,
        sequence_lens: np.ndarray | None = None, direction: Direction = "forward", activations: Activations | None = None,
        activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
        clip: float | None = None, linear_before_reset: bool = False, layout: int = 0, device: Device | int | str | None = None,
        options: Options = Options()) -> tuple[np.ndarray, np.ndarray]:
    """Run a gated recurrent unit (ONNX GRU-22, DML_OPERATOR_GRU) on a Vulkan device.

    Args:
        x: input [T, B, I] (T time steps, B batch rows, I inputs): float32, float16, bfloat16 (of the package ml_dtypes) or
            float64. The other arrays are of its type, or of one that converts to it exactly; a float64 x needs float64 weights.
            16-bit types are computed in float32 and rounded once, at the end; float64 to about 1e-13 (and no closer than
            1e-34), up to 3e38.
        w: input weights [D, 3H, I]; gates z r h. D is 2 for direction "bidirectional", else 1.
        r: recurrent weights [D, 3H, H].
        b: biases Wb and Rb side by side [D, 6H]; 0 if left out.
        initial_h: [D, B, H]; 0 if left out.
        sequence_lens: whole numbers from 0 to T, [B]; T if left out. Past a row's length y is 0.
        direction: "forward", "reverse" or "bidirectional".
        activations: f and g for each direction: ONNX names (any case) or DirectML descriptors. Sigmoid, Tanh if left out.
        activation_alpha, activation_beta: parameters for ONNX names, consumed in order by the activations that take one. Where
            a list ends: alpha 0.01 for LeakyRelu, 0.2 for HardSigmoid, else 1; beta 0 for Affine, 0.5 for HardSigmoid, else 1.
        clip: bound on what goes into an activation, or None.
        linear_before_reset: whether the candidate's recurrent part is computed before the reset gate is applied.
        layout: 1 for batch first: x [B, T, I], initial_h and y_h [B, D, H], y [B, T, D, H].
        device: a Device, or what Device() takes; opened at the first call.
        options: the parts of the schedule that you want to force.

    Returns:
        In x's type: y [T, D, B, H]: h after each step; and y_h [D, B, H]: h after each row's last step, 0 for a
        row of length 0.

    Raises:
        InvalidArgumentError: an argument is wrong; the message names it, what was found and what is allowed.
        DriverError: no device, or the driver failed.
    """
    arrays = {"InputTensor": x, "WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "HiddenInitTensor": initial_h,
              "SequenceLengthsTensor": sequence_lens}
    y, y_h = _run(cells.GRU, arrays, device, options, direction=direction, activations=activations,
                  activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip, layout=layout,
                  linear_before_reset=linear_before_reset)
    return y, y_h


def lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, initial_h: np.ndarray | None = None,
         initial_c: np.ndarray | None = None, p: np.ndarray | None = None, sequence_lens: np.ndarray | None = None,
         direction: Direction = "forward", activations: Activations | None = None,
         activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
         clip: float | None = None, input_forget: bool = False, layout: int = 0, device: Device | int | str | None = None,
         options: Options = Options()) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run a long short-term memory (ONNX LSTM-22, DML_OPERATOR_LSTM) on a Vulkan device.

    Args:
        x, sequence_lens, direction, activation_alpha, activation_beta, layout, device, options: as for `gru`.
        w: input weights [D, 4H, I]; gates i o f c.
        r: recurrent weights [D, 4H, H].
        b: biases Wb and Rb side by side [D, 8H]; 0 if left out.
        initial_h, initial_c: [D, B, H], with layout 1 [B, D, H]; 0 if left out.
        p: peephole weights [D, 3H], gates i o f; none if left out.
        activations: f, g and h for each direction; Sigmoid, Tanh, Tanh if left out.
        clip: bound on what goes into f and g, or None.
        input_forget: whether the forget gate is 1 - the input gate.

    Returns y [T, D, B, H], and y_h and y_c [D, B, H], which is c after each row's last step. Raises what `gru` raises.
    """
    arrays = {"InputTensor": x, "WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "HiddenInitTensor": initial_h,
              "CellMemInitTensor": initial_c, "SequenceLengthsTensor": sequence_lens, "PeepholeTensor": p}
    y, y_h, y_c = _run(cells.LSTM, arrays, device, options, direction=direction, activations=activations,
                       activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip,
                       input_forget=input_forget, layout=layout)
    return y, y_h, y_c


def rnn(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, initial_h: np.ndarray | None = None,
        sequence_lens: np.ndarray | None = None, direction: Direction = "forward", activations: Activations | None = None,
        activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
        clip: float | None = None, layout: int = 0, device: Device | int | str | None = None, options: Options = Options()
        ) -> tuple[np.ndarray, np.ndarray]:
    """Run a simple recurrent network (ONNX RNN-22, DML_OPERATOR_RNN) on a Vulkan device.

    Its arguments are those of `gru`, with one gate: w [D, H, I], r [D, H, H], b [D, 2H]; activations: f for each direction,
    Tanh if left out. Returns y [T, D, B, H], and y_h [D, B, H]. Raises what `gru` raises.
    """
    arrays = {"InputTensor": x, "WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "HiddenInitTensor": initial_h,
              "SequenceLengthsTensor": sequence_lens}
    y, y_h = _run(cells.RNN, arrays, device, options, direction=direction, activations=activations,
                  activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip, layout=layout)
    return y, y_h


def _run(cell: Cell, arrays: Mapping[str, Any], device: Device | int | str | None, options: Options, **attributes: Any
         ) -> list[np.ndarray]:
    """Run a cell, and return all its outputs. arrays: by DirectML's field. attributes: by ONNX's name."""
    name = f"vkdml.{cell.name.lower()}"
    checked, _ = convert(name, cell, arrays)
    return shared_session.run(name, Settings(name, cell, attributes, (True,) * len(cell.outputs), device, options), checked)
