"""Makes the report about a library: how many nodes with each feature are right, and a program that shows each mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkdml_lab.bench.nodes import ACTIVATIONS, Node
from vkdml_lab.reports import bullets, document, table
from vkdml_lab.targets.judging import FINDINGS, OPEN, OUTCOMES, REFUSED, RIGHT, UNDEFINED, UNSUPPORTED, Verdict

MARKDOWN, DATA = "conformance.md", "conformance.json"
USUAL = {"float32", "forward"}
_GIVEN = {"B": "bias", "sequence_lens": "sequence_lens", "initial_h": "initial_h", "initial_c": "initial_c", "P": "peepholes"}
_MOST_FINDINGS, _MOST_REASONS, _LONG_LITERAL = 10, 8, 2000
_MANY = 65_535
_SHOWN = 240  # most characters of a reason


@dataclass
class Finding:
    """A mistake of a library. cause: the known mistake with the same results, or features of the smallest case. node, verdict:
    this case. needs: features that it shares with the node from which it was shrunk. cases: names of nodes with the mistake.
    code: a program that shows it, in two parts: the beginning of all the library's programs, and the rest.
    """

    cause: str
    needs: set[str]
    node: Node
    verdict: Verdict
    code: tuple[str, str]
    cases: list[str] = field(default_factory=list)


@dataclass
class TargetRun:
    """All results of a library. rows: a dictionary for each node that it was given. planned: number of nodes planned."""

    about: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    planned: int = 0
    seconds: float = 0.0
    stopped: str = ""


def features(node: Node) -> set[str]:
    """Return the names of a node's features, such as "bidirectional" and "clip", in the report's tables."""
    activations = node.activations
    half, lengths = activations[:len(ACTIVATIONS[node.op])], node.inputs.get("sequence_lens")
    numbers = [array for array in node.inputs.values() if array.dtype.kind != "i"]
    said = {"clip": node.get("clip") is not None, "a clip of 0": node.get("clip") == 0,
            "input_forget": bool(node.get("input_forget")),
            "linear_before_reset": bool(node.get("linear_before_reset")), "layout 1": bool(node.get("layout")),
            "activations that differ by direction": node.directions == 2 and half * 2 != activations,
            "a length of 0": lengths is not None and bool((lengths == 0).any()),
            "B = 0": node.batch == 0, "T = 1": node.steps == 1,
            f"T * B >= {_MANY:,}": node.steps * node.batch >= _MANY,
            "NaN or infinity": not all(np.isfinite(array.astype(np.float64)).all() for array in numbers)}
    return {node.element, node.get("direction"), *(word for name, word in _GIVEN.items() if name in node.inputs),
            *(word for word, is_so in said.items() if is_so),
            *(name for name in activations if name not in ACTIVATIONS[node.op]),
            *(["other order of activations"] if activations != ACTIVATIONS[node.op] * node.directions
              and set(activations) <= set(ACTIVATIONS[node.op]) else [])}


def outcome(run: TargetRun) -> str:
    counts = Counter(row["outcome"] for row in run.rows)
    said = ", ".join(f"{counts[one]} {one}" for one in OUTCOMES if counts[one])
    stopped = f"; {run.stopped}" if run.stopped else ""
    return f"{len(run.rows)} of {run.planned} nodes in {run.seconds:.0f} s: {said}{stopped}"


def content(run: TargetRun) -> dict[str, Any]:
    findings = [{"cause": one.cause, "outcome": one.verdict.outcome, "said": one.verdict.said, "cases": one.cases,
                 "code": one.code, "node": as_json(one.node)} for one in run.findings]
    return {"about": run.about, "planned": run.planned, "seconds": run.seconds, "stopped": run.stopped, "outcome": outcome(run),
            "findings": findings, "rows": run.rows}


def as_json(node: Node) -> dict[str, Any]:
    return {"op": node.op, "attributes": dict(node.attributes), "element": node.element,
            "shapes": {name: list(array.shape) for name, array in node.inputs.items()},
            "inputs": {name: array.astype(np.float64).tolist() for name, array in node.inputs.items()
                       if array.size <= _LONG_LITERAL}}


def markdown(run: TargetRun) -> str:
    about = run.about
    return document(
        f"# {about['target']}", f"{about['version']}, {about['device']}; {about['date']}; {_listed(about['software'])}",
        f"`{about['command']}`", outcome(run), by_feature(run.rows), *map(finding, run.findings[:_MOST_FINDINGS]),
        unexplained(content(run)),
        bullets("Further findings:", [f"{one.cause}: {one.verdict.said}" for one in run.findings[_MOST_FINDINGS:]]),
        reasons("Refused by the library:", run.rows, REFUSED), reasons("Cannot be said in its terms:", run.rows, UNSUPPORTED),
        reasons("Not judged, as ONNX's texts leave it open:", run.rows, OPEN),
        bullets("What ONNX's texts leave open:", [f"{what}: {then}" for what, then in UNDEFINED.items()]))


def unexplained(report: Mapping[str, Any]) -> str:
    """Return a sentence with the number of mistakes in a report that no finding explains, or "" if there are none."""
    explained = {name for one in report["findings"] for name in one["cases"]}
    count = sum(row["outcome"] in FINDINGS and row["name"] not in explained for row in report["rows"])
    return f"Nodes with other results that were not looked into, for want of time: {count}." if count else ""


def by_feature(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table by operator and feature: how often each outcome occurred, and the largest error of right nodes."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        for feature in ("all", *row["features"]):
            groups.setdefault((row["op"], feature), []).append(row)
    ordered = sorted(groups.items(), key=lambda pair: (pair[0][0], pair[0][1] != "all", pair[0][1]))
    return table({"operator": op, "feature": feature,
                  **{one: sum(row["outcome"] == one for row in group) or None for one in OUTCOMES},
                  "largest error, of the bound": _largest(group)} for (op, feature), group in ordered)


def _largest(group: Iterable[Mapping[str, Any]]) -> str | None:
    shares = [row["share"] for row in group if row["outcome"] == RIGHT and row["share"] is not None]
    return f"{max(shares):.0%}" if shares else None


def finding(one: Finding) -> str:
    what = f"{len(one.cases)} nodes, such as `{one.cases[0]}`" if len(one.cases) > 1 else f"`{one.cases[0]}`"
    begin, rest = one.code
    code = begin + rest if len(rest) < _LONG_LITERAL else "# Its arrays are too large to show; --export writes such cases.\n"
    return document(f"## {one.cause}", f"{what}. The smallest case: {one.verdict.said}", f"```python\n{code}```")


def reasons(title: str, rows: Iterable[Mapping[str, Any]], kind: str) -> str:
    counted = Counter(" ".join(row["said"].split())[:_SHOWN] for row in rows if row["outcome"] == kind).most_common()
    return bullets(title, [f"{count}: {said}" for said, count in counted], _MOST_REASONS)


def _listed(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items())
