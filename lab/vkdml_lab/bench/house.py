"""How large this tree is and how much of it a call passes through, beside what is aimed at: python -m bench.house"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import vkdml
from tests.house import without_comments
from tests.house_inside import ENGINE, imports_within, longest_chain
from vkdml_lab import ROOT
from vkdml_lab.reports import table

PACKAGE = ROOT / "src/vkdml"
GRU_ON_A_GPU = ROOT / "shaders/gpu/CELL.comp"
CALL_AIMS = {"first": ["30", "30", "-", "26"], "warm": ["9", "11", "40", "-"]}
UNCOUNTED = r"CHANGELOG\.md|docs/notebook\.md|docs/bench/.*|docs/who-is-right\.md"  # history, and what is generated


def passed_through(call: Callable[[], object]) -> list[int]:
    """Number of the package's modules, classes and functions that a call enters, and how deep they are nested."""
    entered: set[tuple[str, str]] = set()
    depth = deepest = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth, deepest
        code: Any = frame.f_code  # typeshed's for Python 3.10 has no co_qualname; Python 3.11 does
        if event in ("call", "return") and code.co_filename.startswith(str(PACKAGE)):
            depth += 1 if event == "call" else -1
            deepest = max(deepest, depth)
            entered.add((code.co_filename, code.co_qualname))

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    classes = {(path, found[1]) for path, name in entered if (found := re.match(r"((?:\w+\.)*\w+)\.\w+(\.<|$)", name))}
    return [len({path for path, _ in entered}), len(classes), len(entered), deepest]


def included(shader: Path) -> set[Path]:
    """A shader of a GRU, with all that it includes."""
    names = re.findall(r'^#include "(.+)"', shader.read_text().replace("CELL", "gru").replace("STORAGE", "words"), re.MULTILINE)
    return {shader}.union(*(included((shader.parent / name).resolve()) for name in names))


def lines(paths: Sequence[Path]) -> str:
    return f"{sum(path.read_text().count(chr(10)) for path in paths)} / {len(paths)}"


def rows() -> Iterator[tuple[object, ...]]:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(sizes).astype(np.float32) for sizes in ((4, 2, 8), (1, 48, 8), (1, 48, 16))]
    for which, aims in CALL_AIMS.items():
        counts = passed_through(lambda: vkdml.gru(*arrays))
        yield f"{which} vkdml.gru: modules, classes, functions, depth", ", ".join(map(str, counts)), ", ".join(aims)
    yield "src: lines / files", lines(sorted(PACKAGE.rglob("*.py"))), "17000 / 130"
    for room in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        yield f"src/vkdml/{room.name}: lines / files", lines(sorted(room.rglob("*.py"))), ""
    yield f"floors of {ENGINE}: its longest chain of imports", len(longest_chain(imports_within(ROOT, ENGINE))), "8"
    shaders = [path for path in (ROOT / "shaders").rglob("*.*") if path.suffix != ".md"]
    yield "shaders: lines / files", lines(shaders), "3000 / 80"
    gru = [without_comments(path.read_text()).splitlines() for path in included(GRU_ON_A_GPU)]
    code = sum(bool(line.strip()) for file in gru for line in file)
    yield "a GRU on a GPU: files, code lines", f"{len(gru)}, {code}", "12, 400"
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words = sum(len((ROOT / name).read_text().split()) for name in listed if not re.fullmatch(UNCOUNTED, name))
    yield "words of the documents", words, "24000"


if __name__ == "__main__":
    print(table({"": what, "now": now, "at most": aim} for what, now, aim in rows()))
