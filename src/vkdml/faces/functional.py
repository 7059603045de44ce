"""The operators on numpy arrays in ONNX's shapes. What was compiled and packed for one call serves the next like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any

import numpy as np

from ..errors import DriverError, InvalidArgumentError
from ..planning.options import Options
from ..runtime.fork import Lock
from ..runtime.network import Network, Node
from ..runtime.operator import Device, Operator, check_lengths
from ..runtime.recent import Recent
from ..runtime.weights import WeightKeeper
from ..spec import cells
from ..spec.arguments import DEFAULT_ATTRIBUTES, Activations, convert, describe
from ..spec.arrays import element_strides, flat
from ..spec.cells import Cell
from ..spec.element_types import ElementType
from ..spec.problem import from_desc
from .float64_range import RangeCheck


def gru(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    *,
    initial_h: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    direction: str = "forward",
    activations: Activations | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    linear_before_reset: bool = False,
    layout: int = 0,
    device: Device | int | str | None = None,
    options: Options = Options(),
) -> tuple[np.ndarray, np.ndarray]:
    """Run a gated recurrent unit (ONNX GRU-22, DML_OPERATOR_GRU) on a Vulkan device.

    Args:
        x: input [T, B, I] (T time steps, B batch rows, I inputs): float32, float16, bfloat16 (of the package ml_dtypes) or
            float64. The other arrays are of its type, or of one that converts to it exactly. 16-bit types are computed in
            float32 and rounded once, at the end; float64 to about 1e-13 (and no closer than 1e-34), up to 3e38.
        w: input weights [D, 3H, I]; gates z r h. D is 2 for direction "bidirectional", else 1.
        r: recurrent weights [D, 3H, H].
        b: biases Wb and Rb side by side [D, 6H]; 0 if left out.
        initial_h: [D, B, H]; 0 if left out.
        sequence_lens: whole numbers from 0 to T, [B]; T if left out. Past a row's length y is 0.
        direction: "forward", "reverse" or "bidirectional".
        activations: f and g for each direction: ONNX names (any case) or DirectML descriptors. Sigmoid, Tanh if left out.
        activation_alpha, activation_beta: for ONNX names, consumed in order by those that take one.
        clip: bound on what goes into an activation, or None.
        linear_before_reset: whether the candidate's recurrent part is computed before the reset gate is applied.
        layout: 1 for batch first: x [B, T, I], initial_h and y_h [B, D, H], y [B, T, D, H].
        device: a Device, or what Device() takes; opened at the first call.
        options: what to force in the schedule.

    Returns:
        In x's type: y [T, D, B, H]: h after each step; and y_h [D, B, H]: h after each row's last step, 0 for a
        row of length 0.

    Raises:
        InvalidArgumentError: an argument is wrong; the message names it, what was found and what is allowed.
        DriverError: no device, or the driver failed.
    """
    arrays = {"InputTensor": x, "WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "HiddenInitTensor": initial_h,
              "SequenceLengthsTensor": sequence_lens}
    attributes = {"direction": direction, "activations": activations, "activation_alpha": activation_alpha,
                  "activation_beta": activation_beta, "clip": clip, "linear_before_reset": linear_before_reset,
                  "layout": layout}
    y, y_h = recurrent("gru", cells.GRU, arrays, attributes, (True, True), device, options)
    return y, y_h


def lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    *,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    direction: str = "forward",
    activations: Activations | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    input_forget: bool = False,
    layout: int = 0,
    device: Device | int | str | None = None,
    options: Options = Options(),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run a long short-term memory (ONNX LSTM-22, DML_OPERATOR_LSTM) on a Vulkan device.

    Args:
        x: input [T, B, I] (T time steps, B batch rows, I inputs): float32, float16, bfloat16 (of the package ml_dtypes) or
            float64. The other arrays are of its type, or of one that converts to it exactly. 16-bit types are computed in
            float32 and rounded once, at the end; float64 to about 1e-13 (and no closer than 1e-34), up to 3e38.
        w: input weights [D, 4H, I]; gates i o f c. D is 2 for direction "bidirectional", else 1.
        r: recurrent weights [D, 4H, H].
        b: biases Wb and Rb side by side [D, 8H]; 0 if left out.
        initial_h, initial_c: [D, B, H]; 0 if left out.
        p: peephole weights [D, 3H], gates i o f; none if left out.
        sequence_lens: whole numbers from 0 to T, [B]; T if left out. Past a row's length y is 0.
        direction: "forward", "reverse" or "bidirectional".
        activations: f, g and h for each direction: ONNX names (any case) or DirectML descriptors. Sigmoid, Tanh, Tanh if
            left out.
        activation_alpha, activation_beta: for ONNX names, consumed in order by those that take one.
        clip: bound on what goes into f and g, or None.
        input_forget: whether the forget gate is 1 - the input gate.
        layout: 1 for batch first: x [B, T, I], initial_h, initial_c, y_h and y_c [B, D, H], y [B, T, D, H].
        device: a Device, or what Device() takes; opened at the first call.
        options: what to force in the schedule.

    Returns:
        In x's type: y [T, D, B, H]: h after each step; and y_h and y_c [D, B, H]: h and c after each row's last
        step, 0 for a row of length 0.

    Raises:
        InvalidArgumentError: an argument is wrong; the message names it, what was found and what is allowed.
        DriverError: no device, or the driver failed.
    """
    arrays = {"InputTensor": x, "WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "HiddenInitTensor": initial_h,
              "CellMemInitTensor": initial_c, "SequenceLengthsTensor": sequence_lens, "PeepholeTensor": p}
    attributes = {"direction": direction, "activations": activations, "activation_alpha": activation_alpha,
                  "activation_beta": activation_beta, "clip": clip, "input_forget": input_forget, "layout": layout}
    y, y_h, y_c = recurrent("lstm", cells.LSTM, arrays, attributes, (True, True, True), device, options)
    return y, y_h, y_c


