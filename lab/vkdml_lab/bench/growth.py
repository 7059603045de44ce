"""Measures how time grows with T, B and H, for the libraries whose Peer (in peers.py) has `grows`."""

from __future__ import annotations

from collections.abc import Sequence

from vkdml_lab.bench.cases import GROWTH, Case
from vkdml_lab.bench.measure import Progress, Result, measure
from vkdml_lab.bench.processes import Process

SAMPLES = 3
SLOW_SECONDS = 3.0  # a worker skips points that would take longer


def measure_growth(processes: Sequence[Process], progress: Progress = lambda _: None) -> dict[str, list[Result]]:
    """Measure the cases of GROWTH. Returns results by what grows ("T", "B", "H"). Workers skip cases that would take long."""
    growing = [process for process in processes if process.peer.grows]
    series: dict[str, list[Result]] = {}
    for dimension, cases in GROWTH.items():
        series[dimension] = []
        for case in cases:
            quick = [process for process in growing if predict(case, process.peer.name, series[dimension]) < SLOW_SECONDS]
            series[dimension] += measure(case, quick, SAMPLES, lambda what: progress(f"{case.name}: {what}"))  # noqa: B023
    return series


def predict(case: Case, worker: str, results: Sequence[Result]) -> float:
    """Predict a worker's seconds for a case from its last result and the flops: 0 without one, infinite if it failed."""
    last = [result for result in results if result.worker == worker][-1:]
    return max((result.median * case.flops / result.flops if result.seconds else float("inf") for result in last), default=0.0)
