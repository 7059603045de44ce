"""Records the comparisons of each test in a report (pytest --report FILE), in the form of `vkdml conformance`'s results.

A record describes one comparison: the operator, the largest errors of all its outputs, and the first wrong element. An error is
None if it is not finite or if shapes differ. Reports of failures use nothing but records (vkdml_lab/conformance/failures.py).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from vkdml.engine.compiled import Compiled
from vkdml.engine.vulkan import gpu
from vkdml.engine.vulkan.driver import Driver
from vkdml.errors import InvalidArgumentError, VkdmlError
from vkdml.planning.options import forced
from vkdml_lab.conformance import failures, results
from vkdml_lab.conformance.report import largest
from vkdml_lab.suite import describing

RECORDS: list[dict[str, Any]] = []  # records of the running test

Tolerance = tuple[float, float]  # relative and absolute
Results = Mapping[str, np.ndarray]

EXACTLY: Tolerance = (0.0, 0.0)
_MORE_RUNS, _MOST_DIAGNOSED = 3, 2  # how often a failed case is repeated; how many cases of each test function
_AXES = ("t", "direction", "row", "unit")  # dimensions of a recurrent operator's outputs


@dataclass
class Ran:
    """An operator that a test compiled. doing: the driver's current work, such as compiling a kernel, or "". again: function
    that repeats the run. ways: functions that run the problem in other schedules, by the schedule's name.
    """

    problem: Any
    plan: Any
    options: Any
    doing: str = ""
    again: Callable[[], Results] | None = None
    ways: Mapping[str, Callable[[], Results]] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Describe the problem, how vkdml ran it ("ran"), and what the driver does now ("doing")."""
        return {**described(self.problem), "ran": self.facts(), "doing": self.doing}

    def facts(self) -> dict[str, Any]:
        loop = self.plan.tiling.loop if self.plan.tiling else None
        return {"schedule": loop.schedule if loop else "",
                "kernels": sorted({dispatch.kernel for dispatch in self.plan.execute}),
                "options": forced(self.options)}


def described(problem: Any) -> dict[str, Any]:
    """Describe a problem by facts that do not depend on vkdml's plan: operator, type of elements, sizes, features."""
    return {"operator": describing.name(problem), "element": problem.element.name, "problem": describing.sentence(problem),
            "sizes": describing.sizes(problem), "features": sorted(describing.features(problem))}


class Running:
    """The running test, and the operator that it compiled last. changed: called when the report should be updated."""

    def __init__(self) -> None:
        self.test = ""
        self.last: Ran | None = None
        self.changed: Callable[[], None] = lambda: None
        self.diagnosed: Counter[str] = Counter()

    def begin(self, test: str) -> None:
        RECORDS.clear()
        self.test, self.last = test, None

    def note(self, problem: Any, plan: Any, options: Any) -> None:
        self.last = Ran(problem, plan, options)
        self.changed()

    def can_run_again(self, again: Callable[[], Results], ways: Mapping[str, Callable[[], Results]] = {}) -> None:
        if self.last is not None:
            self.last.again, self.last.ways = again, ways


RUNNING = Running()