def rnn(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    *,
    initial_h: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    direction: str = "forward",
    activations: Activations | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    layout: int = 0,
    device: Device | int | str | None = None,
    options: Options = Options(),
) -> tuple[np.ndarray, np.ndarray]:
    """Run a simple recurrent network (ONNX RNN-22, DML_OPERATOR_RNN) on a Vulkan device.

    As `gru`, with one gate: w [D, H, I], r [D, H, H], b [D, 2H]; activations: f for each direction, Tanh if left
    out. Returns y [T, D, B, H], and y_h [D, B, H]. Raises what `gru` raises.
    """
    arrays = {"InputTensor": x, "WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "HiddenInitTensor": initial_h,
              "SequenceLengthsTensor": sequence_lens}
    attributes = {"direction": direction, "activations": activations, "activation_alpha": activation_alpha,
                  "activation_beta": activation_beta, "clip": clip, "layout": layout}
    y, y_h = recurrent("rnn", cells.RNN, arrays, attributes, (True, True), device, options)
    return y, y_h


class Sessions:
    """Compiled operators and packed weights of earlier calls, for the next calls with the same shapes and attributes.

    kept: how many operators, those that were used last. shares: whether operators that differ in T and B share their packed
    weights, buffers and kernels; for calls with the same weights.
    """

    def __init__(self, kept: int, shares: bool = False) -> None:
        self._sessions: Recent[_Session] = Recent(kept)
        self._cache = WeightKeeper() if shares else None
        self._lock = Lock()

    def run(self, name: str, cell: Cell, arrays: Mapping[str, Any], attributes: Mapping[str, Any], wanted: Sequence[bool],
            device: Device | int | str | None = None, options: Options = Options()) -> list[np.ndarray]:
        """Run a cell on numpy arrays.

        Args:
            name: the operator's name in errors.
            arrays: by DirectML field, in ONNX's shapes (see `gru`); None where an optional one is left out.
            attributes: ONNX's, by name; those left out have ONNX's defaults.
            wanted: for each of the cell's outputs whether to compute and return it.
            device: a Device, or what Device() takes.
            options: what to force in the plan.

        Returns:
            The wanted outputs, in ONNX's shapes and the type of the input.

        Raises:
            InvalidArgumentError: an argument is wrong.
            DriverError: no device, or the driver failed.
        """
        checked, element = convert(name, cell, arrays)
        attributes = {**DEFAULT_ATTRIBUTES, **{attribute: _plain(value) for attribute, value in attributes.items()}}
        device = open_device(name, device)
        if not isinstance(options, Options):
            raise InvalidArgumentError(name, "options", type(options).__name__, "vkdml.Options")
        layouts = [None if array is None else (array.shape, None if array.flags.c_contiguous else element_strides(array))
                   for array in checked.values()]
        key = (device, cell.name, element, options, *wanted, *map(_typed, attributes.values()), *layouts)
        try:
            hash(key)
        except TypeError:
            raise InvalidArgumentError(name, "attributes", key[3:], "numbers, strings and lists of them") from None
        with self._lock:
            session = self._sessions.get(
                key, lambda: _Session(name, cell, checked, element, attributes, wanted, device, options, self._cache))
        try:
            return session.run(name, checked)
        except DriverError:
            with self._lock:
                self._sessions.drop(key)
            raise


