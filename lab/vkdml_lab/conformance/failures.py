"""Describes failed tests: a few lines for each, enough for a driver engineer to reproduce it, and a table of all.

A record is a comparison in a test (suite/recording.py). Its `ran` says how vkdml ran it, its `again` what further runs gave.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from vkdml_lab import reports
from vkdml_lab.conformance.results import CRASHED, Record, Test

_FRAMES = 3  # innermost frames of a crash that are shown
_SHOWN = 160  # most characters of an error

_FRAME = re.compile(r'\s*File "(?:.*/)?(vkdml/\S+|tests/\S+)", line (\d+) in (\S+)')
_NO_NEWS = re.compile(r'\s*File "|\s*\.\.\.$|(Current thread|Thread) 0x|Extension modules:|\s*<|[.FsEx]+\s*(\[ *\d+%\])?$|=+ ')


def failed_record(test: Test) -> Record | None:
    """Return the last record of a test that has wrong results, or else the record of the operator that was running, or None."""
    wrong: list[Record] = [record for record in test.get("records", []) if record.get("wrong")]
    return wrong[-1] if wrong else test.get("running")


def lines(record: Record) -> list[str]:
    """Describe a record in up to four lines: its problem, how it was run, what is wrong, and what repeated runs gave."""
    return [line for line in (record.get("problem", record.get("operator")), _ran(record), _wrong(record.get("wrong")),
                              _again(record.get("again"))) if line]


def first_line(test: Test) -> str:
    """Return in one line why a test failed or was skipped."""
    record = failed_record(test)
    if record and record.get("wrong") and test["outcome"] != CRASHED:
        return f"{record['operator']}, {record['element']}: {_wrong(record['wrong'])}"
    said: list[str] = test.get("failure", "").removeprefix("AssertionError:").strip().splitlines()
    return said[0][:_SHOWN] if said else "the run was interrupted during it"


def is_late(test: Test) -> bool:  # --quick's time was over before it
    return test["outcome"] == "skipped" and first_line(test).startswith("--quick: ")


def outcome(test: Test) -> str:
    """Return "wrong" if a failed test compared wrong results, or else the line that says why it failed."""
    record = failed_record(test)
    return "wrong" if record and record.get("wrong") else first_line(test)


def described(test: Test, repeat: str) -> str:
    """Return all facts about a failed test as a Markdown list. repeat: the command that runs the test again."""
    record = failed_record(test)
    compared = bool(record and record.get("wrong")) and test["outcome"] != CRASHED
    said = [] if compared else [first_line(test), *(last_words(test["failure"]) if test["outcome"] == CRASHED else [])]
    return "\n".join([f"`{test['test']}`", "", *(f"- {line}" for line in [*said, *(lines(record) if record else [])]),
                      f"- repeat: `{repeat}`"])


def repeat(test: Test, about: Mapping[str, Any]) -> str:
    return shlex.join(["vkdml", "reproduce", test["test"], "--device", str(about["device"]["index"]),
                       *(["--seed", str(seed)] if (seed := about["chosen"]["seed"]) else [])])


def last_words(output: str) -> list[str]:
    """Return the end of a crashed process's output: its last lines without stack frames, then vkdml's innermost frames."""
    said = output.splitlines()[1:]
    frames = [f"{found[1]}:{found[2]} in {found[3]}" for line in said if (found := _FRAME.match(line))]
    return [*[line.strip(" .") for line in said if line.strip() and not _NO_NEWS.match(line)][-_FRAMES:],
            *([", called by ".join(frames[:_FRAMES])] if frames else [])]


def _ran(record: Record) -> str:
    ran = record.get("ran")
    if not ran:
        return ""
    options = ", ".join(f"{name}={value}" for name, value in ran["options"].items())
    kernels = "kernels " + ", ".join(ran["kernels"])
    return "; ".join(filter(None, [ran["schedule"], kernels, f"Options({options})" if options else ""]))


def _wrong(wrong: Mapping[str, Any] | None) -> str:
    if not wrong or "at" not in wrong:
        return f"{wrong['tensor']}: {wrong['said']}" if wrong else ""
    place = ", ".join(f"{axis} {at}" for axis, at in zip(wrong["axes"], wrong["at"])) or str(list(wrong["at"]))
    kind = f" (all of them {wrong['kind']})" if wrong["kind"] else ""
    return f"{wrong['tensor']}: {wrong['count']} of {wrong['elements']} wrong{kind}, the first at {place}: {wrong['said']}"


def _again(again: Mapping[str, Any] | None) -> str:
    if not again:
        return ""
    lines = [f"{count} more run{'s' * (count > 1)}: {outcome}" for outcome, count in again["runs"].items()]
    for outcome in dict.fromkeys(again["ways"].values()):
        names = [name for name, found in again["ways"].items() if found == outcome != "refused"]
        lines += [f"{', '.join(names)}: {outcome}"] * bool(names)
    return "; ".join(lines)


def by_kind(tests: Iterable[Test]) -> str:
    """Return a table of failed and passed cases for each operator, type and schedule with failures; "" for one failure."""
    failed, passed = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for test in tests:
        record = failed_record(test) if test["outcome"] not in ("passed", "skipped") else None
        failed.update(map(_kind, [record] if record else []))
        passed.update(_kind(other) for other in test.get("records", []) if not other.get("wrong"))
    rows = [{"operator": kind[0], "type": kind[1], "schedule": kind[2], "failed": count, "passed": passed[kind]}
            for kind, count in failed.most_common()]
    return reports.table(rows) if failed.total() > 1 else ""


def _kind(record: Record) -> tuple[str, ...]:
    """Return a record's operator, type and schedule. Each is "" if the process crashed before the record had it."""
    return record.get("operator", ""), record.get("element", ""), (record.get("ran") or {}).get("schedule", "")
