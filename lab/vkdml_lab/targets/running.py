"""Runs `vkdml conformance --target`: has a library compute all nodes, in a process of its own, and writes a report."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from tqdm import tqdm

import vkdml
from vkdml.errors import InvalidArgumentError
from vkdml_lab.bench.nodes import Node
from vkdml_lab.bench.processes import Process, machine
from vkdml_lab.bench.targets import target
from vkdml_lab.processes import WorkerError
from vkdml_lab.reports import as_json, write
from vkdml_lab.suite import support
from vkdml_lab.targets import corpora, judging, report, shrinking
from vkdml_lab.targets.judging import CRASHED, FINDINGS, HUNG, REFUSED, UNSUPPORTED, WRONG, Verdict
from vkdml_lab.targets.report import Finding, TargetRun

PATIENCE = 60.0  # seconds without an answer before a library counts as hung
MINUTES, QUICK_MINUTES = 10.0, 1.0  # for all nodes; with --long there is no limit
EXPLAINING = 0.4  # additional share of that time, to shrink wrong nodes
MOST_SHRUNK, MOST_HUNG = 25, 5


class LibraryProcess:
    """A process in which the library named `text` computes nodes. After a crash or hang, a new one serves the next node."""

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

    def code(self, node: Node) -> tuple[str, str]:
        self.process.open()
        code: tuple[str, str] = self.process.ask("code", node)
        return code


def main(chosen: argparse.Namespace) -> int:
    """Test a library, and write the report. Returns an exit code: 1 if any result was wrong, or the library crashed or hung."""
    try:
        asked = LibraryProcess(chosen.target)
    except (ValueError, WorkerError) as error:
        raise InvalidArgumentError("conformance", "--target", chosen.target, str(error)) from None
    try:
        minutes = np.inf if chosen.long else QUICK_MINUTES if chosen.quick else MINUTES
        found = ask_all(asked, chosen.target, chosen.seed, chosen.long, tuple(chosen.only), minutes)
    finally:
        asked.process.close()
    write(chosen.output, {report.MARKDOWN: report.markdown(found), report.DATA: report.content(found)})
    print(report.outcome(found), file=sys.stderr)
    print(as_json(report.content(found)) if chosen.json else f"report: {chosen.output}/{report.MARKDOWN}")
    return int(any(row["outcome"] in FINDINGS for row in found.rows))


def nodes(is_long: bool, only: tuple[str, ...]) -> list[tuple[str, str, Node]]:
    """Return (corpus, name, node) of all nodes, or of those whose names contain a text in `only`, in random order."""
    known = corpora.LONG if is_long else corpora.CORPORA
    found = [(corpus, name, node) for corpus, made in known.items() for name, node in made()
             if not only or any(word.lower() in f"{corpus} {name}".lower() for word in only)]
    return [found[index] for index in support.random_numbers(38).permutation(len(found))]


def ask_all(asked: LibraryProcess, text: str, seed: int, is_long: bool, only: tuple[str, ...], minutes: float = MINUTES
            ) -> TargetRun:
    """Have a library (text: its name) compute nodes for `minutes`, then shrink wrong ones for up to EXPLAINING * `minutes`."""
    support.base_seed = seed
    options = [*["--long"] * is_long, *["--quick"] * (minutes == QUICK_MINUTES),
               *(["--seed", str(seed)] if seed else []), *(["--only", *only] if only else [])]
    command = shlex.join(["vkdml", "conformance", "--target", text, *options])
    found = TargetRun({"target": text, **asked.process.description, "command": command,
                 "software": {"vkdml": vkdml.__version__, "onnx": onnx.__version__, "numpy": np.__version__, **machine()},
                 "date": time.strftime("%Y-%m-%d", time.gmtime())})
    planned = nodes(is_long, only)
    began, hung = time.monotonic(), 0
    found.planned = len(planned)
    mistakes: list[tuple[str, Node, Verdict]] = []
    for corpus, name, node in tqdm(planned, disable=None, unit="node"):
        if time.monotonic() - began > 60 * minutes:
            found.stopped = f"{minutes:g} minutes were over: a sample by the seed"
            break
        verdict = asked.verdict(node)
        hung += verdict.outcome == HUNG
        found.rows.append(row(corpus, name, node, verdict))
        if verdict.outcome in FINDINGS:
            mistakes.append((name, node, verdict))
        if hung == MOST_HUNG:
            found.stopped = f"it hung {MOST_HUNG} times"
            break
    found.findings = explain(asked, mistakes, time.monotonic() + 60 * minutes * EXPLAINING)
    found.seconds = time.monotonic() - began
    return found


def row(corpus: str, name: str, node: Node, verdict: Verdict) -> dict[str, Any]:
    return {"corpus": corpus, "name": name, "op": node.op, "features": sorted(report.features(node)),
            "outcome": verdict.outcome, "said": verdict.said,
            "share": verdict.share if np.isfinite(verdict.share) else None, "cause": verdict.cause}


def explain(asked: LibraryProcess, mistakes: Sequence[tuple[str, Node, Verdict]], until: float) -> list[Finding]:
    """Group mistakes into findings, simple nodes first. After the time `until`, or after MOST_SHRUNK shrunk nodes, no new
    findings are made, and mistakes that none explains are left out.
    """
    findings: list[Finding] = []
    shrunk = 0
    for name, node, verdict in tqdm(sorted(mistakes, key=_complexity), disable=None, unit="mistake"):
        known = explained(findings, node, verdict)
        if known is None and shrunk < MOST_SHRUNK and time.monotonic() < until:
            shrunk += 1
            made = smallest(asked, node, verdict, until)
            known = next((other for other in findings if other.cause == made.cause), made)
            findings += [made] if known is made else []
        if known:
            known.cases.append(name)
    return findings


def _complexity(mistake: tuple[str, Node, Verdict]) -> tuple[bool, int, int, str]:
    name, node, verdict = mistake
    return not verdict.cause, len(report.features(node)), sum(array.size for array in node.inputs.values()), name


def explained(findings: list[Finding], node: Node, verdict: Verdict) -> Finding | None:
    """Return the finding of a verdict's cause or, if that is "", one whose `needs` the node has. None: no such finding."""
    alike = (known for known in findings if known.verdict.outcome == verdict.outcome)
    return next((known for known in alike if (verdict.cause == known.verdict.cause if verdict.cause else
                                              node.op == known.node.op and known.needs <= report.features(node))), None)


def smallest(asked: LibraryProcess, node: Node, verdict: Verdict, until: float) -> Finding:
    """Shrink a node while outcome and cause stay the same. Returns a finding. Nodes that hang are not shrunk, to save time."""
    is_same: Callable[[Node], bool] = lambda other: (  # noqa: E731
        (now := asked.verdict(other)).outcome == verdict.outcome and (not verdict.cause or now.cause == verdict.cause))
    small = node if verdict.outcome == HUNG or not is_same(node) else shrinking.shrink(node, is_same, until)
    last = asked.verdict(small) if verdict.outcome == WRONG else verdict
    needs = report.features(small) & report.features(node) - report.USUAL
    cause = last.cause or f"{small.op}: {', '.join(sorted(needs)) or 'in general'}"
    return Finding(f"{cause} ({last.outcome})" if last.outcome != WRONG else cause, needs, small, last, asked.code(small))
