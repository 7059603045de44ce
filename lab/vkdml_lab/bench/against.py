"""Compares the speed of this source tree with another commit's, in pairs of measurements on one machine.

    python -m bench.against REVISION [--only PATTERN ...] [--pairs N] [--device DEVICE] [--json FILE]

The other commit is checked out into a temporary git worktree, and built there; the shaders of both trees are compiled. Workers
of both run the same cases in turns, so that other work on the machine slows both. These times are compared:

- steady: a call after all is compiled. Both workers are alive; each pair is a sample of one and then a sample of the other.
  "host" is from numpy to numpy, "device" is the execution only.
- first: the time from the end of the imports to the first result of a call from numpy to numpy, in a new process each time.
  The driver's cache of compiled shaders is off.
- compile: the first call's time in these processes, minus a later call's.

The ratio this/other is the median of the ratios of the pairs; below 1, this tree is faster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from vkdml import DeviceInfo, DriverError
from vkdml_lab.bench.cases import CASES, Case
from vkdml_lab.bench.measure import Progress
from vkdml_lab.bench.measure import measure as measure_steady
from vkdml_lab.bench.peers import Peer
from vkdml_lab.bench.processes import ROOT, Process
from vkdml_lab.internals import DEVICE, select_device
from vkdml_lab.processes import WorkerError
from vkdml_lab.reports import as_json, table

ADAPTER = "tree"
NO_SHADER_CACHE = {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}  # for Mesa, and NVIDIA


@dataclass(frozen=True)
class Tree:
    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        path = [str(self.folder / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(path)}

    def process(self, device: int, variables: Mapping[str, str] = {}) -> Process:
        return Process(Peer(self.name, ADAPTER, {"tree": self.folder, "device": device}, {**self.environment, **variables}))

    def compile_shaders(self) -> None:
        """Run the tree's own tools/compile_shaders.py. Raises SystemExit with its message if it fails."""
        self._run("the shaders", ["tools/compile_shaders.py", "src/vkdml/spirv"])

    def build_kp(self) -> None:
        """Build kp (Kompute's module) by the tree's own tools/build_kp.py. Raises SystemExit if that fails or is missing."""
        if not (self.folder / "tools/build_kp.py").exists():
            raise SystemExit(f"against: {self.name} takes kp from a package of its own: name a commit that has it inside")
        self._run("kp", ["-W", "ignore", "-c", "import setuptools; setuptools.setup()", "--quiet", "build_ext", "--inplace"],
                  {"PYTHONPATH": str(self.folder / "tools")})

    def _run(self, what: str, command: Sequence[str], variables: Mapping[str, str] = {}) -> None:
        result = subprocess.run([sys.executable, *command], cwd=self.folder, capture_output=True, text=True,
                                env={**os.environ, **self.environment, **variables})
        if result.returncode != 0:
            raise SystemExit(f"against: {what} of {self.name} cannot be built: {(result.stdout + result.stderr).strip()}")


@dataclass(frozen=True)
class Comparison:
    """Seconds of the same work in both trees: this[n] and other[n] were measured in turn. error: why there are no times."""

    case: str
    what: str
    this: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def ratios(self) -> list[float]:
        return [this / other for this, other in zip(self.this, self.other) if other > 0]

    def row(self) -> dict[str, Any]:
        """Return a row of the table: medians in ms; median, least and most of the ratios; the number of pairs; or the error."""
        row: dict[str, Any] = {"case": self.case, "what": self.what}
        if not self.ratios:
            return row | {"error": self.error or "no time"}
        return row | {"this ms": median(self.this) * 1e3, "other ms": median(self.other) * 1e3,
                      "this/other": median(self.ratios), "least": min(self.ratios), "most": max(self.ratios),
                      "pairs": len(self.ratios)}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    try:
        device = select_device(chosen.device)
    except DriverError as error:
        raise SystemExit(f"against: {error}") from None
    this = Tree("this", ROOT)
    this.compile_shaders()
    with checked_out(ROOT, chosen.revision) as other, tqdm(disable=None, bar_format="{desc}", leave=False) as bar:
        compared = list(compare(chosen.only, this, other, device.index, chosen.pairs, bar.set_description_str))
    print(f"this: {ROOT}\nother: {chosen.revision}\non {device.name}, {device.driver} {device.driver_version}\n")
    print(table([comparison.row() for comparison in compared], dict.fromkeys(("this/other", "least", "most"), ".3f")))
    if chosen.json:
        chosen.json.write_text(as_json(content(compared, chosen, device)))
    return int(any("error" in comparison.row() for comparison in compared))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=(__doc__ or "").splitlines()[0],
                                     epilog="cases: " + ", ".join(case.name for case in CASES))
    parser.add_argument("revision", metavar="REVISION", help="the other commit: a name, tag or hash that git knows")
    parser.add_argument("--only", nargs="+", metavar="PATTERN", default=["*"], help="cases to run, such as 'gru-100x1x*' (all)")
    parser.add_argument("--pairs", type=int, default=9, metavar="N", help="samples of each time, fewer of slow calls (9)")
    parser.add_argument("--device", help=f"{DEVICE}; see `vkdml devices`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times to a JSON file too")
    chosen = parser.parse_args(arguments)
    if chosen.pairs < 1:
        parser.error("--pairs: at least 1")
    for pattern in chosen.only:
        if not matching([pattern]):
            parser.error(f"--only: no case matches {pattern!r}")
    chosen.only = matching(chosen.only)
    return chosen


