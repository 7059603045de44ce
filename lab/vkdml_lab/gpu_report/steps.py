"""A part of the report, in steps: what each finds is kept at once, none is begun that has no room, and none is done twice.

A part is a module with `steps(job)`, `summary(rows)` and NOTES. Its folder has results.jsonl, a row for each result, and
steps.jsonl: when a step begins, when it ends, how long it took; and clocks.jsonl, the GPUs' clocks before and after its steps.
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
    """What a part is given. folder: its own, for its files. quick: do little. until: the time at which it should be done, of
    time.time(). first: only what matters most.
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
    """A step. run: gives its rows. In a row, `right` is True or False where that was checked, `failed` says what is wrong in a
    sentence, `not checked` why it was not. like: steps with the same word take as long. seconds: what the first of them takes,
    as is guessed. first: it is among what matters most. resumes: where it was cut off it goes on, and does not begin again.
    """

    name: str
    run: Callable[[], Iterable[Row]]
    like: str = ""
    seconds: float = 5.0
    first: bool = False
    resumes: bool = False


def lines(path: Path) -> list[Row]:
    """A file's lines of JSON; none where there is no file."""
    return list(parsed(path.read_text())) if path.exists() else []


class Log:
    """What is known of a part's steps from its folder."""

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
        """The step that was begun and has not ended."""
        return next((name for name in reversed(self._begun) if name not in self.ended), None)

    def seconds(self, step: Step) -> float:
        """What a step will take: as long as the last one like it."""
        return float(self._seconds.get(step.like or step.name, step.seconds))

    def announce(self, steps: Sequence[Step]) -> None:
        append(self._path, {"steps": len(steps)})

    def begin(self, step: Step) -> None:
        self._begun[step.name] = step.like or step.name
        append(self._path, {"begun": step.name, "like": step.like or step.name})

    def cut(self, name: str | None, seconds: float) -> None:
        """Note that a step, if one ran, was not done in so many seconds, so that it is begun when there are more."""
        if name:
            append(self._path, {"cut": name, "like": self._begun.pop(name), "seconds": seconds})

    def room(self, step: Step, seconds: float, is_first: bool) -> bool:
        """Whether a step is begun with so many seconds left: if it fits, or as the first where that is only guessed."""
        is_known = (step.like or step.name) in self._seconds
        return self.seconds(step) <= seconds or (is_first and (step.resumes or not is_known))

    def end(self, name: str, seconds: float | None = None) -> None:
        """seconds: None where the process ended during it, so that it says nothing about others."""
        row = {"ended": name, "like": self._begun.get(name), "seconds": seconds}
        append(self._path, row)
        self.ended[name] = row
        self._seconds |= {row["like"]: seconds} if seconds is not None else {}


def run(module: ModuleType, job: Job) -> None:
    """Run the steps that have room."""
    log, part = Log(job.folder), module.__name__.rpartition(".")[2]
    every: list[Step] = module.steps(job)
    log.announce(every)
    is_first = True
    for step in [step for step in every if step.first or not job.first]:
        if step.name in log.ended or not log.room(step, job.until - time.time(), is_first):
            continue  # a shorter one may have room
        is_first = False
        print(step.name, flush=True)  # if it hangs, the output ends with it
        log.begin(step)
        began = time.monotonic()
        rows = list(rows_of(step))  # kept once all are there: a step that is cut off is run again
        append(job.folder / RESULTS, *({"part": part, "step": step.name, **row} for row in rows))
        log.end(step.name, time.monotonic() - began)


def rows_of(step: Step) -> Iterator[Row]:
    """A step's rows. What is missing on this machine leaves it out; any other error is a failure, in full in the output."""
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
    """Write a part's tables into its folder, one for each value of the rows' `table`, and one of the GPUs' clocks if known."""
    name = folder.name
    found: dict[str, list[Row]] = {}
    for row in lines(folder / RESULTS):
        found.setdefault(row.pop("table", "Results"), []).append({key: value for key, value in row.items() if key != "part"})
    clocks = lines(folder / CLOCKS)
    found |= {"Clocks": clocks} if any(len(row) > 1 for row in clocks) else {}
    sections = [f"## {heading}\n\n{table(rows)}" for heading, rows in found.items()]
    write(folder, {f"{name}.md": document(f"# {name.capitalize()}", module.NOTES, *sections)})
