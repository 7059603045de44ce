"""The operators in numpy and float64, written to be read: what the device's results are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import cells
from .arguments import DEFAULT_ATTRIBUTES, convert, describe
from .problem import Problem, from_desc

Arrays = Mapping[str, np.ndarray | None]


def gru(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, *, initial_h: np.ndarray | None = None,
        sequence_lens: np.ndarray | None = None, **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    """What vkdml.gru computes, with its arguments, in float64."""
    arrays = {"InputTensor": x, "WeightTensor": w, "RecurrenceTensor": r, "BiasTensor": b, "HiddenInitTensor": initial_h,
              "SequenceLengthsTensor": sequence_lens}
    converted = {field: convert("gru", cells.GRU, field, array) for field, array in arrays.items()}
    desc, shapes = describe("gru", cells.GRU, converted, DEFAULT_ATTRIBUTES | attributes, (True, True))
    problem = from_desc(desc, attributes.get("clip"))
    results = []
    for field, result in run(problem, converted).items():
        results.append(np.empty(shapes[field]))
        problem.tensor(field).view(results[-1].reshape(-1))[...] = result
    return results[0], results[1]


def run(problem: Problem, arrays: Arrays) -> dict[str, np.ndarray]:
    """Compute all outputs of a problem, whether it asks for them or not, in DirectML's sizes.

    arrays: by field name (InputTensor, WeightTensor, ...), packed as the problem's sizes and strides say, in any shape;
    what is missing or None is left out.
    """
    with np.errstate(all="ignore"):  # infinities and NaN go where IEEE arithmetic takes them
        return _run(problem, arrays)


def _run(problem: Problem, arrays: Arrays) -> dict[str, np.ndarray]:
    t, b, h = problem.steps, problem.batch, problem.hidden
    x = _view(problem, arrays, "InputTensor", np.empty(0))[0]
    lengths = _view(problem, arrays, "SequenceLengthsTensor", np.full(b, t)).reshape(b).astype(np.int64)
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


def _view(problem: Problem, arrays: Arrays, field: str, default: np.ndarray) -> np.ndarray:
    array = arrays.get(field)
    return default if array is None else problem.tensor(field).view(np.ascontiguousarray(array, np.float64).reshape(-1))


def _direction(problem: Problem, arrays: Arrays, direction: int) -> list[np.ndarray]:
    """The parameters and initial state of one direction: W, R, Wb, Rb by gate, and h by row."""
    gates, h = len(problem.cell.gates), problem.hidden
    w = _view(problem, arrays, "WeightTensor", np.empty(0))[0, direction].reshape(gates, h, problem.inputs)
    r = _view(problem, arrays, "RecurrenceTensor", np.empty(0))[0, direction].reshape(gates, h, h)
    biases = _view(problem, arrays, "BiasTensor", np.zeros((1, 1, 2, 2 * gates * h)))
    wb, rb = biases[0, 0, direction].reshape(2, gates, h)
    return [w, r, wb, rb, _view(problem, arrays, "HiddenInitTensor", np.zeros((1, 2, problem.batch, h)))[0, direction]]


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
