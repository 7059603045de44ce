"""A part of the report, in steps: what each finds is kept at once, none is begun that has no room, and none is done twice.

A part is a module with `steps(job)`, `summary(rows)` and NOTES. Its folder has results.jsonl, a row for each result, and
steps.jsonl: when a step begins, when it ends, how long it took.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from vkdml_lab.bench.runner import UnavailableError
from vkdml_lab.reports import append, document, parsed, table, write

RESULTS, LOG, STOPPED = "results.jsonl", "steps.jsonl", "stopped.json"
INSTALL = "pip install 'vkdml[conformance]'"
OURS = {"bench", "tests", "tools", "vkdml"}

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
    as is guessed. first: it is among what matters most.
    """

    name: str
    run: Callable[[], Iterable[Row]]
    like: str = ""
    seconds: float = 5.0
    first: bool = False


def lines(path: Path) -> list[Row]:
    """A file's lines of JSON; none where there is no file."""
    return list(parsed(path.read_text())) if path.exists() else []


class Log:
    """What is known of a part's steps from its folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        found = lines(self._path)
        self.total = max((row["steps"] for row in found if "steps" in row), default=0)
        self._begun: dict[str, str] = {row["begun"]: row["like"] for row in found if "begun" in row}
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
    for step in [step for step in every if step.first or not job.first]:
        if step.name in log.ended or time.time() + log.seconds(step) > job.until:
            continue  # a shorter one may have room
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
            yield {"not checked": f"{error}: {INSTALL}"}
            return
        traceback.print_exc()
        yield {"failed": f"{type(error).__name__}: {error}"}


def is_missing(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] not in OURS


def write_tables(module: ModuleType, folder: Path) -> None:
    """Write a part's tables into its folder, one for each value of the rows' `table`."""
    name = folder.name
    found: dict[str, list[Row]] = {}
    for row in lines(folder / RESULTS):
        found.setdefault(row.pop("table", "Results"), []).append({key: value for key, value in row.items() if key != "part"})
    sections = [f"## {heading}\n\n{table(rows)}" for heading, rows in found.items()]
    write(folder, {f"{name}.md": document(f"# {name.capitalize()}", module.NOTES, *sections)})
