"""How long plans take: runs that take turns, so that what disturbs one disturbs all."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.ceilings import timed
from bench.runner import settle
from vkdml.errors import DriverError
from vkdml.planning.plan import Plan
from vkdml.runtime.trial import Run, Trial

SAMPLES, QUICK_SAMPLES = 25, 3


def seconds(trial: Trial, plans: Sequence[Plan], samples: int) -> list[float | str]:
    """The median of each plan, or why there is none."""
    runs = [_warm(trial, plan) for plan in plans]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(samples):
        for run, taken in zip(runs, times):
            if isinstance(run, Run):
                taken.append(timed(run.execute))
    return [run if isinstance(run, str) else f"gave up {run.given_up} times" if run.gave_up else median(taken)
            for run, taken in zip(runs, times)]


def _warm(trial: Trial, plan: Plan) -> Run | str:
    try:
        run = Run(trial, plan)
        run.execute()
        settle(run.execute)
    except DriverError as error:
        return str(error)
    return run
