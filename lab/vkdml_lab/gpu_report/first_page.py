"""Writes the report's first page: conclusions in sentences, then a table of the report's parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vkdml
from vkdml import DeviceInfo
from vkdml_lab.gpu_report import beside, model
from vkdml_lab.gpu_report.beside import OURS
from vkdml_lab.gpu_report.devices import FEATURES, MACHINE, MATRICES, PLANNED
from vkdml_lab.gpu_report.found import FAILED, NOT_CHECKED, PASSED, SO_FAR, Found, named
from vkdml_lab.gpu_report.steps import Row
from vkdml_lab.reports import bullets, document, table

ORDER = (FAILED, PASSED, SO_FAR, NOT_CHECKED)
CHECKING = ("conformance", "schedules", "peers", "validation")  # parts that check results
DECIDING = ("float16", "int8", "16-bit storage", "integer dot product", "subgroup-size control", "Vulkan memory model")
MOST_FAILURES, MOST_NAMED = 20, 3
MOST_LOAD = 2.0
COUNTED = ("count", 1), ("of", 1), ("late", 0)  # numbers of tests in a row, and what a row without them counts for


def report(info: DeviceInfo, found: Sequence[Found], quick: bool, load: float = 0.0) -> str:
    """Return the first page as Markdown. found: each part's results. load: the machine's highest load average at a start."""
    by_name = {one.part.name: one for one in found}
    rows = {name: one.checked for name, one in by_name.items()}
    facts = {table: {row["fact"]: row["value"] for row in rows.get("devices", []) if row.get("table") == table}
             for table in (PLANNED, MACHINE, FEATURES)}
    timed = [
        *beside.sentences(by_name["peers"].rows if "peers" in by_name else []),
        *model.sentences(info, rows.get("schedules", [])), *chosen(rows.get("candidates", []))]
    if load > MOST_LOAD:
        timed = [f"**No conclusion from times**: other programs ran (load {load:.1f}; above {MOST_LOAD:g} times say little)."]
    sentences = [right(found), *timed, *features(facts[FEATURES])]
    return document(
        f"# vkdml on {info.name}",
        f"{info.driver} {info.driver_version}, Vulkan {info.api_version}; vkdml {vkdml.__version__}; processor: "
        f"{facts[MACHINE].get('processor', 'unknown')}",
        "**This driver runs on the processor: nothing here is about a GPU.**" if info.is_cpu else "",
        "**Quick: a little of each part, and too few repetitions for times that mean something.**" if quick else "",
        "\n".join(f"- {sentence}" for sentence in sentences),
        bullets("## Failed", [f"{one.part.name}: {failure}" for one in found for failure in one.failures], MOST_FAILURES),
        bullets("## Not checked, which is not passed", [sentence for one in found for sentence in not_checked(one)]),
        "## Parts", table({"part": link(one), "outcome": one.status, "steps": f"{one.done} of {one.steps}", "": one.line}
                          for one in sorted(found, key=lambda one: ORDER.index(one.status))),
        "Each part's folder has its rows in results.jsonl. A second call with the same `--output` goes on with what is left.")


def right(found: Sequence[Found]) -> str:
    """Return a sentence that says whether all of vkdml's checked results are right."""
    rows = [(one.part.name, row) for one in found if one.part.name in CHECKING for row in one.rows
            if row.get("right") is not None and row.get("library", OURS).startswith(OURS)]
    wrong = [name for name, row in rows if not row["right"]]
    counts = {name: [sum(row.get(key, n) for one, row in rows if one == name) for key, n in COUNTED] for name, _ in rows}
    counted = ", ".join(f"{name} {passed} passed" + f" and {total - passed - late} skipped" * (total > passed + late)
                        for name, (passed, total, late) in counts.items())
    others = [one.part.name for one in found if one.status == FAILED and one.part.name not in wrong]
    if wrong:
        where = ", ".join(dict.fromkeys(wrong))
        return f"**Is it right here? No**: {len(wrong)} results have not passed ({where})."
    if others:
        return f"**Is it right here? Not known**: {', '.join(others)} failed."
    if not rows:
        return "**Is it right here? Not checked.**"
    late = {name: f"; its first step had no time for {late} tests" for name, (_, _, late) in counts.items() if late}
    left = ", ".join(f"{one.part.name} ({one.left or 'not checked'}{late.get(one.part.name, '')})" for one in found
                     if one.part.name in CHECKING and one.status in (SO_FAR, NOT_CHECKED))
    return f"**Is it right here? {'So far, yes' if left else 'Yes'}**: {counted}{f'; unfinished: {left}' if left else ''}."


def chosen(rows: Sequence[Row]) -> list[str]:
    """Return a list of one sentence: how much slower than the fastest plan the tuner's and the cost model's choices are."""
    late: dict[str, list[float]] = {who: [row["over the best"] for row in rows if who in row["choice"].split(" and ")
                                          and row["over the best"] is not None] for who in ("tuner", "model")}
    if not all(late.values()):
        return ["**Does it choose well?** Not checked."]
    said = [f"the {who}'s choice takes at most {max(times):.0%} more than the best" for who, times in late.items()]
    return [f"**Does it choose well?** In {len(late['tuner'])} problems {', '.join(said)}."]


def features(facts: dict[str, Any]) -> list[str]:
    """Return a list of one sentence: which features the device has that new kernels could use. [] without facts."""
    if not facts:
        return []
    has, lacks = ([name for name in DECIDING if facts.get(name) is is_so] for is_so in (True, False))
    matrices = facts.get(MATRICES) or []
    types = sorted({word for one in matrices for word in one.split()[1:3]})
    lacking, of = f"; not {' or '.join(lacks)}" if lacks else "", f" (of {' and '.join(types)})" if types else ""
    said = [f"{', '.join(has) or 'none of these'}{lacking}", f"{len(matrices)} {MATRICES}{of}",
            *(f"{name}: {taken(facts[name])}" for name in ("memory", "queues") if name in facts)]
    return [f"**What kernels may use**: {'; '.join(said)}."]


def taken(found: Sequence[str]) -> str:
    """Return a text: which memory types or queue families vkdml uses, and how many there are. found: results of `shown`."""
    return f"{' and '.join(one for one in found if '(taken' in one) or 'none taken'}, of {len(found)}"


def not_checked(one: Found) -> list[str]:
    """Return sentences that say what a part of the report did not check, and why."""
    reasons: dict[str, list[str]] = {}
    for row in one.rows:
        if row.get("not checked"):
            reasons.setdefault(" ".join(row["not checked"].split()), []).append(named(row))
    said = [one.left] if one.left else []
    for reason, names in reasons.items():
        listed = list(dict.fromkeys(names))
        more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
        said.append(": ".join(filter(None, [", ".join(listed[:MOST_NAMED]) + more, reason])))
    return [f"{one.part.name}: {sentence}" for sentence in said]


def link(one: Found) -> str:
    """Return a part's title in Markdown, as a link to the part's tables, or else to its first file, if there is one."""
    tables = f"{one.part.name}/{one.part.name}.md"
    found = next((name for name in one.files if name == tables), None) or next(iter(one.files), None)
    return f"[{one.part.title}]({Path(found).as_posix()})" if found else one.part.title
