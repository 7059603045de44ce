"""What comparisons found, test by test: the report of a session (pytest --report FILE), in the form of `vkdml conformance`'s
results.

A record is one case: an operator's results against what was expected, with the largest errors over its outputs. An error is
None where no finite number says it: where NaN, infinities or shapes disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from vkdml.cli.conformance import results
from vkdml.cli.conformance.report import largest

RECORDS: list[dict[str, Any]] = []  # of the running test

Tolerance = tuple[float, float]  # relative and absolute


def add(operator: str, element: str, features: Iterable[str], pairs: Iterable[tuple[np.ndarray, np.ndarray]],
        tolerance: Tolerance) -> None:
    """pairs: result and expected. element: the name of the results' type."""
    absolute, ulp, fraction = zip(*(largest_errors(result, expected, element, tolerance) for result, expected in pairs))
    RECORDS.append({"operator": operator, "element": element, "features": sorted(features),
                    "absolute": largest(absolute), "ulp": largest(ulp), "fraction": largest(fraction)})


def largest_errors(result: np.ndarray, expected: np.ndarray, element: str,
                   tolerance: Tolerance) -> tuple[float | None, float | None, float | None]:
    """The largest error: absolute, in ULP of the element type, and of the tolerance. Numbers below that at which both parts of
    the tolerance are the same have its ULP.
    """
    if result.shape != expected.shape:
        return None, None, None
    relative, absolute = tolerance
    result, expected = result.astype(np.float64), expected.astype(np.float64)
    agree = (result == expected) | (np.isnan(result) & np.isnan(expected))
    with np.errstate(all="ignore"):
        errors = np.where(agree, 0.0, np.abs(result - expected))
        in_ulp = errors / ulp(np.maximum(np.abs(expected), absolute / relative), element)
        of_tolerance = np.where(agree, 0.0, errors / (absolute + relative * np.abs(expected)))
    if not np.isfinite(errors).all():
        return None, None, None
    return float(errors.max()), float(np.nanmax(in_ulp)), float(of_tolerance.max())


def ulp(values: np.ndarray, element: str) -> np.ndarray:
    """The place of the last bit of float64 values rounded to a type; of zeros and subnormals as of its smallest normal."""
    info = ml_dtypes.finfo(element)
    rounded = np.minimum(np.abs(values), float(info.max)).astype(element).astype(np.float64)
    _, exponents = np.frexp(np.maximum(rounded, float(info.smallest_normal)))  # one more than those of IEEE's significands
    return np.ldexp(1.0, exponents - 1 - info.nmant)


class Reporter:
    """A pytest plugin that adds a line of JSON to the results when a test begins and when it has ended. Tests that have ended
    by what is there are left out.
    """

    def __init__(self, path: Path, tolerances: Mapping[str, Tolerance]) -> None:
        path.touch()
        self._ended = {test["test"] for test in results.read(path)[1] if test["outcome"] != results.UNFINISHED}
        self._file = path.open("a", buffering=1)
        self._tolerances = tolerances
        self._left_out = 0

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._left_out += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._add({"selected": len(session.items), "left_out": self._left_out, "tolerances": self._tolerances})
        session.items[:] = [item for item in session.items if item.nodeid not in self._ended]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome, self._failure, self._seconds = "passed", "", 0.0
        self._add({"test": nodeid, "outcome": results.UNFINISHED})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.outcome != "passed" and self._outcome != "failed":
            self._outcome = report.outcome
            self._failure = _reason(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._add({"test": nodeid, "outcome": self._outcome, "seconds": round(self._seconds, 3), "failure": self._failure,
                   "records": RECORDS})

    def _add(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


def _reason(report: pytest.TestReport) -> str:
    """Why a test failed or was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else report.longreprtext
