"""Reads the results of a part of the report from its folder: rows, remaining steps and a summary."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vkdml_lab.gpu_report.parts import Part
from vkdml_lab.gpu_report.steps import RESULTS, STOPPED, Log, Row, lines

PASSED, SO_FAR, FAILED, NOT_CHECKED = "passed", "passed so far", "failed", "not checked"


@dataclass(frozen=True)
class Found:
    """A part's results. rows: of all steps. done, steps: numbers of finished and of all steps; both are 0 before the part
    begins. stopped: a row that says why the whole part failed or could not run, or {}. files: paths in the report's folder.
    """

    part: Part
    rows: list[Row]
    done: int
    steps: int
    stopped: Row
    files: list[str]

    @staticmethod
    def read(part: Part, folder: Path) -> Found:
        own, log = folder / part.name, Log(folder / part.name)
        stopped = json.loads((own / STOPPED).read_text()) if (own / STOPPED).exists() else {}
        files = sorted(path.relative_to(folder).as_posix() for path in own.rglob("*") if path.is_file())
        return Found(part, lines(own / RESULTS), len(log.ended), log.total, stopped, files)

    @property
    def is_done(self) -> bool:
        return self.done == self.steps > 0

    @cached_property
    def failures(self) -> list[str]:
        return [": ".join(filter(None, [named(row), " ".join(row["failed"].split())])) for row in [*self.rows, self.stopped]
                if row.get("failed")]

    @property
    def checked(self) -> list[Row]:
        return [row for row in self.rows if not row.get("not checked")]

    @property
    def left(self) -> str:
        """How many steps are left, or why the part could not run, as a text; "" if the part is complete or failed at once."""
        if self.stopped.get("not checked"):
            return str(self.stopped["not checked"])
        if not self.steps:
            return "" if self.stopped else "not begun"
        return f"{self.steps - self.done} of {self.steps} steps are left" if not self.is_done else ""

    @property
    def status(self) -> str:
        if self.failures:
            return FAILED
        return NOT_CHECKED if not self.checked else PASSED if self.is_done else SO_FAR

    @property
    def line(self) -> str:
        """A short summary of the results and of what is left, or the reasons why nothing was checked."""
        if not self.checked:
            return self.left or "; ".join(dict.fromkeys(row["not checked"] for row in self.rows))
        summary: str = importlib.import_module(self.part.module).summary(self.checked)
        return "; ".join(filter(None, [summary, self.left]))

    @property
    def summarized(self) -> str:
        return f"{self.part.name}: {self.status}: {self.failures[0] if self.failures else self.line}"


def named(row: Row) -> str:
    """Return the names of a row's library (if not vkdml), problem and schedule, or else the name of its step."""
    words = [row.get(key) for key in ("library", "problem", "schedule")]
    words_left = " ".join(word for word in words if word and word != "vkdml")
    return words_left or ("" if row.get("step") == row.get("part") else str(row.get("step")))
