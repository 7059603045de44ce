"""Computes the recurrent operators in numpy and float64, written for reading. Tests compare devices' results with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import cells
from .arguments import DEFAULT_ATTRIBUTES, convert_to, describe, flat, typed_array, with_defaults
from .cells import Cell
from .problem import LENGTHS, Problem, check_lengths, from_desc

Arrays = Mapping[str, np.ndarray | None]


def gru(x: Any, w: Any, r: Any, b: Any = None, **arguments: Any) -> list[np.ndarray]:
    """Compute vkdml.gru in float64 (ONNX GRU-22). Takes its arguments except device and options, and returns [y, y_h]."""
    return _recurrent(cells.GRU, {"X": x, "W": w, "R": r, "B": b, **arguments})


def lstm(x: Any, w: Any, r: Any, b: Any = None, *, p: Any = None, **arguments: Any) -> list[np.ndarray]:
    """Compute vkdml.lstm in float64 (ONNX LSTM-22). Takes its arguments except device and options; returns [y, y_h, y_c]."""
    return _recurrent(cells.LSTM, {"X": x, "W": w, "R": r, "B": b, "P": p, **arguments})


def rnn(x: Any, w: Any, r: Any, b: Any = None, **arguments: Any) -> list[np.ndarray]:
    """Compute vkdml.rnn in float64 (ONNX RNN-22). Takes its arguments except device and options, and returns [y, y_h]."""
    return _recurrent(cells.RNN, {"X": x, "W": w, "R": r, "B": b, **arguments})


def _recurrent(cell: Cell, arguments: dict[str, Any]) -> list[np.ndarray]:
    unknown = set(arguments) - {*cell.arguments.values(), *DEFAULT_ATTRIBUTES}
    if unknown:
        raise TypeError(f"{cell.kernel}() got unexpected arguments {sorted(unknown)}")
    given = {field: arguments.pop(cell.arguments[field], None) for field in cell.inputs}
    given["InputTensor"], element = typed_array(cell.kernel, cell, "InputTensor", given["InputTensor"])
    converted = convert_to(cell.kernel, cell, given["InputTensor"].dtype.newbyteorder("="), "InputTensor", given)
    attributes = with_defaults(arguments)
    desc, shapes = describe(cell.kernel, cell, converted, element, attributes, [True] * len(cell.outputs))
    problem = from_desc(desc, attributes["clip"], element)
    arrays = {field: None if array is None else flat(array) for field, array in converted.items()}
    results = []
    for field, result in run(problem, arrays).items():
        results.append(np.empty(shapes[field]))
        problem.tensor(field).view(results[-1].reshape(-1))[...] = result
    return results


@np.errstate(all="ignore")  # infinities and NaN are legitimate values here
def run(problem: Problem, arrays: Arrays) -> dict[str, np.ndarray]:
    """Compute all outputs of a problem, also those that its descriptor leaves out. Returns float64 arrays in DirectML's sizes.

    arrays: by field name (InputTensor, WeightTensor, ...), with the memory layout that the problem's sizes and strides
    describe, in any shape; optional ones may be missing or None. Raises InvalidArgumentError for a length below 0 or above T.
    """
    t, b, h = problem.steps, problem.batch, problem.hidden
    x = view(problem, arrays, "InputTensor", np.empty(0))[0]
    lengths = view(problem, arrays, LENGTHS, np.full(b, t)).reshape(b).astype(np.int64)
    check_lengths(problem.operator, lengths, t)
    saved = view(problem, arrays, "SavedTensor", np.empty((t, problem.directions, b, 0)))
    sequence = np.zeros((t, problem.directions, b, problem.loop.words * h))
    last = np.zeros((len(problem.cell.outputs) - 1, 1, problem.directions, b, h))
    for direction, reverse in enumerate(problem.reverse):
        step = STEPS[problem.cell.name](problem, direction, *direction_weights(problem, arrays, direction))
        for row in range(b):
            results = states = [initial[direction, row] for initial in initial_states(problem, arrays)]
            beside = len(states) - 1
            positions = range(lengths[row])
            for position in reversed(positions) if reverse else positions:
                results = step(x[position, row], *states, *parts(saved[position, direction, row], h))
                states = [np.concatenate(results[:problem.loop.sources]), *results[len(results) - beside:]]
                sequence[position, direction, row] = np.concatenate(results[:problem.loop.words])
            if lengths[row] > 0 and len(last):  # the last state of a row of length 0 is 0, also if an initial state is given
                last[:, 0, direction, row] = results[-len(last):]
    return dict(zip(problem.cell.outputs, [sequence, *last]))


def view(problem: Problem, arrays: Arrays, field: str, default: np.ndarray) -> np.ndarray:
    array = arrays.get(field)
    return default if array is None else problem.tensor(field).view(np.ascontiguousarray(array, np.float64).reshape(-1))


def parts(array: np.ndarray, hidden: int) -> list[np.ndarray]:
    """Split an array's last dimension into vectors of H numbers."""
    return np.split(array, range(hidden, array.shape[-1], hidden), -1) if array.shape[-1] else []


