"""Runs plans on a problem's tensors and times them in turns, so that disturbances affect all of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from vkdml import DriverError
from vkdml_lab.bench.runner import settle, timed, warm_up
from vkdml_lab.internals import Plan, Problem, Run, Trial
from vkdml_lab.suite.support import DTYPES


def arrays(problem: Problem) -> dict[str, np.ndarray]:
    """Make a problem's inputs, by field and always the same. Weights are so small that sums are about 1. Lengths are 1 to T."""
    rng = np.random.default_rng(0)
    summed = {"WeightTensor": problem.input_size, "RecurrenceTensor": problem.hidden, "BiasTensor": 4}
    found = {}
    for field in filter(problem.has, problem.inputs):
        sizes = problem.tensor(field).sizes
        if field == "SequenceLengthsTensor":
            found[field] = rng.integers(1, problem.steps + 1, sizes).astype(np.uint32)
        else:
            found[field] = (rng.standard_normal(sizes) * summed.get(field, 1) ** -0.5).astype(DTYPES[problem.element.name])
    return found


def seconds(trial: Trial, plans: Sequence[Plan], samples: int) -> list[float | str]:
    """Time plans in turns. Returns for each plan its median seconds, or a text that says why there are none."""
    runs = [_settled(trial, plan) for plan in plans]
    for one in [run for run in runs if isinstance(run, Run)][:1]:  # the GPU rested during compiling
        warm_up(one.execute)
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(samples):
        for run, taken in zip(runs, times):
            if isinstance(run, Run):
                taken.append(timed(run.execute))
    return [run if isinstance(run, str) else f"gave up {run.timeouts} times" if run.timeouts else median(taken)
            for run, taken in zip(runs, times)]


def _settled(trial: Trial, plan: Plan) -> Run | str:
    try:
        run = Run(trial, plan)
        run.execute()
        settle(run.execute)
    except DriverError as error:
        return str(error)
    return run
