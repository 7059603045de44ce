"""`vkdml conformance --target`: a library asked all nodes, in a process of its own, and what it is found to do."""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from tqdm import tqdm

import vkdml
from bench.nodes import Node
from bench.processes import Process
from bench.targets import target
from tests import support
from tools.targets import corpora, judging, report, shrinking
from tools.targets.judging import CRASHED, HUNG, REFUSED, UNSUPPORTED, WRONG, Verdict
from vkdml.errors import InvalidArgumentError
from vkdml.laboratory import WorkerError, as_json

PATIENCE = 60.0  # seconds without an answer after which a library hangs
MINUTES = 15.0  # of a run; of --long, as many as it takes
MOST_FINDINGS, MOST_SHRUNK, MOST_HUNG = 10, 25, 5
FINDINGS = (WRONG, CRASHED, HUNG)


@dataclass
class Finding:
    """One mistake. cause: what results are as if, or what the smallest case has. cases: names of the nodes that it explains."""

    cause: str
    node: Node
    verdict: Verdict
    code: str
    cases: list[str] = field(default_factory=list)


@dataclass
class Run:
    """What a library was found to do. rows: one for each node that it was asked; planned: how many there were to ask; shrunk:
    for how many a smaller one was looked for.
    """

    about: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    planned: int = 0
    shrunk: int = 0
    seconds: float = 0.0
    stopped: str = ""


class Asked:
    """A target's process, started again where it has ended."""

    def __init__(self, text: str, patience: float = PATIENCE) -> None:
        self.process = Process(target(text), patience)
        self.process.open()

    def verdict(self, node: Node) -> Verdict:
        try:
            self.process.open()
            outputs = self.process.ask("compute", node)
        except WorkerError as error:
            said = " ".join(str(error).split())[:300]
            return Verdict(next((kind for kind in (CRASHED, HUNG) if said.startswith(kind)), REFUSED), said)
        return Verdict(UNSUPPORTED, outputs) if isinstance(outputs, str) else judging.judge(node, outputs)

    def code(self, node: Node) -> str:
        self.process.open()
        code: str = self.process.ask("code", node)
        return code


def main(chosen: argparse.Namespace) -> int:
    """Write a report. The exit code is 1 if anything was wrong, crashed or hung."""
    try:
        asked = Asked(chosen.target)
    except (ValueError, WorkerError) as error:
        raise InvalidArgumentError("conformance", "--target", chosen.target, str(error)) from None
    try:
        found = ask_all(asked, chosen.target, chosen.seed, chosen.long, tuple(chosen.only))
    finally:
        asked.process.close()
    report.write_report(found, chosen.output)
    print(report.outcome(found), file=sys.stderr)
    print(as_json(report.content(found)) if chosen.json else f"report: {chosen.output}/{report.MARKDOWN}")
    return int(any(row["outcome"] in FINDINGS for row in found.rows))


def nodes(is_long: bool, only: tuple[str, ...]) -> Iterator[tuple[str, str, Node]]:
    for corpus, made in (corpora.LONG if is_long else corpora.CORPORA).items():
        for name, node in made():
            if not only or any(word.lower() in f"{corpus} {name}".lower() for word in only):
                yield corpus, name, node


def ask_all(asked: Asked, text: str, seed: int, is_long: bool, only: tuple[str, ...]) -> Run:
    support.base_seed = seed
    options = [*["--long"] * is_long, *(["--seed", str(seed)] if seed else []), *(["--only", *only] if only else [])]
    command = shlex.join(["vkdml", "conformance", "--target", text, *options])
    found = Run({"target": text, **asked.process.description, "command": command,
                 "software": {"vkdml": vkdml.__version__, "onnx": onnx.__version__, "numpy": np.__version__,
                              "Python": platform.python_version(), "system": platform.platform()},
                 "date": time.strftime("%Y-%m-%d", time.gmtime())})
    planned = list(nodes(is_long, only))
    began, hung = time.monotonic(), 0
    found.planned = len(planned)
    for corpus, name, node in tqdm(planned, disable=None, unit="node"):
        if not is_long and time.monotonic() - began > 60 * MINUTES:
            found.stopped = f"{MINUTES:g} minutes were over"
            break
        verdict = asked.verdict(node)
        hung += verdict.outcome == HUNG
        if verdict.outcome in FINDINGS and (finding := finding_of(asked, found, node, verdict)):
            finding.cases.append(name)
        found.rows.append(row(corpus, name, node, verdict))
        if hung == MOST_HUNG:
            found.stopped = f"it hung {MOST_HUNG} times"
            break
    found.seconds = time.monotonic() - began
    return found


def row(corpus: str, name: str, node: Node, verdict: Verdict) -> dict[str, Any]:
    return {"corpus": corpus, "name": name, "op": node.op, "features": sorted(report.features(node)),
            "outcome": verdict.outcome, "said": verdict.said,
            "share": verdict.share if np.isfinite(verdict.share) else None, "cause": verdict.cause}


def finding_of(asked: Asked, found: Run, node: Node, verdict: Verdict) -> Finding | None:
    """The finding that a verdict is of, made if there is none yet; None where enough nodes have been shrunk."""
    known = explained(found.findings, node, verdict)
    if known or found.shrunk == MOST_SHRUNK:
        return known
    found.shrunk += 1
    made = smallest(asked, node, verdict)
    same = next((other for other in found.findings if other.cause == made.cause), None)
    if same is None:
        found.findings.append(made)
    return same or made


def explained(findings: list[Finding], node: Node, verdict: Verdict) -> Finding | None:
    """The finding that has the same cause or, without one, whose smallest case has nothing that this node has not."""
    for known in findings:
        if known.verdict.outcome != verdict.outcome:
            continue
        if verdict.cause == known.verdict.cause != "" or (
                node.op == known.node.op and report.features(known.node) - report.USUAL <= report.features(node)):
            return known
    return None


def smallest(asked: Asked, node: Node, verdict: Verdict) -> Finding:
    """The finding of the smallest node of which the same comes. A hang is told as it is, as each would take as long."""
    is_same: Callable[[Node], bool] = lambda other: (  # noqa: E731
        (now := asked.verdict(other)).outcome == verdict.outcome and (not verdict.cause or now.cause == verdict.cause))
    small = node if verdict.outcome == HUNG or not is_same(node) else shrinking.shrink(node, is_same)
    last = asked.verdict(small) if verdict.outcome == WRONG else verdict
    cause = last.cause or f"{small.op}: {', '.join(sorted(report.features(small) - report.USUAL)) or 'in general'}"
    return Finding(f"{cause} ({last.outcome})" if last.outcome != WRONG else cause, small, last, asked.code(small))
