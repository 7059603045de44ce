"""All that this machine's GPU can tell about vkdml, in one folder: what is right, what is fast, and what was expected.

    python -m tools.gpu_report [--output DIR] [--device D] [--quick]

Each part runs in a process of its own: where one fails, crashes or hangs, the report says so and the others still run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate
from tqdm import tqdm

import vkdml
from bench.processes import environment as without_layers
from tools.gpu_report.outcome import FAILED, OUTCOME, PASSED, SKIPPED, Outcome
from tools.gpu_report.parts import PARTS, Part
from vkdml.errors import DriverError
from vkdml.planning.device_info import DeviceInfo
from vkdml.runtime.device import select_device

ROOT = Path(__file__).resolve().parents[2]
OUTPUT, REPORT = "output.txt", "report.md"
LAST_LINES, MOST_FAILURES = 5, 20
ENDING_SECONDS = 10.0  # that a killed process may take; one that waits for a driver may never end
ORDER = (FAILED, PASSED, SKIPPED)


@dataclass(frozen=True)
class Finished:
    part: Part
    outcome: Outcome
    files: Sequence[str]


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "gpu-report", help="a folder (gpu-report)")
    parser.add_argument("--device", help="an index or a part of a name (VKDML_DEVICE, or else the first GPU)")
    parser.add_argument("--quick", action="store_true", help="a little of each part, to see that it works")
    given = parser.parse_args(arguments)
    try:
        info = select_device(given.device)
    except DriverError as error:
        raise SystemExit(f"gpu-report: {error}") from None
    folder = given.output.resolve()
    finished: list[Finished] = []
    with tqdm(parts, disable=None, unit="part") as bar:
        for part in bar:
            bar.set_postfix_str(part.name)
            finished.append(run(part, folder, info, given.quick))
            bar.write(f"{part.name}: {finished[-1].outcome.status}: {finished[-1].outcome.line}", file=sys.stderr)
            (folder / REPORT).write_text(report(info, finished, given.quick))  # now, in case the next part is interrupted
    print(f"report: {given.output}/{REPORT}")
    return int(any(one.outcome.status == FAILED for one in finished))


def run(part: Part, folder: Path, info: DeviceInfo, quick: bool) -> Finished:
    """In a process, whose output is kept beside the part's files."""
    own = folder / part.name
    shutil.rmtree(own, ignore_errors=True)  # of a report before this one
    own.mkdir(parents=True)
    command = [sys.executable, "-m", "tools.gpu_report.worker", part.module, str(own), *["--quick"] * quick]
    device = {"VKDML_DEVICE": str(info.index)}
    environment = {**os.environ, **device} if part.has_layers else without_layers(device)
    ended = supervise(command, environment, own / OUTPUT, part.seconds)
    outcome = Outcome.read(own) or Outcome(FAILED, ended, last_lines(own / OUTPUT))
    files = sorted(path.relative_to(folder).as_posix() for path in own.rglob("*") if path.is_file() and path.name != OUTCOME)
    return Finished(part, outcome, files)


def supervise(command: Sequence[str], environment: Mapping[str, str], output: Path, seconds: float) -> str:
    """Run a command with all that it starts. Returns how it ended."""
    with output.open("w") as written:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=written,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"hung: not done in {seconds:g} s"
        finally:
            end(process)
    return f"crashed: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


def end(process: subprocess.Popen[bytes]) -> None:
    """And its children, which are in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(ENDING_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return


def last_lines(output: Path) -> list[str]:
    return [line for line in output.read_text(errors="replace").splitlines() if line.strip()][-LAST_LINES:]


def report(info: DeviceInfo, finished: Sequence[Finished], quick: bool) -> str:
    """What failed comes first."""
    in_order = sorted(finished, key=lambda one: ORDER.index(one.outcome.status))
    failed = [one for one in in_order if one.outcome.status == FAILED]
    rows = [[one.part.title, one.outcome.status, one.outcome.line.replace("|", "/"),
             " ".join(f"[{Path(name).name}]({name})" for name in one.files)] for one in in_order]
    parts = ["# vkdml on a GPU",
             f"{info.name}, {info.driver} {info.driver_version}, Vulkan {info.api_version}; vkdml {vkdml.__version__}",
             *["This is a driver that runs on the processor: nothing here is about a GPU."] * info.is_cpu,
             *["Quick: a little of each part, and too few repetitions for times that mean something."] * quick,
             *(section for one in failed for section in (f"## Failed: {one.part.title}", failures(one))),
             "## Parts", tabulate(rows, ["part", "outcome", "", "files"], "github", disable_numparse=True)]
    return "\n\n".join(parts) + "\n"


def failures(one: Finished) -> str:
    """Of a part, as a list."""
    shown = [one.outcome.line, *one.outcome.failures[:MOST_FAILURES]]
    left = len(one.outcome.failures) - MOST_FAILURES
    return "\n".join(f"- {' '.join(sentence.split())}" for sentence in [*shown, *[f"and {left} more"] * (left > 0)])


if __name__ == "__main__":
    raise SystemExit(main())
