"""Writes and reads tables of steps' estimated times. times.txt has the times of an earlier check, to notice slower steps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vkdml_lab.gpu.cases import KINDS, Case
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.gpu.measure import DEFAULT, PERSISTENT, Part

_ROWS = [
    *((Case(cell, (100, 1, width, width), two_phases).name, PERSISTENT) for cell, two_phases in KINDS
      for width in (128, 256, 512, 1024)),
    *((Case("gru", sizes).name, DEFAULT) for sizes in
      ((100, 1, 64, 64), (50, 4, 512, 512), (50, 16, 1024, 1024), (50, 64, 512, 512), (25, 64, 1024, 1024))),
]


def table(parts: Iterable[Part]) -> str:
    """Return a table of these kernels' microseconds a step: a row for each case and plan in _ROWS, a column for each GPU."""
    found = {(part.gpu.name, part.case.name, part.plan): f"{part.estimate.seconds * 1e6:.2f}" for part in parts
             if part.estimate and part.is_loop}
    width = max(len(f"{case} {plan}") for case, plan in _ROWS)
    lines = ["".ljust(width) + "".join(name.rjust(10) for name in GPUS)]
    for case, plan in _ROWS:
        cells = (found.get((name, case, plan), "-") for name in GPUS)
        lines.append(f"{case} {plan}".ljust(width) + "".join(text.rjust(10) for text in cells))
    return "```\n" + "\n".join(lines) + "\n```"


def _read(text: str) -> dict[tuple[str, str, str], float]:
    """Parse the text of times.txt. Returns a step's microseconds by GPU, case and plan."""
    names, *lines = (line.split() for line in text.strip().splitlines())
    return {(name, case, plan): float(cell) for case, plan, *cells in lines for name, cell in zip(names, cells, strict=True)
            if cell != "-"}


KNOWN = _read(Path(__file__).with_suffix(".txt").read_text())