shared_sessions = Sessions(kept=16)


def recurrent(name: str, cell: Cell, arrays: Mapping[str, Any], attributes: Mapping[str, Any], wanted: Sequence[bool],
              device: Device | int | str | None = None, options: Options = Options()) -> list[np.ndarray]:
    """Run a cell on numpy arrays: what `gru`, `lstm` and `rnn` do. Arguments and result are those of Sessions.run."""
    return shared_sessions.run(name, cell, arrays, attributes, wanted, device, options)


def open_device(name: str, device: Device | int | str | None) -> Device:
    """A Device, or the one of that index or name, or the default one for None: each opened once."""
    if not isinstance(device, (Device, int, str, NoneType)):
        raise InvalidArgumentError(name, "device", type(device).__name__, "a Device, its index, a part of its name or None")
    return device if isinstance(device, Device) else _device(device)


@cache
def _device(device: int | str | None) -> Device:
    return Device(device)


def _plain(value: Any) -> Any:
    """numpy's arrays and scalars as Python's lists and numbers."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _typed(value: Any) -> Any:
    """A part of the key. 1, 1.0 and True are equal, but not all of them are right everywhere."""
    return tuple(map(_typed, value)) if isinstance(value, (list, tuple)) else (type(value), value)


class _Session:
    """A network of one operator, for all calls with the same shapes, types and attributes."""

    def __init__(self, name: str, cell: Cell, arrays: Mapping[str, np.ndarray | None], element: ElementType,
                 attributes: Mapping[str, Any], wanted: Sequence[bool], device: Device, options: Options,
                 cache: WeightKeeper | None) -> None:
        desc, self.shapes = describe(name, cell, arrays, element, attributes, wanted)
        self.problem = from_desc(desc, attributes["clip"], element)
        self.outputs = [field for field in self.problem.outputs if self.problem.has(field)]
        names = {field: field for field, tensor in self.problem.tensors.items() if tensor is not None}
        self.network = Network(device, [Node(Operator(self.problem), names)], self.outputs, options, cache)

    def run(self, name: str, arrays: Mapping[str, np.ndarray | None]) -> list[np.ndarray]:
        given = {field: array for field, array in arrays.items() if array is not None}
        lengths = given.get("SequenceLengthsTensor")
        if lengths is not None:
            check_lengths(name, lengths, self.problem.steps)
            given["SequenceLengthsTensor"] = lengths.astype(np.uint32)
        range_check = None
        if self.problem.element.pairs:
            range_check = RangeCheck(name, self.problem.cell.arguments, {field: flat(array) for field, array in given.items()})
        dtype = given["InputTensor"].dtype
        results = self.network.run(given, {field: (self.shapes[field], dtype) for field in self.outputs})
        if range_check:
            range_check.check_results(results)
        return list(results.values())
