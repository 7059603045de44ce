"""Time against the size of one dimension, for those workers that the pictures show."""

from __future__ import annotations

from collections.abc import Sequence

from bench.cases import GROWTH, Case
from bench.measure import Progress, Result, measure
from bench.processes import Process

SAMPLES = 3
SLOW_SECONDS = 3.0  # a point that would take a worker longer is left out


def measure_growth(processes: Sequence[Process], progress: Progress = lambda _: None) -> dict[str, list[Result]]:
    """By dimension, from the smallest size on."""
    growing = [process for process in processes if process.peer.grows]
    series: dict[str, list[Result]] = {}
    for dimension, cases in GROWTH.items():
        series[dimension] = []
        for case in cases:
            quick = [process for process in growing if predict(case, process.peer.name, series[dimension]) < SLOW_SECONDS]
            series[dimension] += measure(case, quick, SAMPLES, lambda what: progress(f"{case.name}: {what}"))  # noqa: B023
    return series


def predict(case: Case, worker: str, results: Sequence[Result]) -> float:
    """A worker's seconds for a case, as if its time grew with the arithmetic from the last point on; not finite where it
    failed there.
    """
    last = [result for result in results if result.worker == worker][-1:]
    return max((result.median * case.flops / result.flops if result.seconds else float("inf") for result in last), default=0.0)