def initial_states(problem: Problem, arrays: Arrays) -> list[np.ndarray]:
    """Return what R multiplies in the first step and, if the cell has a state beside it, that."""
    zeros = np.zeros((1, 2, problem.batch, problem.columns))
    sources = view(problem, arrays, "HiddenInitTensor", zeros)[0]
    beside = [view(problem, arrays, field, zeros[..., :problem.hidden])[0] for field in ["CellMemInitTensor"]
              if field in problem.cell.inputs]
    return [sources, *beside]


def direction_weights(problem: Problem, arrays: Arrays, direction: int) -> list[np.ndarray]:
    """Return one direction's W, R, Wb, Rb and peephole weights, each with the gate as its first dimension."""
    gates, h = len(problem.cell.gates), problem.hidden
    w = view(problem, arrays, "WeightTensor", np.empty(0))[0, direction].reshape(gates, h, problem.input_size)
    r = view(problem, arrays, "RecurrenceTensor", np.empty(0))[0, direction].reshape(problem.loop.products, h, problem.columns)
    biases = view(problem, arrays, "BiasTensor", np.zeros((1, 1, 2, 2 * gates * h)))
    wb, rb = biases[0, 0, direction].reshape(2, gates, h)
    peepholes = view(problem, arrays, "PeepholeTensor", np.zeros((1, 1, 2, problem.cell.peepholes * h)))
    return [w, r, wb, rb, peepholes[0, 0, direction].reshape(problem.cell.peepholes, h)]


def _clip(problem: Problem, x: np.ndarray) -> np.ndarray:
    return x if problem.clip is None else np.clip(x, -problem.clip, problem.clip)


Step = Callable[..., list[np.ndarray]]


