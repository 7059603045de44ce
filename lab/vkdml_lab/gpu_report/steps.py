"""Runs a part of the report step by step. Results are written after each step. A step that does not fit into the time left is
not begun. A report that is continued skips finished steps.

A part is a module with `steps(job)`, `summary(rows)` and NOTES. Its folder has results.jsonl (a row for each result),
steps.jsonl (a step's start, end and time) and clocks.jsonl (the GPUs' clocks before and after).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from vkdml_lab.processes import UnavailableError
from vkdml_lab.reports import append, document, parsed, table, write

RESULTS, LOG, STOPPED, CLOCKS = "results.jsonl", "steps.jsonl", "stopped.json", "clocks.jsonl"
OURS = {"tests", "tools", "vkdml", "vkdml_lab"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What a part of the report gets. folder: for its files. quick: whether to do little. until: its end, as of time.time().
    first: do only the most important steps.
    """

    folder: Path
    quick: bool = False
    until: float = float("inf")
    first: bool = False

    @property
    def others(self) -> Path:
        return self.folder.parent


@dataclass(frozen=True)
class Step:
    """A step of a part. run: yields rows of results. In a row, `right` is True or False if results were checked, `failed` says
    what is wrong, and `not checked` why something was not. like: steps with the same word take equally long. seconds: expected
    time of the first of these. first: whether it is one of the most important. resumes: whether it can continue after an
    interruption, instead of beginning again.
    """

    name: str
    run: Callable[[], Iterable[Row]]
    like: str = ""
    seconds: float = 5.0
    first: bool = False
    resumes: bool = False


def lines(path: Path) -> list[Row]:
    """Return the rows in a file of JSON lines; [] if there is no file."""
    return list(parsed(path.read_text())) if path.exists() else []


class Log:
    """Knows which of a part's steps began and ended, from steps.jsonl in the part's folder, and adds to that file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        found = lines(self._path)
        self.total = max((row["steps"] for row in found if "steps" in row), default=0)
        self._begun: dict[str, str] = {}
        for row in found:
            self._begun.pop(str(row.get("begun") or row.get("cut")), None)
            self._begun |= {row["begun"]: row["like"]} if "begun" in row else {}
        self.ended: dict[str, Row] = {row["ended"]: row for row in found if "ended" in row}
        self._seconds = {row["like"]: row["seconds"] for row in found if row.get("seconds") is not None}

    @property
    def running(self) -> str | None:
        """The name of the last step that began and has not ended, or None."""
        return next((name for name in reversed(self._begun) if name not in self.ended), None)

    def seconds(self, step: Step) -> float:
        """Return a step's expected time: that of the last step with the same `like`, or else step.seconds."""
        return float(self._seconds.get(step.like or step.name, step.seconds))

    def announce(self, steps: Sequence[Step]) -> None:
        append(self._path, {"steps": len(steps)})

    def begin(self, step: Step) -> None:
        self._begun[step.name] = step.like or step.name
        append(self._path, {"begun": step.name, "like": step.like or step.name})

    def cut(self, name: str | None, seconds: float) -> None:
        """Record that step `name` was interrupted after `seconds`. To begin again, it must resume, or have as much time."""
        if name:
            append(self._path, {"cut": name, "like": self._begun.pop(name), "seconds": seconds})

    def may_begin(self, step: Step, seconds: float, is_first: bool) -> bool:
        """Whether a step may begin. It must fit into `seconds`, except a first step that resumes or has an unknown time."""
        is_known = (step.like or step.name) in self._seconds
        return self.seconds(step) <= seconds or (is_first and (step.resumes or not is_known))

    def end(self, name: str, seconds: float | None = None) -> None:
        """Record that step `name` ended. seconds: its time; None if the process died."""
        row = {"ended": name, "like": self._begun.get(name), "seconds": seconds}
        append(self._path, row)
        self.ended[name] = row
        self._seconds |= {row["like"]: seconds} if seconds is not None else {}


def run(module: ModuleType, job: Job) -> None:
    """Run the steps of a part's module that fit into the job's time. Appends their rows to results.jsonl in job.folder."""
    log, part = Log(job.folder), module.__name__.rpartition(".")[2]
    every: list[Step] = module.steps(job)
    log.announce(every)
    is_first = True
    for step in [step for step in every if step.first or not job.first]:
        if step.name in log.ended or not log.may_begin(step, job.until - time.time(), is_first):
            continue  # a shorter step may fit
        is_first = False
        print(step.name, flush=True)  # if it hangs, this is its last output
        log.begin(step)
        began = time.monotonic()
        rows = list(rows_of(step))  # written when complete: an interrupted step runs again
        append(job.folder / RESULTS, *({"part": part, "step": step.name, **row} for row in rows))
        log.end(step.name, time.monotonic() - began)


def rows_of(step: Step) -> Iterator[Row]:
    """Run a step. Yields its rows. An error becomes a row: "not checked" if this machine lacks something, else a failure."""
    try:
        yield from step.run()
    except UnavailableError as error:
        yield {"not checked": str(error)}
    except Exception as error:
        if is_missing(error):
            yield {"not checked": str(error)}
            return
        traceback.print_exc()
        yield {"failed": f"{type(error).__name__}: {error}"}


def is_missing(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] not in OURS


def write_tables(module: ModuleType, folder: Path) -> None:
    """Write a part's tables into its folder: one for each value of "table" in its rows, and one of the GPUs' clocks."""
    name = folder.name
    found: dict[str, list[Row]] = {}
    for row in lines(folder / RESULTS):
        found.setdefault(row.pop("table", "Results"), []).append({key: value for key, value in row.items() if key != "part"})
    clocks = lines(folder / CLOCKS)
    found |= {"Clocks": clocks} if any(len(row) > 1 for row in clocks) else {}
    sections = [f"## {heading}\n\n{table(rows)}" for heading, rows in found.items()]
    write(folder, {f"{name}.md": document(f"# {name.capitalize()}", module.NOTES, *sections)})
