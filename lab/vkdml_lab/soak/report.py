"""Writes the soak's report: soak.md and soak.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vkdml_lab.fuzz.search import BLIND
from vkdml_lab.reports import bullets, document, table
from vkdml_lab.reports import write as write_files
from vkdml_lab.soak.growth import ALLOWED, Growth, growth

MARKDOWN, DATA = "soak.md", "soak.json"
NOTE = """Growth is looked for in the last two thirds of each life: the median of the slopes between all pairs of samples, times
the calls between the first and the last. It has to be more than *allowed*, and the last quarter to have more than the first by
as much. *Least seen* is the smallest leak of each call that would be noticed: what is allowed, divided by these calls."""


@dataclass
class LifeReport:
    """Results of one process of the soak (a life). ended: how it crashed or hung, or "". running: the call that ended it."""

    seed: int
    has_faults: bool
    ended: str = ""
    running: str = ""
    samples: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    counts: list[list[Any]] = field(default_factory=list)
    struck: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.seed}{', failing driver' if self.has_faults else ''}"

    @property
    def calls(self) -> int:
        return int(self.samples[-1]["calls"]) if self.samples else 0

    def growths(self) -> Iterator[Growth]:
        for what in ALLOWED:
            found = growth(self.samples, what)
            if found is not None:
                yield found


def read(file: Path, seed: int, has_faults: bool, ended: str) -> LifeReport:
    """Read the report of one process from its file of JSON lines. ended: how the process crashed or hung, or ""."""
    life = LifeReport(seed, has_faults, ended)
    for line in map(json.loads, file.read_text().splitlines()):
        life.samples.append(line["sample"])
        life.failures += line["failures"]
        life.counts, life.struck = line["counts"], line["struck"]
    running = file.with_suffix(".call")
    life.running = running.read_text() if ended and running.exists() else ""
    return life


def failed(lives: Sequence[LifeReport]) -> list[str]:
    """Return a sentence for each process that ended early, each failed call and each leak."""
    sentences = [f"life {life.name} {life.ended}, in the call {life.running}" for life in lives if life.ended]
    sentences += [f"{failure['error']}\n  `{failure['call']}`" for life in lives for failure in life.failures]
    return sentences + [f"life {life.name}: {found.what} grows, by {found.by:.3g} {found.unit} in {found.calls:.0f} calls"
                        for life in lives for found in life.growths() if found.grows]


def write(lives: Sequence[LifeReport], folder: Path) -> None:
    write_files(folder, {DATA: [asdict(life) for life in lives], MARKDOWN: markdown(lives)})


def markdown(lives: Sequence[LifeReport]) -> str:
    sentences = failed(lives)
    counts = Counter({(face, outcome): 0 for life in lives for face, outcome, _ in life.counts})
    struck: Counter[str] = Counter()
    for life in lives:
        counts.update({(face, outcome): count for face, outcome, count in life.counts})
        struck.update(life.struck)
    blind = sum(count for (_, outcome), count in counts.items() if outcome == BLIND)
    return document(
        "# Soak", f"{sum(life.calls for life in lives):,} calls in {len(lives)} processes; "
                  f"{100 * blind / max(counts.total(), 1):.0f}% were of problems too sensitive to judge each number.",
        bullets("## Failed", sentences) or "Nothing failed, and nothing grew.",
        "## What grows", NOTE, table(_growth_rows(lives)),
        "## Calls", table(_count_rows(counts)),
        "## With a driver that fails" if struck else "",
        table({"a call then": outcome, "calls": count} for outcome, count in sorted(struck.items())))


def _growth_rows(lives: Sequence[LifeReport]) -> Iterator[dict[str, Any]]:
    for life in lives:
        for found in life.growths():
            values = {"first": found.first, "last": found.last, "by": found.by, "allowed": found.allowed,
                      "least seen": found.least_seen}
            yield {"life": life.name, "": found.what,
                   **{name: f"{value:.4g} {found.unit}".strip() for name, value in values.items()}}


def _count_rows(counts: Counter[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    outcomes = sorted({outcome for _, outcome in counts})
    for face in sorted({face for face, _ in counts}):
        yield {"face": face, **{outcome: counts[face, outcome] for outcome in outcomes}}
