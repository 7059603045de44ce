"""Writes docs/who-is-right.md from reports of `vkdml conformance --target`: python -m vkdml_lab.targets.page FOLDER ...

The page describes a finding on two conditions. A second library computes its smallest case as the reference does. And
checked.json, which is written by hand, has a text on its cause; an entry with "said" is only for the result that it quotes. The
page lists all other findings, with the reason for dropping them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vkdml_lab import ROOT
from vkdml_lab.bench.nodes import Node
from vkdml_lab.bench.one_node import TEXT
from vkdml_lab.reports import bullets, document, table, write
from vkdml_lab.suite.support import DTYPES
from vkdml_lab.targets import running
from vkdml_lab.targets.judging import FINDINGS, OUTCOMES, REFUSED, RIGHT, UNDEFINED, UNSUPPORTED
from vkdml_lab.targets.report import unexplained

PAGE = ROOT / "docs" / "who-is-right.md"
CHECKED = Path(__file__).with_name("checked.json")
SECONDS = ("onnxruntime:cpu", "torch:cpu", "onnx")  # second libraries, which compute the smallest cases of the others
TITLE = "# Who is right?"
INTRODUCTION = """Results of `vkdml conformance --target` for libraries with recurrent layers ([how it
works](correctness.md#other-libraries)). Each library gets the same random problems, features, sizes and special
values; a float64 reference of ONNX's equations judges them. *Refused* and *unsupported* are no mistakes.
Findings are of the named versions; we compared each by hand with the operator's text, and its smallest case
with a second library. *Open* cases were not confirmed this way, or not examined. If a row has fewer nodes than
all, they are a random sample. `python -m vkdml_lab.targets.page` writes this page from the reports of the
commands that it names."""
OURS = """What vkdml does not do: float64 has [limits](kernels/float64.md), 16-bit types are computed in float32, a tensor is
below 4 GiB or the device's limit, and only PyTorch's modules train ([more](../README.md#what-is-supported-and-what-is-not))."""
UNCONFIRMED = "not confirmed by a second library, or not by hand"
OPEN = "open"  # outcome of a mistake without a confirmed finding
COMMON = "All programs below begin with this, which needs onnx and no vkdml:"
BEGIN = "Programs of this library go on with:"
FEATURES = """By feature: nodes that were right / explained by a finding / open / refused or unsupported. A node counts for
each of its features."""
KINDS = ((RIGHT,), FINDINGS, (OPEN,), (REFUSED, UNSUPPORTED))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.targets.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of reports")
    given = parser.parse_args(arguments)
    reports = [json.loads((folder / "conformance.json").read_text()) for folder in given.folders]
    write(PAGE.parent, {PAGE.name: page(reports, json.loads(CHECKED.read_text()))})
    return 0


def page(reports: Sequence[Mapping[str, Any]], checked: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    stands = [standing(one, checked.get(one["about"]["target"], {})) for one in reports]
    counted = [outcomes(*pair) for pair in zip(reports, stands)]
    unclear = table({"ONNX's texts leave open": what, "so": then} for what, then in UNDEFINED.items())
    return document(TITLE, INTRODUCTION, table(map(counts, reports, counted)), "## Features", FEATURES,
                    by_feature(reports, counted), "## Findings", COMMON, code(TEXT),
                    *(section(*pair, checked.get(pair[0]["about"]["target"], {})) for pair in zip(reports, stands)),
                    "## What is not judged", unclear)


def standing(report: Mapping[str, Any], known: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the findings that the page describes, by cause, with the library that confirms each. known: from checked.json."""
    alike = [one for one in report["findings"] if "text" in (by_hand := known.get(one["cause"], {}))
             and by_hand.get("said", one["said"]) == one["said"]]
    return {one["cause"]: also for one in alike if (also := second(report["about"]["target"], one))}


def outcomes(report: Mapping[str, Any], stands: Mapping[str, str]) -> list[str]:
    """Return the outcome of each row of a report. stands: confirmed findings. Mistakes that none of them explains are OPEN."""
    explained = {name for one in report["findings"] if one["cause"] in stands for name in one["cases"]}
    return [OPEN if row["outcome"] in FINDINGS and row["name"] not in explained else row["outcome"] for row in report["rows"]]


def counts(report: Mapping[str, Any], found: Sequence[str]) -> dict[str, Any]:
    about = report["about"]
    return {"library": f"{about['target']} {about['version']}", "nodes": len(found), "of": report["planned"],
            **{one: found.count(one) or None for one in (*OUTCOMES, OPEN)}}


def by_feature(reports: Sequence[Mapping[str, Any]], counted: Sequence[Sequence[str]]) -> str:
    cells: dict[tuple[str, str], Counter[str]] = {}
    for report, found in zip(reports, counted):
        for row, one in zip(report["rows"], found):
            for feature in row["features"]:
                cells.setdefault((feature, report["about"]["target"]), Counter())[one] += 1
    said = {key: " / ".join(str(sum(some[one] for one in kinds)) for kinds in KINDS) for key, some in cells.items()}
    names = [report["about"]["target"] for report in reports]
    return table({"feature": feature, **{name: said.get((feature, name)) for name in names}}
                 for feature in sorted({feature for feature, _ in cells}))


def section(report: Mapping[str, Any], stands: Mapping[str, str], known: Mapping[str, Mapping[str, str]]) -> str:
    about, begin = report["about"], ""
    lines: list[str] = []
    dropped: list[str] = []
    for one in report["findings"]:
        cause = one["cause"]
        if cause in stands:
            begin = one["code"][0].removeprefix(TEXT).strip("\n")
            lines += paragraphs(one, known[cause]["text"], stands[cause])
        else:
            dropped.append(f"{cause}: {known.get(cause, {}).get('dropped', UNCONFIRMED)}")
    ran = f"{about['version']}, {about['device']}, {about['date']}: `{about['command']}`"
    return document(f"### {about['target']}", ran, OURS if about["target"] == "vkdml" else "", BEGIN if begin else "",
                    code(begin), *(lines or ["No finding stands."]),
                    bullets(f"Candidates that were dropped: {len(dropped)}.", dropped), unexplained(report))


def paragraphs(finding: Mapping[str, Any], text: str, also: str) -> Sequence[str]:
    cause, count = finding["cause"], len(finding["cases"])
    return (f"**{cause}** ({count} node{'s' * (count > 1)}). {text} Here {finding['said']}; {also} is right:",
            code(finding["code"][1]))


def code(text: str) -> str:
    return f"```python\n{text.rstrip()}\n```" if text else ""


def second(name: str, finding: Mapping[str, Any]) -> str:
    """Return the first of SECONDS, except `name`, that computes a finding's smallest case right, with its version, or ""."""
    node = as_node(finding["node"])
    for other in SECONDS:
        if other != name:
            asked = running.LibraryProcess(other)
            try:
                if asked.verdict(node).outcome == RIGHT:
                    return f"{other} {asked.process.description['version']}"
            finally:
                asked.process.close()
    return ""


def as_node(said: Mapping[str, Any]) -> Node:
    types = {name: np.int32 if name == "sequence_lens" else DTYPES[said["element"]] for name in said["inputs"]}
    inputs = {name: np.array(values, types[name]).reshape(said["shapes"][name]) for name, values in said["inputs"].items()}
    return Node(said["op"], said["attributes"], inputs)


if __name__ == "__main__":
    raise SystemExit(main())
