"""Writes reports, as Markdown for people and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tabulate import tabulate

Row = Mapping[str, Any]

_FLOAT = ".4g"


def write(folder: Path, files: Mapping[str, object]) -> None:
    """Write files by name: strings as they are, other values as JSON. Each is replaced at once: no reader finds half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        new = folder / f"{name}.new"
        new.write_text(content if isinstance(content, str) else as_json(content))
        new.replace(folder / name)


def append(path: Path, *lines: Row) -> None:
    """Append each row as a line of JSON, on a new line even if a killed writer left the last one incomplete."""
    with path.open("a") as file:
        file.writelines(f"\n{json.dumps(line)}\n" for line in lines)


def parsed(text: str) -> Iterator[Any]:
    """Yield the value of each line of JSON in a text. Skip lines that are incomplete because their writer was killed."""
    for line in text.splitlines():
        with suppress(ValueError):
            yield json.loads(line)


def as_json(content: object) -> str:
    return json.dumps(content, indent=1) + "\n"


def document(*parts: str) -> str:
    """Join the parts of a Markdown document by blank lines. Leave out empty parts."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def table(rows: Iterable[Row], formats: Mapping[str, str] = {}, columns: Mapping[str, str] | None = None) -> str:
    """Return a Markdown table, or "" without rows. formats: format string by key. columns: key by heading; None: all keys."""
    listed = list(rows)
    columns = {key: key for row in listed for key in row} if columns is None else columns
    cells = [[cell(row.get(key), formats.get(key)) for key in columns.values()] for row in listed]
    given = [[row[key] for row in listed if row.get(key) is not None] for key in columns.values()]
    sides = ["right" if values and all(isinstance(value, int | float) for value in values) else "left" for values in given]
    return tabulate(cells, list(columns), "github", colalign=sides, disable_numparse=True) if cells else ""


def cell(value: Any, form: str | None = None) -> str:
    """Return the text of a value in a table; "" for None and NaN. form: format string, such as ".2f"."""
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return format(" ".join(value.split()).replace("|", "/"), form or "")
    return format(value, form if form is not None else _FLOAT if isinstance(value, float) else "")


def bullets(title: str, sentences: Sequence[str], most: int | None = None) -> str:
    """Return a Markdown list under a title, or "" without sentences. most: how many to show; a last item counts the others."""
    shown = [*sentences[:most], *[f"and {len(sentences) - (most or 0)} more"] * (most is not None and len(sentences) > most)]
    return "\n".join([title, "", *(f"- {sentence}" for sentence in shown)]) if shown else ""
