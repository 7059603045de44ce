"""Groups lengths T and batches B into size classes. Problems of a class that are otherwise alike use the kernels that are
planned for the class's representative, so they share compiled code.

There are few classes, so that a program that runs for a while meets no new one. Each has a reason: how many times as long its
neighbour's kernels would take, by the model of costs or measured.
- a few steps: loading weights to stay does not pay and, on a CPU driver, nor does a dispatch for a projection. There an
  LSTM(256) of one step takes 0.55 ms instead of 2.6 for one row, 0.7 instead of 4 for eight. With one row, only a single step
  is a class;
- one row, up to 4, up to 8, up to 16: a tile multiplies all rows that it may have (1.3 to 2 times, measured where the next
  class's kernel is another or unrolls its rows; else nothing);
- up to 32 rows of many steps: a tile of 32 leaves one of two cores idle, unless its units are shared out (1.9 times);
- more than 128: GPUs have work for all their cores in tiles of several rows (1.4 to 1.7 times).
T of a representative is chosen so that neighbouring classes pick the same projection kernel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..operators.checks import evaluate
from ..operators.problem import Problem


class Sizes(NamedTuple):
    """The sizes T and B of a problem."""

    steps: int
    batch: int


_FEW_STEPS = 8
_ONE_STEP_OF_ONE_ROW, _FEW_STEPS_OF_ROWS = Sizes(1, 1), Sizes(4, 8)
# The classes with more steps: the most rows of each -> its representative
_STEPS = {1: Sizes(250, 1), 4: Sizes(200, 4), 8: Sizes(100, 8), 16: Sizes(100, 16), 32: Sizes(100, 32), 128: Sizes(50, 64),
          2**32: Sizes(50, 256)}


def representative(steps: int, batch: int) -> Sizes:
    """Find the T and B that represent the size class of these."""
    if batch == 1 == steps:
        return _ONE_STEP_OF_ONE_ROW
    if batch > 1 and steps <= _FEW_STEPS:
        return _FEW_STEPS_OF_ROWS
    return next(sizes for most, sizes in _STEPS.items() if batch <= most)


def class_facts(problem: Problem) -> dict[str, Any]:
    """Collect all facts about a problem that the tilings of its size class depend on."""
    sizes, loop = representative(problem.steps, problem.batch), problem.loop
    return {
        "steps": sizes.steps, "batch": sizes.batch, "cell": problem.cell.name, "phases": loop.phases, "slots": loop.slots,
        "split bias": loop.split_bias, "element": problem.element.name, "hidden": problem.hidden, "inputs": problem.input_size,
        "directions": problem.directions, "lengths": problem.has("SequenceLengthsTensor"),
        "peepholes": problem.has("PeepholeTensor"),
    }


def with_sizes_of_class(problem: Problem) -> Problem:
    """Give a problem the representative's T and B, but leave its tensors as they are."""
    steps, batch = representative(problem.steps, problem.batch)
    return replace(problem, steps=steps, batch=batch)


def resized(problem: Problem, sizes: Sizes | None = None) -> Problem:
    """Make a problem with another T and B, whose tensors keep their strides; or with its representative's, packed."""
    packed, sizes = sizes is None, sizes or representative(problem.steps, problem.batch)
    letters = {"T": sizes.steps, "B": sizes.batch, "I": problem.input_size, "H": problem.hidden, "D": problem.directions}
    of_field = {field: tuple(evaluate(formula, letters) for formula in formulas)
                for field, formulas in problem.cell.tensors.items()}
    return replace(problem.with_sizes(of_field, packed), steps=sizes.steps, batch=sizes.batch)