def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note in RUNNING each operator that a test compiles, and each kernel while the driver compiles it."""
    compile_it, call = Compiled.__init__, Driver.call

    def followed(self: Driver, doing: str, function: Callable[[], Any]) -> Any:
        if not doing.startswith("compiling") or RUNNING.last is None:
            return call(self, doing, function)
        RUNNING.last.doing = doing
        RUNNING.changed()
        made = call(self, doing, function)
        RUNNING.last.doing = ""
        RUNNING.changed()
        return made

    def noted(self: Compiled, *arguments: Any, **options: Any) -> None:
        compile_it(self, *arguments, **options)
        RUNNING.note(self.problem, self.plan, self._options)

    monkeypatch.setattr(Compiled, "__init__", noted)
    monkeypatch.setattr(Driver, "call", followed)


def compare(operator: str, element: str, features: Iterable[str], found: Results, expected: Results, tolerance: Tolerance,
            problem: Any = None) -> None:
    """Compare an operator's outputs with the expected ones (arrays by name), and record the result. element: name of their
    type. problem: by default the one compiled last. Raises AssertionError with a full description if an output is wrong.
    """
    ran = RUNNING.last
    problem = problem or (ran.problem if ran else None)
    about = described(problem) if problem else {}
    record = {**about, "operator": operator, "element": element, "features": sorted({*about.get("features", ()), *features}),
              "ran": ran.facts() if ran else None, **dict(zip(("absolute", "ulp", "fraction"), _errors(found, expected, element, tolerance)))}
    RECORDS.append(record)
    wrong = first_wrong(found, expected, tolerance)
    if wrong is None:
        return
    record["wrong"] = {**wrong, "axes": _AXES if record.get("sizes") and len(wrong.get("at", ())) == len(_AXES) else ()}
    RUNNING.changed()  # recorded before further runs, which may crash
    function = RUNNING.test.partition("[")[0]
    if ran and ran.again and RUNNING.diagnosed[function] < _MOST_DIAGNOSED:
        RUNNING.diagnosed[function] += 1
        record["again"] = _again(ran, found, expected, tolerance)
    raise AssertionError("\n".join(failures.lines(record)))


def _errors(found: Results, expected: Results, element: str, tolerance: Tolerance) -> Iterable[float | None]:
    if tolerance == EXACTLY:
        return [0.0] * 3 if first_wrong(found, expected, tolerance) is None else [None] * 3
    return map(largest, zip(*(largest_errors(found[name], expected[name], element, tolerance) for name in expected)))


def first_wrong(found: Results, expected: Results, tolerance: Tolerance) -> dict[str, Any] | None:
    """Describe the first wrong element of the first wrong output. Returns None if all are right."""
    for name, right in expected.items():
        result = found[name]
        if result.shape != right.shape:
            return {"tensor": name, "said": f"found the sizes {result.shape}, expected {right.shape}"}
        relative, absolute = tolerance
        bits = [np.ascontiguousarray(array).view(f"u{array.itemsize}") for array in (result, right)] if result.dtype == right.dtype else None
        exact, values = right.astype(np.float64), result.astype(np.float64)
        with np.errstate(all="ignore"):
            off = np.abs(values - exact)
            allowed = absolute + relative * np.abs(exact)
        if tolerance == EXACTLY:
            is_wrong = bits[0] != bits[1] if bits else result != right
        else:
            is_wrong = ~((values == exact) | (off <= allowed) | (np.isnan(values) & np.isnan(exact)))
        if is_wrong.any():
            at = tuple(int(place) for place in np.argwhere(is_wrong)[0])
            said = f"found {values[at]:.4g}, expected {exact[at]:.4g}"
            if np.isfinite(off[at]):
                said += f", off by {off[at]:.2g}" + (f", {float(f'{off[at] / allowed[at]:.3g}'):,g} times the tolerance" if allowed[at] else "")
            return {"tensor": name, "at": at, "said": said, "count": int(is_wrong.sum()), "elements": result.size,
                    "kind": _kind(values[is_wrong])}
    return None


def _kind(values: np.ndarray) -> str:
    """Return "NaN", "infinite" or "0" if all of these wrong elements are that, else ""."""
    kinds = {"NaN": np.isnan(values), "infinite": np.isinf(values), "0": values == 0}
    return next((kind for kind, are in kinds.items() if are.all()), "")


def _again(ran: Ran, found: Results, expected: Results, tolerance: Tolerance) -> dict[str, Any]:
    def outcome(run: Callable[[], Results]) -> str:
        try:
            results = run()
        except InvalidArgumentError:
            return "refused"
        except (VkdmlError, AssertionError) as error:
            return str(error).splitlines()[0]
        if first_wrong(results, expected, tolerance) is None:
            return "right"
        same = all(np.array_equal(np.ascontiguousarray(results[name]).view(np.uint8), np.ascontiguousarray(found[name]).view(np.uint8))
                   for name in expected)
        return "the same wrong bits" if same else "other wrong bits"

    assert ran.again
    runs = Counter(outcome(ran.again) for _ in range(_MORE_RUNS))
    return {"runs": dict(runs), "ways": {name: outcome(run) for name, run in ran.ways.items()}}


def largest_errors(result: np.ndarray, expected: np.ndarray, element: str,
                   tolerance: Tolerance) -> tuple[float | None, float | None, float | None]:
    """Return the largest absolute error, the largest in ULP, and the largest as a share of the tolerance; None if not finite.
    Near 0, where the absolute tolerance exceeds the relative one, the ULP is that of the number at which both are equal.
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
    """Return each float64 value's ULP in the type `element`; for zeros and subnormals, that of the smallest normal number."""
    info = ml_dtypes.finfo(element)
    rounded = np.minimum(np.abs(values), float(info.max)).astype(element).astype(np.float64)
    _, exponents = np.frexp(np.maximum(rounded, float(info.smallest_normal)))  # frexp's exponents are one more than IEEE's
    return np.ldexp(1.0, exponents - 1 - info.nmant)


class Reporter:
    """A pytest plugin: writes a line of JSON when a test begins, compiles or ends. Skips tests that ended in earlier runs."""

    def __init__(self, path: Path, tolerances: Mapping[str, Tolerance], ways: Iterable[str]) -> None:
        path.touch()
        self._ended = {test["test"] for test in results.read(path)[1] if test["outcome"] != results.UNFINISHED}
        self._file = path.open("a", buffering=1)
        self._tolerances, self._ways = tolerances, list(ways)
        self._left_out = 0
        RUNNING.changed = self._unfinished

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._left_out += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._add({"selected": len(session.items), "left_out": self._left_out, "tolerances": self._tolerances, "ways": self._ways})
        session.items[:] = [item for item in session.items if item.nodeid not in self._ended]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome, self._failure, self._seconds = "passed", "", 0.0
        RUNNING.begin(nodeid)
        self._unfinished()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.outcome != "passed" and self._outcome != "failed":
            self._outcome = report.outcome
            self._failure = _reason(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        running = {"running": _running()} if self._outcome == "failed" else {}
        self._add({"test": nodeid, "outcome": self._outcome, "seconds": round(self._seconds, 3), "failure": self._failure,
                   "records": RECORDS, **running})
        if any(one.driver.lost or one.driver.running for one in gpu._open.values()):
            os._exit(results.DEVICE_LOST)  # a lost device's objects cannot be used, and the driver may hang at the exit

    def _unfinished(self) -> None:
        self._add({"test": RUNNING.test, "outcome": results.UNFINISHED, "records": RECORDS, "running": _running()})

    def _add(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


def _running() -> dict[str, Any] | None:
    return RUNNING.last.described() if RUNNING.last else None


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text: str = crash.message if crash else report.longreprtext
    return re.sub(r"Failed: Timeout \(>(\d+).*", r"hung: not done in \1 s", text)
