"""What is said of failures: of each a few lines that a driver's engineer can work from, and what they have in common.

Lines are made of what suite/recording.py records. `problem`, `wrong` and the features do not depend on what computed the
results; `ran` and `again` are this package's own.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vkdml_lab import reports
from vkdml_lab.conformance.results import CRASHED, Record, Test

# What chance would explain so well says nothing; of what is chosen after a look at the failures, less
_CHANCE, _CHANCE_AFTER_A_LOOK = 0.05, 0.0005
_MOST_FACTS = 6
_FRAMES = 3  # of a crash: the innermost ones
_SHOWN = 160  # characters of a sentence that an error said

_FRAME = re.compile(r'\s*File "(?:.*/)?(vkdml/\S+|tests/\S+)", line (\d+) in (\S+)')
_NO_NEWS = re.compile(r'\s*File "|\s*\.\.\.$|(Current thread|Thread) 0x|Extension modules:|\s*<|[.FsEx]+\s*(\[ *\d+%\])?$|=+ ')


def failed_record(test: Test) -> Record | None:
    """The record of the comparison by which a test failed, or else what it was running, if anything."""
    wrong: list[Record] = [record for record in test.get("records", []) if record.get("wrong")]
    return wrong[-1] if wrong else test.get("running")


def lines(record: Record) -> list[str]:
    """The problem; how it was run; what is wrong; what more runs gave."""
    return [line for line in (record.get("problem", record.get("operator")), _ran(record), _wrong(record.get("wrong")),
                              _again(record.get("again"))) if line]


def first_line(test: Test) -> str:
    """Why a test failed or was skipped, in one line."""
    record = failed_record(test)
    if record and record.get("wrong") and test["outcome"] != CRASHED:
        return f"{record['operator']}, {record['element']}: {_wrong(record['wrong'])}"
    said: list[str] = test.get("failure", "").removeprefix("AssertionError:").strip().splitlines()
    return said[0][:_SHOWN] if said else "the run was interrupted during it"


def outcome(test: Test) -> str:
    """What came of a failed test, in few words."""
    record = failed_record(test)
    return "wrong" if record and record.get("wrong") else first_line(test)


def described(test: Test, repeat: str) -> str:
    """All that is known of a failed test, as a list. repeat: the command that runs it again."""
    record = failed_record(test)
    compared = bool(record and record.get("wrong")) and test["outcome"] != CRASHED
    said = [] if compared else [first_line(test), *(last_words(test["failure"]) if test["outcome"] == CRASHED else [])]
    return "\n".join([f"`{test['test']}`", "", *(f"- {line}" for line in [*said, *(lines(record) if record else [])]),
                      f"- repeat: `{repeat}`"])


def repeat(test: Test, about: Mapping[str, Any]) -> str:
    return shlex.join(["vkdml", "reproduce", test["test"], "--device", str(about["device"]["index"]),
                       *(["--seed", str(seed)] if (seed := about["chosen"]["seed"]) else [])])


def last_words(output: str) -> list[str]:
    """What a process that ended said last, without pages of frames: what is no frame, and the innermost frames of ours."""
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


# What failures have in common

def facts(record: Record) -> set[str]:
    """What a case is or has, in words that can be counted."""
    ran = record.get("ran") or {}
    return {record["operator"], record["element"], *record["features"], *filter(None, [ran.get("schedule")]),
            *(f"kernel {name}" for name in ran.get("kernels", ())),
            *(f"Options({name}={value})" for name, value in ran.get("options", {}).items())}


def in_common(tests: Iterable[Test]) -> str:
    """What sets the cases that failed apart from those that passed, as text; "" where nothing does, or one failed."""
    failed, passed = [], []
    for test in tests:
        if test["outcome"] in ("passed", "skipped"):
            passed += test.get("records", [])
        elif record := failed_record(test):
            failed.append(record)
            passed += [other for other in test.get("records", []) if not other.get("wrong")]
    if len(failed) < 2:
        return ""
    here, there = ([facts(record) for record in records] for records in (failed, passed))
    shared = set.intersection(*here)
    lines = [*_together(shared, len(failed), there), *_each(here, there), *_sizes(failed, passed), *_kinds(failed)]
    return reports.bullets("What they have in common:", lines)


def _together(shared: set[str], count: int, there: Sequence[set[str]]) -> list[str]:
    """All that is in each failure, but for what tells nothing."""
    having = {fact: sum(fact in case for case in there) for fact in shared}
    telling = sorted((having[fact], fact) for fact in shared if _is_unlikely(having[fact], len(there), count))
    if not telling:
        return []
    facts = [fact for _, fact in telling]
    all_of_them = sum(set(facts) <= case for case in there)
    named = ", ".join(facts[:_MOST_FACTS])
    return [f"{count} of {count}: {named}; so have {all_of_them} of the {len(there)} cases that passed"]


def _each(here: Sequence[set[str]], there: Sequence[set[str]]) -> list[str]:
    """Facts of some failures, and of no case that passed; and facts of many that passed, and of no failure."""
    failing, passing = (Counter(fact for case in cases for fact in case) for cases in (here, there))
    only = [(fact, count) for fact, count in _by_count(failing) if 1 < count < len(here) and not passing[fact]
            and _is_unlikely(0, len(there), count)]
    never = [fact for fact, count in _by_count(passing) if not failing[fact]
             and _is_unlikely(len(there) - count, len(there), len(here), _CHANCE_AFTER_A_LOOK)]
    lines = [f"{count} of {len(here)}: {fact}; so has no case that passed" for fact, count in only[:_MOST_FACTS]]
    of_passed = ", ".join(f"{fact} ({passing[fact]})" for fact in never[:_MOST_FACTS])
    return [*lines, f"none of them, of those that passed: {of_passed}"] if never else lines


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _sizes(failed: Sequence[Record], passed: Sequence[Record]) -> list[str]:
    lines = []
    for name in "TBIH":
        here, there = ([record["sizes"][name] for record in records if record.get("sizes")] for records in (failed, passed))
        if len(here) == len(failed) and there:
            least, most = min(here), max(here)
            if _is_unlikely(sum(least <= size <= most for size in there), len(there), len(here), _CHANCE_AFTER_A_LOOK):
                found = f"{least} to {most}" if most > least else str(least)
                lines.append(f"{name} is {found}; of those that passed {min(there)} to {max(there)}")
    return lines


def _kinds(failed: Sequence[Record]) -> list[str]:
    """What was found, where it is the same in all."""
    words = {(record.get("wrong") or {}).get("kind", "") for record in failed}
    runs = {tuple(record["again"]["runs"]) for record in failed if record.get("again")}
    return [*(f"all wrong elements are {kind}" for kind in words if kind and len(words) == 1),
            *(f"run again: {', '.join(outcomes)}" for outcomes in runs if len(runs) == 1)]


def _is_unlikely(having: int, cases: int, failures: int, chance: float = _CHANCE) -> bool:
    """Whether so many failures would hardly all have by chance what so many of the cases have that passed."""
    return cases > 0 and (having / cases) ** failures < chance
