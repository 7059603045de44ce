"""The operators in numpy and float64, written to be read: what the device's results are compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .problem import Problem

Arrays = Mapping[str, np.ndarray | None]


def run(problem: Problem, arrays: Arrays) -> dict[str, np.ndarray]:
    """Compute all outputs of a problem, whether it asks for them or not, in DirectML's sizes.

    arrays: by field name (InputTensor, WeightTensor, ...), in DirectML's sizes; what is missing or None is left out.
    """
    with np.errstate(all="ignore"):  # infinities and NaN go where IEEE arithmetic takes them
        return _run(problem, arrays)


def _run(problem: Problem, arrays: Arrays) -> dict[str, np.ndarray]:
    t, b, h = problem.steps, problem.batch, problem.hidden
    x = np.asarray(arrays["InputTensor"], np.float64)[0]
    lengths = arrays.get("SequenceLengthsTensor")
    lengths = np.full(b, t) if lengths is None else np.asarray(lengths).reshape(b).astype(np.int64)
    sequence = np.zeros((t, problem.directions, b, h))
    single = np.zeros((1, problem.directions, b, h))
    for direction, reverse in enumerate(problem.reverse):
        w, r, wb, rb, h0 = _direction(problem, arrays, direction)
        for row in range(b):
            state = h0[row]
            positions = range(lengths[row])
            for position in reversed(positions) if reverse else positions:
                state = gru_step(problem, direction, x[position, row], state, w, r, wb, rb)
                sequence[position, direction, row] = state
            if lengths[row] > 0:  # a row without steps has no last state: 0, even with an initial one
                single[0, direction, row] = state
    return {"OutputSequenceTensor": sequence, "OutputSingleTensor": single}


def _direction(problem: Problem, arrays: Arrays, direction: int) -> list[np.ndarray]:
    """The parameters and initial state of one direction: W, R, Wb, Rb by gate, and h by row."""
    gates, h = len(problem.cell.gates), problem.hidden

    def field(name: str, default: np.ndarray) -> np.ndarray:
        array = arrays.get(name)
        return default if array is None else np.asarray(array, np.float64).reshape(problem.tensor(name).sizes)

    w = field("WeightTensor", np.empty(0))[0, direction].reshape(gates, h, problem.inputs)
    r = field("RecurrenceTensor", np.empty(0))[0, direction].reshape(gates, h, h)
    wb, rb = field("BiasTensor", np.zeros((1, 1, 2, 2 * gates * h)))[0, 0, direction].reshape(2, gates, h)
    return [w, r, wb, rb, field("HiddenInitTensor", np.zeros((1, 2, problem.batch, h)))[0, direction]]


def gru_step(problem: Problem, direction: int, x: np.ndarray, h: np.ndarray,
             w: np.ndarray, r: np.ndarray, wb: np.ndarray, rb: np.ndarray) -> np.ndarray:
    """ONNX GRU-22's equations for one row; gates z r h."""
    f, g = problem.activation(direction, 0), problem.activation(direction, 1)
    z = f(clip(problem, w[0] @ x + r[0] @ h + wb[0] + rb[0]))
    reset = f(clip(problem, w[1] @ x + r[1] @ h + wb[1] + rb[1]))
    if problem.linear_before_reset:
        candidate = g(clip(problem, w[2] @ x + wb[2] + reset * (r[2] @ h + rb[2])))
    else:
        candidate = g(clip(problem, w[2] @ x + wb[2] + r[2] @ (reset * h) + rb[2]))
    return (1 - z) * candidate + z * h


def clip(problem: Problem, x: np.ndarray) -> np.ndarray:
    return x if problem.clip is None else np.clip(x, -problem.clip, problem.clip)
