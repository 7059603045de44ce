"""Runs the parts of the report in turns (parts.py) within a time limit, and writes the report: `vkdml gpu-report`.

Each part has its own process. If a part fails, crashes or hangs, the report says so, and the others still run. A second call
with the same folder continues the report.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from tqdm import tqdm

import vkdml
from vkdml import DeviceInfo, InvalidArgumentError
from vkdml_lab import ROOT
from vkdml_lab.bench.processes import environment as without_layers
from vkdml_lab.gpu_report import first_page, sending
from vkdml_lab.gpu_report.found import FAILED, Found
from vkdml_lab.gpu_report.parts import TURNS, Turn
from vkdml_lab.gpu_report.steps import LOG, RESULTS, STOPPED, Log, lines, write_tables
from vkdml_lab.internals import select_device
from vkdml_lab.processes import supervise
from vkdml_lab.reports import append, write

REPORT, ABOUT = "report.md", "about.jsonl"
MOST_CRASHES = 3  # in a turn
BAR = "{desc}: {n} of at most {total} s{postfix}"
LEAST = 10.0  # seconds of a turn; a process takes some to start


def main(output: Path, device: str | None = None, minutes: float = 30, quick: bool = False, turns: Sequence[Turn] = TURNS
         ) -> int:
    until = time.time() + 60 * minutes
    info = select_device(device)
    folder = output.resolve()
    load = begin(folder, output, info, quick)
    print(forecast(folder, turns, minutes, quick), file=sys.stderr)
    parts = list(dict.fromkeys(turn.part for turn in turns))
    for place, turn in enumerate(turns):
        if time.time() < until and not Found.read(turn.part, folder).is_done:
            run_turn(turn, folder, info, quick, share(turns[place:], folder, until))
        found = [Found.read(part, folder) for part in parts]
        write(folder, {REPORT: first_page.report(info, found, quick, load)})  # now, in case the next part is interrupted
        sending.clean(folder)
    archive = sending.pack(folder)
    print(f"report: {output / REPORT}; to send it: {os.path.relpath(archive)}")
    return int(any(one.status == FAILED for one in found))


def begin(folder: Path, output: Path, info: DeviceInfo, quick: bool) -> float:
    """Create the folder, or check that its report has this device and options. Returns the machine's highest load so far."""
    about = {"device": info.name, "driver": f"{info.driver} {info.driver_version}", "vkdml": vkdml.__version__, "quick": quick}
    known = lines(folder / ABOUT)
    if known and known[0] != about:
        raise InvalidArgumentError("gpu-report", "--output", f"{output}, which has a report of {known[0]}",
                                   f"another folder, or one of {about}")
    folder.mkdir(parents=True, exist_ok=True)
    append(folder / ABOUT, *([] if known else [about]), {"load": os.getloadavg()[0]})
    return max(row["load"] for row in lines(folder / ABOUT)[1:])


def forecast(folder: Path, turns: Sequence[Turn], minutes: float, quick: bool) -> str:
    """Return a text that says how long the report will take. minutes: the limit. quick: whether it is a --quick report."""
    left = [turn for turn in turns if not Found.read(turn.part, folder).is_done]
    seconds = sum(turn.seconds for turn in left)
    if quick or seconds < 60 * minutes:
        taken = "a minute or two" if quick else f"about {max(1, round(seconds / 60))} minutes"
        return f"this takes {taken}: {', '.join(dict.fromkeys(turn.part.name for turn in left))}"
    return (f"this takes {minutes:g} minutes, what matters most first; all of it would take about {round(seconds / 60)}: a "
            "second call with the same --output goes on")


def share(turns: Sequence[Turn], folder: Path, until: float) -> float:
    """Return when the first of these turns should end, as of time.time(). Turns share the time until `until` in proportion to
    their expected times, but those that run only the most important steps count ten times.
    """
    left = [turn.seconds if turn.first else turn.seconds / 10 for turn in turns if not Found.read(turn.part, folder).is_done]
    return time.time() + max(LEAST, (until - time.time()) * left[0] / sum(left))


def run_turn(turn: Turn, folder: Path, info: DeviceInfo, quick: bool, until: float) -> None:
    """Run a turn's steps in a process until about `until`. If a step crashes or hangs, a new process runs the next ones."""
    own = folder / turn.part.name
    own.mkdir(exist_ok=True)
    overrun = (until - time.time()) / 4  # seconds
    (own / LOG).touch()
    (own / STOPPED).unlink(missing_ok=True)
    command = [sys.executable, "-m", "vkdml_lab.gpu_report.worker", turn.part.module, str(own), str(until),
               *["--quick"] * quick, *["--first"] * turn.first, *["--warm"] * turn.part.is_timed]
    device = {"VKDML_DEVICE": str(info.index)}
    variables = {**os.environ, **device} if turn.part.has_layers else without_layers(device)
    with closing(tqdm(desc=turn.part.name, total=round(4 * overrun), disable=None, leave=False, bar_format=BAR)) as bar:
        for _ in range(MOST_CRASHES):
            room = until - time.time() + overrun
            if room <= 0:
                break
            output = own / f"output-{1 + len(list(own.glob('output-*.txt')))}.txt"
            ended = supervise(command, variables, ROOT, seconds=room, grows=own / LOG, silence=turn.part.silence,
                              seen=progress(bar, own, until), output=output)
            if ended.code == 0:
                break
            step = Log(own).running
            if time.time() >= until + overrun:  # the next call gives this step as much time
                Log(own).cut(step, room)
                break
            said = ": ".join([ended.how, *ended.output.splitlines()[-1:]])
            if step is None:
                write(own, {STOPPED: {"failed": said}})
                break
            append(own / RESULTS, {"part": turn.part.name, "step": step, "right": False, "failed": said})
            Log(own).end(step)
    if lines(own / RESULTS):
        write_tables(importlib.import_module(turn.part.module), own)
    print(Found.read(turn.part, folder).summarized, file=sys.stderr)


def progress(bar: tqdm, own: Path, until: float) -> Callable[[], None]:
    def seen() -> None:
        log = Log(own)
        bar.set_postfix_str(f"step {len(log.ended) + 1} of {log.total}: {log.running}" if log.running else "", refresh=False)
        bar.n = round(min(bar.total or 0, (bar.total or 0) + time.time() - until))
        bar.refresh()

    return seen
