"""What comparisons found, test by test: the report of a session (pytest --report FILE).

A record is one case: an operator's results against what was expected, with the largest errors over its outputs. An error is
None where no finite number says it: where NaN, infinities or shapes disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

RECORDS: list[dict[str, Any]] = []  # of the running test


def add(operator: str, element: str, features: Iterable[str], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
    """pairs: result and expected. element: the name of the results' type."""
    absolute, ulp = zip(*(largest_errors(result, expected, element) for result, expected in pairs))
    RECORDS.append({"operator": operator, "element": element, "features": sorted(features),
                    "absolute": largest(absolute), "ulp": largest(ulp)})


def largest(errors: Iterable[float | None]) -> float | None:
    """None, the worst, if it is among them."""
    worst = max(np.inf if error is None else error for error in errors)
    return None if worst == np.inf else worst


def largest_errors(result: np.ndarray, expected: np.ndarray, element: str) -> tuple[float | None, float | None]:
    """The largest error, absolute and in ULP of the element type."""
    if result.shape != expected.shape:
        return None, None
    result, expected = result.astype(np.float64), expected.astype(np.float64)
    agree = (result == expected) | (np.isnan(result) & np.isnan(expected))
    with np.errstate(all="ignore"):
        errors = np.where(agree, 0.0, np.abs(result - expected))
        in_ulp = errors / ulp(expected, element)
    if not np.isfinite(errors).all():
        return None, None
    return float(errors.max()), float(in_ulp.max())


def ulp(values: np.ndarray, element: str) -> np.ndarray:
    """The place of the last bit of float64 values rounded to a type; of zeros and subnormals as of its smallest normal."""
    info = ml_dtypes.finfo(element)
    rounded = np.minimum(np.abs(values), float(info.max)).astype(element).astype(np.float64)
    _, exponents = np.frexp(np.maximum(rounded, float(info.smallest_normal)))  # one more than those of IEEE's significands
    return np.ldexp(1.0, exponents - 1 - info.nmant)


class Reporter:
    """A pytest plugin that writes a line of JSON when a test begins and when it has ended, so that a crash loses nothing:
    the later line of a test is its outcome.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome, self._failure = "passed", ""
        self._write(nodeid, "unfinished")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" and self._outcome != "failed":
            self._outcome = report.outcome
            crash = getattr(report.longrepr, "reprcrash", None)
            self._failure = crash.message if crash else report.longreprtext

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, self._outcome, failure=self._failure, records=RECORDS)

    def _write(self, nodeid: str, outcome: str, **more: Any) -> None:
        self._file.write(json.dumps({"test": nodeid, "outcome": outcome, **more}) + "\n")
