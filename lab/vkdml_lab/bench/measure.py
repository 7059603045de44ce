"""Measures a case: the libraries' processes (workers) warm up, then take turns, so that disturbances affect all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

import numpy as np

from vkdml import reference
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.processes import Process
from vkdml_lab.bench.worker import SAMPLE_SECONDS, TOO_SLOW_SECONDS
from vkdml_lab.processes import WorkerError

BUDGET_SECONDS = 10.0  # for all samples of a worker; a slow one takes fewer
WAYS = ("host", "device")  # numpy to numpy, and execution alone
WRONG = "wrong: "  # beginning of the error of a wrong result
CHECKED_ROWS = 8  # rows of the batch that are compared, as the reference is slow

Progress = Callable[[str], None]


@dataclass
class Result:
    """A worker's times for a case, called in one way, such as "host" (numpy to numpy) or "device" (execution alone).

    flops: operations of a call. calls: number of calls in a sample. planned: number of samples to take. first_call: seconds.
    difference: largest one from the reference. error: why there are no times, or "". seconds: mean of a call, for each sample.
    """

    case: str
    worker: str
    way: str = ""
    flops: int = 0
    calls: int = 0
    planned: int = 0
    first_call: float = float("nan")
    difference: float = float("nan")
    error: str = ""
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def gflops(self) -> float:
        return self.flops / self.median / 1e9

    def times(self, baseline: Result) -> float:
        """Divide this worker's time by the baseline worker's in each round of samples. Returns the median of the quotients."""
        return median(ours / theirs for ours, theirs in zip(self.seconds, baseline.seconds))


def measure(case: Case, processes: Sequence[Process], samples: int, progress: Progress = lambda _: None, busy: bool = False
            ) -> list[Result]:
    """Measure a case in turns on all processes whose library has its cell. Returns a result for each way to call a library.

    samples: the most that are taken of each way. busy: make calls for half a second first, so that a GPU raises its clocks.
    """
    pairs = []
    for process in processes:
        if case.cell in process.peer.cells:
            progress(f"{process.peer.name} warms up")
            pairs += [(process, result) for result in _warm_up(process, case, samples)]
    for process, result in [pair for pair in pairs if busy and not pair[1].error][:1]:  # it rested
        with suppress(WorkerError):  # the samples report the error
            process.ask("busy", result.way)
    for number in range(samples):
        progress(f"round {number + 1}")
        for process, result in pairs:
            if not result.error and number < result.planned:
                _sample(process, result)
    for _, result in pairs:
        if result.error:
            result.seconds = []
    return [result for _, result in pairs]


def _warm_up(process: Process, case: Case, samples: int) -> list[Result]:
    """Compile and check a case. Returns a result for each way to call it. A very slow first call is the only sample."""
    changed = process.peer.case(case)
    results = [Result(case.name, process.peer.name)]
    try:
        process.open()
        results = [Result(case.name, process.peer.name, way, case.flops) for way in process.ask("prepare", changed)]
    except WorkerError as error:
        results[0].error = str(error)
        return results
    slow: set[str] = set()
    for result in results:
        part = process.peer.part(result.way)
        if part.name in slow:
            continue
        try:
            warm = process.ask("warm_up", result.way)
        except WorkerError as error:
            result.error = str(error)
            continue
        (result.calls, result.planned), result.first_call = plan(case, warm["call"], samples), warm["first"]
        result.difference = difference(changed, warm["outputs"])
        if not result.difference <= part.tolerance:  # NaN is wrong, too
            result.error = f"{WRONG}{result.difference:.1e} from the reference"
        if warm["first"] > TOO_SLOW_SECONDS:  # its other ways would be as slow
            result.seconds, result.planned = [warm["first"]], 0
            slow.add(part.name)
    return [result for result in results if result.error or result.calls]


def plan(case: Case, call_seconds: float, samples: int) -> tuple[int, int]:
    """Return how many calls make a sample, and how many samples to take (at most `samples`). call_seconds: of one call."""
    wanted = max(case.calls, math.ceil(SAMPLE_SECONDS / call_seconds))
    calls = max(1, min(wanted, int(BUDGET_SECONDS / samples / call_seconds)))
    return calls, max(1, min(samples, int(BUDGET_SECONDS / (calls * call_seconds))))


def _sample(process: Process, result: Result) -> None:
    try:
        result.seconds.append(process.ask("sample", result.way, result.calls))
    except WorkerError as error:
        result.error = str(error)


def difference(case: Case, outputs: list[np.ndarray]) -> float:
    """Return the largest absolute difference of outputs from the float64 reference, in the rows that `checked_rows` returns."""
    rows = checked_rows(case)
    return max(float(np.abs(output[..., rows, :] - expected).max()) for output, expected in zip(outputs, expect(case)))


def checked_rows(case: Case) -> np.ndarray:
    return np.unique(np.linspace(0, case.batch - 1, CHECKED_ROWS).astype(int))


@lru_cache(maxsize=2)  # a case, and its variant for workers that change it
def expect(case: Case) -> list[np.ndarray]:
    """Compute the right outputs of the last checked call, in the rows that `checked_rows` returns: y, then each last state."""
    arrays, rows = case.arrays(), checked_rows(case)
    lengths = {"sequence_lens": case.lengths[rows]} if case.ragged else {}
    x = np.concatenate([arrays["X"][:, rows]] * case.checked_calls)
    y, *last = getattr(reference, case.cell)(x, arrays["W"], arrays["R"], arrays["B"], **case.attributes, **lengths)
    return [y[-case.steps:], *last]