def gru_step(problem: Problem, direction: int, w: np.ndarray, r: np.ndarray, wb: np.ndarray, rb: np.ndarray, _: Any) -> Step:
    """Return a function that runs a step of ONNX GRU-22's equations for one row; gates z r h."""
    f, g = problem.activation(direction, 0), problem.activation(direction, 1)

    def step(x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
        z = f(_clip(problem, w[0] @ x + r[0] @ h + wb[0] + rb[0]))
        reset = f(_clip(problem, w[1] @ x + r[1] @ h + wb[1] + rb[1]))
        if problem.flags["LinearBeforeReset"]:
            candidate = g(_clip(problem, w[2] @ x + wb[2] + reset * (r[2] @ h + rb[2])))
        else:
            candidate = g(_clip(problem, w[2] @ x + wb[2] + r[2] @ (reset * h) + rb[2]))
        return [(1 - z) * candidate + z * h]

    return step


def lstm_step(problem: Problem, direction: int, w: np.ndarray, r: np.ndarray, wb: np.ndarray, rb: np.ndarray,
              p: np.ndarray) -> Step:
    """Return a step of ONNX LSTM-22 for one row; gates i o f c, peepholes i o f. Clip bounds inputs of f and g, not of h."""
    f, g, h_activation = (problem.activation(direction, index) for index in range(3))
    has_peephole = problem.has("PeepholeTensor")  # without peepholes, an infinite c must not be multiplied by 0

    def step(x: np.ndarray, h: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
        gates = [w[k] @ x + r[k] @ h + wb[k] + rb[k] for k in range(4)]
        if has_peephole:
            gates[0] = gates[0] + p[0] * c
            gates[2] = gates[2] + p[2] * c
        i = f(_clip(problem, gates[0]))
        forget = 1 - i if problem.flags["CoupleInputForget"] else f(_clip(problem, gates[2]))
        c = forget * c + i * g(_clip(problem, gates[3]))
        o = f(_clip(problem, gates[1] + p[1] * c if has_peephole else gates[1]))
        return [o * h_activation(c), c]

    return step


def rnn_step(problem: Problem, direction: int, w: np.ndarray, r: np.ndarray, wb: np.ndarray, rb: np.ndarray, _: Any) -> Step:
    """Return a function that runs a step of ONNX RNN-22's equation for one row."""
    f = problem.activation(direction, 0)
    return lambda x, h: [f(_clip(problem, w[0] @ x + r[0] @ h + wb[0] + rb[0]))]


# Gradients. A step takes the h before it, x and 1 as one vector; the gradients of all gates' arguments one step later; its
# state; the gradient of h' from outside; and what the cell had before the step. It returns what it stores, and its state

def lstm_gradient(problem: Problem, direction: int, w: np.ndarray, r: np.ndarray, *_: Any) -> Step:
    """Return the gradient of an LSTM step. The state is the gradient of c."""
    f, g, h = (problem.activation(direction, index) for index in range(3))

    def step(x: np.ndarray, d: np.ndarray, dc: np.ndarray, dy: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
        arguments = [w[k] @ x for k in range(4)]
        i, o, forget, new = f(arguments[0]), f(arguments[1]), f(arguments[2]), g(arguments[3])
        after = forget * c + i * new
        result, dh = h(after), r[0] @ d + dy
        dc = dc + dh * o * h.slope(after, result)
        return [dc * new * f.slope(arguments[0], i), dh * result * f.slope(arguments[1], o),
                dc * c * f.slope(arguments[2], forget), dc * i * g.slope(arguments[3], new), dc * forget]

    return step


def gru_gradient(problem: Problem, direction: int, w: np.ndarray, r: np.ndarray, *_: Any) -> Step:
    """Return the gradient of a GRU step with linear_before_reset. The state is what passes by the gates of h's gradient.

    W gives m = h R_h + Rb_h, the arguments of z and r, and the input's part of n's.
    """
    f, g = problem.activation(direction, 0), problem.activation(direction, 1)

    def step(x: np.ndarray, d: np.ndarray, passed: np.ndarray, dy: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
        m, of_z, of_r = w[0] @ x, w[1] @ x, w[2] @ x
        z, reset = f(of_z), f(of_r)
        of_n = w[3] @ x + reset * m
        n, dh = g(of_n), r[0] @ d + dy + passed
        dn = dh * (1 - z) * g.slope(of_n, n)
        return [dn * reset, dh * (h - n) * f.slope(of_z, z), dn * m * f.slope(of_r, reset), dn, dh * z]

    return step


def rnn_gradient(problem: Problem, direction: int, w: np.ndarray, r: np.ndarray, *_: Any) -> Step:
    """Return the gradient of an RNN's step, which has no state."""
    f = problem.activation(direction, 0)
    return lambda x, d, dy: [(r[0] @ d + dy) * f.slope(w[0] @ x, f(w[0] @ x))]


STEPS: dict[str, Callable[..., Step]] = {
    "GRU": gru_step, "LSTM": lstm_step, "RNN": rnn_step, "LSTM_TRAINING": lstm_step,
    "GRU_BACKWARD": gru_gradient, "LSTM_BACKWARD": lstm_gradient, "RNN_BACKWARD": rnn_gradient}
