"""What a part of the report finds, and how it is written: tables for people beside JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vkdml.laboratory import document, table
from vkdml.laboratory import write as write_files

if TYPE_CHECKING:
    from tools.gpu.cases import Case  # needs packages that only some parts need

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
OUTCOME = "outcome.json"

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a part found. status: one of the three. line: what was found, or why nothing was. failures: a sentence each."""

    status: str
    line: str
    failures: Sequence[str] = ()

    def write(self, folder: Path) -> None:
        (folder / OUTCOME).write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def read(folder: Path) -> Outcome | None:
        """The outcome in a folder; None: the part did not come to its end."""
        path = folder / OUTCOME
        return Outcome(**json.loads(path.read_text())) if path.exists() else None


@dataclass(frozen=True)
class Job:
    """What a part is given. folder: its own, for its files. others: that of all parts. quick: do little."""

    folder: Path
    quick: bool

    @property
    def others(self) -> Path:
        return self.folder.parent


def judged(line: str, failures: Sequence[str]) -> Outcome:
    return Outcome(FAILED if failures else PASSED, line, failures)


def announced(cases: Sequence[Case]) -> Iterator[Case]:
    """The cases, each printed before its turn: if a part hangs, the last one printed is the one."""
    for number, case in enumerate(cases, 1):
        print(f"{number}/{len(cases)} {case.name}", flush=True)
        yield case


def write(folder: Path, name: str, title: str, notes: str, tables: Mapping[str, Iterable[Row]]) -> None:
    """Write NAME.json and NAME.md. tables: rows by heading."""
    listed = {heading: list(rows) for heading, rows in tables.items()}
    sections = [f"## {heading}\n\n{table(rows)}" for heading, rows in listed.items() if rows]
    write_files(folder, {f"{name}.json": listed, f"{name}.md": document(f"# {title}", notes, *sections)})
