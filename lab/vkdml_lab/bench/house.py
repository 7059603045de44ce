"""How large this tree is and how much of it a call passes through, beside the bounds: python -m vkdml_lab.bench.house

The tree is that of the vkdml which Python imports, wherever this runs. A wheel has no shaders and documents to count.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

import vkdml
from vkdml_lab.reports import table

PACKAGE = Path(vkdml.__file__).resolve().parent
ROOT = PACKAGE.parents[1]
GRU_ON_A_GPU = ROOT / "shaders/gpu/CELL.comp"
UNCOUNTED = r"CHANGELOG\.md|docs/notebook\.md|docs/bench/.*|docs/who-is-right\.md"  # history, and generated pages


class Passed(NamedTuple):
    """How many of the package's modules, classes and functions a call enters, and how deep they are nested."""

    modules: int
    classes: int
    functions: int
    depth: int


BOUNDS = {"first": Passed(36, 52, 500, 28), "warm": Passed(12, 15, 50, 11)}


def passed_through(call: Callable[[], object]) -> Passed:
    """Count as a call runs. A class counts by type(self), so with the methods that it inherits or that dataclasses writes."""
    modules: set[str] = set()
    classes: set[type] = set()
    functions: set[CodeType] = set()
    depth = deepest = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth, deepest
        module = frame.f_globals.get("__name__", "")
        if event not in ("call", "return") or module.split(".")[0] != "vkdml":
            return
        depth += 1 if event == "call" else -1
        deepest = max(deepest, depth)
        modules.add(module)
        functions.add(frame.f_code)
        if event == "call" and "self" in frame.f_code.co_varnames[:1]:
            classes.add(type(frame.f_locals["self"]))

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Passed(len(modules), len(classes), len(functions), deepest)


def passed_by_gru() -> dict[str, Passed]:
    """Counts of vkdml.gru's first call and of a warm one. The first call is only the first in a new process."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(sizes).astype(np.float32) for sizes in ((4, 2, 8), (1, 48, 8), (1, 48, 16))]
    return {which: passed_through(lambda: vkdml.gru(*arrays)) for which in BOUNDS}


def included(shader: Path) -> set[Path]:
    """A shader of a GRU, with all that it includes."""
    names = re.findall(r'^#include "(.+)"', shader.read_text().replace("CELL", "gru").replace("STORAGE", "words"), re.MULTILINE)
    return {shader}.union(*(included((shader.parent / name).resolve()) for name in names))


def lines(paths: Iterable[Path]) -> str:
    texts = [path.read_text() for path in paths]
    return f"{sum(text.count(chr(10)) for text in texts)} / {len(texts)}"


def rows() -> Iterator[tuple[str, object, object]]:
    for which, counts in passed_by_gru().items():
        yield f"{which} vkdml.gru: modules, classes, functions, depth", str(tuple(counts)), str(tuple(BOUNDS[which]))
    yield f"{PACKAGE}: lines / files of Python", lines(PACKAGE.rglob("*.py")), "17500 / 110"
    for room in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        yield f"{room.name}: lines / files", lines(room.rglob("*.py")), ""
    if not GRU_ON_A_GPU.exists():
        return
    yield "shaders: lines / files", lines(path for path in (ROOT / "shaders").rglob("*.*") if path.suffix != ".md"), "3000 / 80"
    gru = [re.sub(r"//.*|/\*(?s:.*?)\*/", "", path.read_text()).splitlines() for path in included(GRU_ON_A_GPU)]
    code = sum(bool(line.strip()) for file in gru for line in file)
    yield "a GRU on a GPU: files, code lines", f"{len(gru)}, {code}", "12, 400"
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words = sum(len((ROOT / name).read_text().split()) for name in listed if not re.fullmatch(UNCOUNTED, name))
    yield "words of the documents", words, "20000"


if __name__ == "__main__":
    print(table({"": what, "now": now, "at most": bound} for what, now, bound in rows()))
