"""Writes docs/who-is-right.md from reports of `vkdml conformance --target`: python -m tools.targets.page FOLDER ...

A finding stands there only if checked.json, which is written by hand, says what the operator's text says of it and of this very
case ("said"), and if another library computes the case as the reference does. The others are told with why they were dropped.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.nodes import Node
from tools.targets import running
from tools.targets.corpora import TYPES
from tools.targets.judging import OUTCOMES, REFUSED, RIGHT, UNDEFINED, UNSUPPORTED
from tools.targets.report import unexplained
from vkdml.laboratory import bullets, document, table, write

PAGE = Path(__file__).resolve().parents[2] / "docs" / "who-is-right.md"
CHECKED = Path(__file__).with_name("checked.json")
SECONDS = ("onnxruntime:cpu", "torch:cpu", "onnx")  # asked for the smallest cases of the others
TITLE = "# Who is right?"
INTRODUCTION = """What `vkdml conformance --target` found in libraries with recurrent layers ([how it
asks](correctness.md#other-libraries)): the same random problems, features, sizes and special values for each, judged by a
float64 reference of ONNX's equations. *Refused* and *unsupported* are no mistakes: a library need not have everything. Findings
are of the versions named; each was compared by hand with the operator's text, and its smallest case with a second library.
`python -m tools.targets.page` writes this page."""
BEGIN = "Paste this once, with this library and onnx installed, then any of the cases below:"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.targets.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of reports")
    given = parser.parse_args(arguments)
    reports = [json.loads((folder / "conformance.json").read_text()) for folder in given.folders]
    write(PAGE.parent, {PAGE.name: page(reports, json.loads(CHECKED.read_text()))})
    return 0


def page(reports: Sequence[Mapping[str, Any]], checked: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    open_ = table({"ONNX's texts leave open": what, "so": then} for what, then in UNDEFINED.items())
    return document(TITLE, INTRODUCTION, table(map(counts, reports)), *(section(one, checked) for one in reports),
                    "## What is not judged", open_)


def counts(report: Mapping[str, Any]) -> dict[str, Any]:
    outcomes = Counter(row["outcome"] for row in report["rows"])
    return {"library": f"{report['about']['target']} {report['about']['version']}", "nodes": len(report["rows"]),
            "of": report["planned"], **{one: outcomes[one] or None for one in OUTCOMES}}


def section(report: Mapping[str, Any], checked: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    about, known = report["about"], checked.get(report["about"]["target"], {})
    standing: list[str] = []
    dropped, begin = [], ""
    for finding in report["findings"]:
        by_hand = known.get(finding["cause"], {})
        is_checked = "text" in by_hand and by_hand.get("said", finding["said"]) == finding["said"]
        also = second(about["target"], finding) if is_checked else ""
        if also:
            standing += told(finding, by_hand["text"], also)
            begin = finding["code"][0]
        else:
            why = by_hand.get("dropped", "not confirmed by a second library, or not yet by hand")
            dropped.append(f"{finding['cause']}: {why}")
    tried: dict[str, dict[str, set[str]]] = {}
    for row in report["rows"]:
        for feature in row["features"]:
            tried.setdefault(feature, {}).setdefault(row["op"], set()).add(row["outcome"])
    never = {feature: [op for op, outcomes in ops.items() if outcomes <= {REFUSED, UNSUPPORTED}]
             for feature, ops in tried.items()}
    lacks = [feature if len(ops) == len(tried[feature]) else f"{feature} ({', '.join(ops)})"
             for feature, ops in sorted(never.items()) if ops]
    ran = f"{about['version']}, {about['device']}, {about['date']}: `{about['command']}`"
    return document(f"## {about['target']}", ran, *([BEGIN, code(begin)] if begin else []), *standing,
                    "" if standing else "No finding stands.",
                    bullets(f"Candidates that were dropped: {len(dropped)}.", dropped), unexplained(report),
                    f"Always refused or unsupported: {', '.join(lacks)}." if lacks else "")


def told(finding: Mapping[str, Any], text: str, also: str) -> Sequence[str]:
    cause, count = finding["cause"], len(finding["cases"])
    return (f"**{cause}** ({count} node{'s' * (count > 1)}). {text} Here {finding['said']}; {also} is right:",
            code(finding["code"][1]))


def code(text: str) -> str:
    return f"```python\n{text.rstrip()}\n```" if text else ""


def second(name: str, finding: Mapping[str, Any]) -> str:
    """Another library that computes the smallest case as expected, or nothing."""
    node = as_node(finding["node"])
    for other in SECONDS:
        if other != name:
            asked = running.Asked(other)
            try:
                if asked.verdict(node).outcome == RIGHT:
                    return f"{other} {asked.process.description['version']}"
            finally:
                asked.process.close()
    return ""


def as_node(said: Mapping[str, Any]) -> Node:
    types = {name: np.int32 if name == "sequence_lens" else TYPES[said["element"]] for name in said["inputs"]}
    inputs = {name: np.array(values, types[name]).reshape(said["shapes"][name]) for name, values in said["inputs"].items()}
    return Node(said["op"], said["attributes"], inputs)


if __name__ == "__main__":
    raise SystemExit(main())