def matching(patterns: Sequence[str]) -> list[Case]:
    return [case for case in CASES if any(fnmatchcase(case.name, pattern) for pattern in patterns)]


@contextmanager
def checked_out(repository: Path, revision: str) -> Iterator[Tree]:
    """Yield a commit's Tree, built in a temporary worktree that is removed afterwards. Raises SystemExit if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree("other", Path(folder).resolve() / "tree")
        _git(repository, "worktree", "add", "--detach", "--quiet", str(tree.folder), f"{revision}^{{commit}}")
        try:
            tree.compile_shaders()
            tree.build_kp()
            yield tree
        finally:
            _git(repository, "worktree", "remove", "--force", str(tree.folder))


def _git(repository: Path, *arguments: str) -> None:
    try:
        subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("against: git is missing") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"against: git {arguments[0]}: {error.stderr.strip()}") from None


def compare(cases: Sequence[Case], this: Tree, other: Tree, device: int, pairs: int, progress: Progress = lambda _: None
            ) -> Iterator[Comparison]:
    """Measure the cases in both trees. Yields each case's Comparisons: of steady calls, first results and compilation."""
    processes = [tree.process(device) for tree in (this, other)]
    try:
        for case in cases:
            yield from steady(case, processes, pairs, lambda what: progress(f"{case.name}: {what}"))  # noqa: B023
            progress(f"{case.name}: first results")
            yield from first_results(case, (this, other), device, pairs)
    finally:
        for process in processes:
            process.close()


def steady(case: Case, processes: Sequence[Process], pairs: int, progress: Progress) -> Iterator[Comparison]:
    results = measure_steady(case, processes, pairs, progress)
    failed = [f"{result.worker}: {result.error}" for result in results if result.error]
    if failed:
        yield Comparison(case.name, "steady", error="; ".join(failed))
        return
    this, other = ({result.way: result.seconds for result in results if result.worker == process.peer.name}
                   for process in processes)
    for way in this:
        yield Comparison(case.name, f"steady, {way}", this[way], other[way])


def first_results(case: Case, trees: Sequence[Tree], device: int, pairs: int) -> list[Comparison]:
    """Measure first results and compilation in both trees, in a new process each time. Every second pair runs in reverse."""
    measured: dict[str, list[dict[str, float]]] = {tree.name: [] for tree in trees}
    try:
        for number in range(pairs):
            for tree in trees if number % 2 == 0 else reversed(trees):
                measured[tree.name].append(first_result(case, tree, device))
    except WorkerError as error:
        return [Comparison(case.name, "first, compile", error=str(error))]
    this, other = measured.values()
    return [Comparison(case.name, what, [times[what] for times in this], [times[what] for times in other])
            for what in ("first", "compile")]


def first_result(case: Case, tree: Tree, device: int) -> dict[str, float]:
    try:
        return tree.process(device, NO_SHADER_CACHE).measure(case)
    except WorkerError as error:
        raise WorkerError(f"{tree.name}: {error}") from None


def content(compared: Sequence[Comparison], chosen: argparse.Namespace, device: DeviceInfo) -> dict[str, Any]:
    """Return the contents of the JSON file: the revision, the device, and rows with all times in seconds."""
    rows = [{**comparison.row(), "this s": comparison.this, "other s": comparison.other} for comparison in compared]
    return {"revision": chosen.revision, "device": vars(device), "rows": rows}


if __name__ == "__main__":
    raise SystemExit(main())
