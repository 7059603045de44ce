"""Writes the report of conformance runs as Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vkdml_lab import reports
from vkdml_lab.conformance import failures
from vkdml_lab.conformance.results import Record
from vkdml_lab.conformance.suite import Run

Keys = Callable[[Record], Iterable[tuple[str, ...]]]

_ERRORS = {"absolute": ("largest error", ".1e"), "ulp": ("in ULP", ".3g"), "fraction": ("of the tolerance", ".1%")}
_DESCRIBED = 10  # failures with a full description; the others get a line

_NOTE = """A case compares an operator's results with the float64 reference, with ONNX's test data or with ONNX Runtime.
The tolerance of an element is its type's absolute part, and its relative part times the number that is expected. *Of the
tolerance* is the error over that: above 100% a case fails. ULP are units in the last place of the type; numbers that are so
small that the absolute part is the larger one count as the number where both are the same, as near 0 any error is many ULP. The
three largest errors of a row may be of three elements.
"""


def write(runs: Sequence[Run], folder: Path) -> None:
    text = reports.document("# vkdml conformance", _NOTE, *map(_section, runs))
    reports.write(folder, {"conformance.md": text, "conformance.json": content(runs)})


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the content of conformance.json: all runs as JSON values."""
    return {"runs": [asdict(run) for run in runs]}


def largest(errors: Iterable[float | None]) -> float | None:
    """Return the largest error. None stands for an error that is not finite, which is the largest."""
    worst = max(np.inf if error is None else error for error in errors)
    return None if worst == np.inf else worst


def summarize(run: Run, keys: Keys) -> dict[tuple[str, ...], list[Any]]:
    """Return by key: the numbers of all records, of those in passed and of those in failed tests, and the largest errors."""
    groups: dict[tuple[str, ...], list[tuple[bool, Record]]] = {}
    for test in run.tests:
        for record in test.get("records", []):
            for key in keys(record):
                groups.setdefault(key, []).append((test["outcome"] == "passed", record))
    return {key: [len(group), sum(passed for passed, _ in group), sum(not passed for passed, _ in group),
                  *(largest(record[error] for _, record in group) for error in _ERRORS)]
            for key, group in sorted(groups.items())}


def by_operator(record: Record) -> Iterable[tuple[str, ...]]:
    return [(record["operator"], record["element"])]


def by_feature(record: Record) -> Iterable[tuple[str, ...]]:
    return [(feature,) for feature in record["features"]]


def _section(run: Run) -> str:
    compared = [_nearest(run), _table(run, ["operator", "type"], by_operator), _table(run, ["feature"], by_feature),
                _tolerances(run)] if any(test.get("records") for test in run.tests) else []
    left_out = run.scope.get("left_out")
    return reports.document(
        f"## {run.device['index']}: {run.device['name']}", _about(run), run.outcome,
        f"```\n{run.output}\n```" if run.output else "",
        *_failures(run),
        *compared,
        reports.bullets("Skipped:", [f"{n}: {why}" for why, n in Counter(map(failures.first_line, run.skipped)).most_common()]),
        reports.bullets("Not reached, none of their tests:", not_reached(run)),
        f"{left_out} tests of the suite were not chosen." if left_out else "")


def not_reached(run: Run) -> list[str]:
    """Return the names of the test functions of which no test ran, because --quick's time was over."""
    functions: dict[str, list[bool]] = {}
    for test in run.tests:
        functions.setdefault(test["test"].partition("[")[0], []).append(failures.is_late(test))
    return [f"`{function}`" for function, late in functions.items() if all(late)]


def _failures(run: Run) -> list[str]:
    """Return the report's paragraphs about failed tests: a table by kind, then the facts about each. [] if none failed."""
    failed = [failures.described(test, failures.repeat(test, run.about)) for test in run.failed[:_DESCRIBED]]
    rest = [f"`{test['test']}`: {failures.first_line(test)}" for test in run.failed[_DESCRIBED:]]
    return [f"### {len(run.failed)} failed", failures.by_kind(run.tests), *failed,
            reports.bullets("The others, which `vkdml reproduce` describes:", rest)] if run.failed else []


def _about(run: Run) -> str:
    info, software, chosen = run.device, run.about["software"], run.about["chosen"]
    layers = [f"{name} {version}" for name, version in software["layers"].items()]
    options = [*(f"--only {name}" for name in chosen["only"]), *(f"--{name}" for name in ("quick", "long") if chosen[name])]
    packages = [f"{name} {software[name]}" for name in ("vkdml", "Python", "numpy", "onnx", "onnxruntime", "kp")]
    facts = {"device": f"{info['name']}, {info['type']}, vendor {info['vendor']:#x}, device {info['device_id']:#x}",
             "driver": f"{info['driver']} {info['driver_version']}, id {info['driver_id']}",
             "Vulkan": f"{info['api_version']}; loader {software['loader']}",
             "layers there": ", ".join(layers) or "none",
             "software": ", ".join(packages),
             "system": software["system"],
             "chosen": ", ".join([*options, f"--seed {chosen['seed']}"])}
    return reports.table({"": name, " ": fact} for name, fact in facts.items())


def _nearest(run: Run) -> str:
    """Return a sentence about the case whose error is the largest share of its tolerance."""
    records = [(test["test"], record) for test in run.tests for record in test.get("records", [])]
    name, worst = max(records, key=lambda pair: np.inf if pair[1]["fraction"] is None else pair[1]["fraction"])
    share = "not finite" if worst["fraction"] is None else f"{worst['fraction']:.1%}"
    return f"The largest share of a tolerance is {share}: {worst['operator']}, {worst['element']}, in `{name}`."


def _table(run: Run, names: Sequence[str], keys: Keys) -> str:
    titles = [*names, "cases", "passed", "failed", *(title for title, _ in _ERRORS.values())]
    formats = [form for _, form in _ERRORS.values()]
    return reports.table(dict(zip(titles, [*key, *values[:3], *map(_shown, values[3:], formats)]))
                         for key, values in summarize(run, keys).items())


def _shown(error: float | None, form: str) -> str:
    return "not finite" if error is None else format(error, form)


def _tolerances(run: Run) -> str:
    return reports.table({"type": name, "relative": f"{relative:g}", "absolute": f"{absolute:g}"}
                         for name, (relative, absolute) in run.scope["tolerances"].items())
