"""The parts of the report, one after the other, and the report of them: `vkdml gpu-report`.

Each part runs in a process of its own: where one fails, crashes or hangs, the report says so and the others still run.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

import vkdml
from bench.processes import environment as without_layers
from tools.gpu_report.outcome import FAILED, OUTCOME, PASSED, SKIPPED, Outcome
from tools.gpu_report.parts import PARTS, Part
from vkdml import DeviceInfo
from vkdml.laboratory import bullets, document, select_device, supervise, table, write

ROOT = Path(__file__).resolve().parents[2]
OUTPUT, REPORT = "output.txt", "report.md"
LAST_LINES, MOST_FAILURES = 5, 20
ORDER = (FAILED, PASSED, SKIPPED)


@dataclass(frozen=True)
class Finished:
    part: Part
    outcome: Outcome
    files: Sequence[str]


def main(output: Path, device: str | None = None, quick: bool = False, parts: Sequence[Part] = PARTS) -> int:
    info = select_device(device)
    folder = output.resolve()
    finished: list[Finished] = []
    with tqdm(parts, disable=None, unit="part") as bar:
        for part in bar:
            bar.set_postfix_str(part.name)
            finished.append(run_part(part, folder, info, quick))
            bar.write(f"{part.name}: {finished[-1].outcome.status}: {finished[-1].outcome.line}", file=sys.stderr)
            write(folder, {REPORT: report(info, finished, quick)})  # now, in case the next part is interrupted
    print(f"report: {output}/{REPORT}")
    return int(any(one.outcome.status == FAILED for one in finished))


def run_part(part: Part, folder: Path, info: DeviceInfo, quick: bool) -> Finished:
    """Run a part in a process whose output is kept beside the part's files."""
    own = folder / part.name
    shutil.rmtree(own, ignore_errors=True)  # left by a report before this one
    own.mkdir(parents=True)
    command = [sys.executable, "-m", "tools.gpu_report.worker", part.module, str(own), *["--quick"] * quick]
    device = {"VKDML_DEVICE": str(info.index)}
    environment = {**os.environ, **device} if part.has_layers else without_layers(device)
    ended = supervise(command, environment, ROOT, seconds=part.seconds, output=own / OUTPUT)
    outcome = Outcome.read(own) or Outcome(FAILED, ended.how, ended.output.splitlines()[-LAST_LINES:])
    files = sorted(path.relative_to(folder).as_posix() for path in own.rglob("*") if path.is_file() and path.name != OUTCOME)
    return Finished(part, outcome, files)


def report(info: DeviceInfo, finished: Sequence[Finished], quick: bool) -> str:
    """The report as Markdown; failed parts come first."""
    in_order = sorted(finished, key=lambda one: ORDER.index(one.outcome.status))
    failed = [one for one in in_order if one.outcome.status == FAILED]
    rows = [{"part": one.part.title, "outcome": one.outcome.status, "": one.outcome.line,
             "files": " ".join(f"[{Path(name).name}]({name})" for name in one.files)} for one in in_order]
    return document(
        "# vkdml on a GPU",
        f"{info.name}, {info.driver} {info.driver_version}, Vulkan {info.api_version}; vkdml {vkdml.__version__}",
        "This is a driver that runs on the processor: nothing here is about a GPU." if info.is_cpu else "",
        "Quick: a little of each part, and too few repetitions for times that mean something." if quick else "",
        *map(failures, failed), "## Parts", table(rows))


def failures(one: Finished) -> str:
    """A section about a part that failed."""
    sentences = [" ".join(sentence.split()) for sentence in [one.outcome.line, *one.outcome.failures]]
    return bullets(f"## Failed: {one.part.title}", sentences, 1 + MOST_FAILURES)
