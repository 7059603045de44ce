"""Records the clocks of this machine's GPUs around a part of the report. Clocks are low at rest, and rise under load."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vkdml import DriverError, Options
from vkdml_lab.bench.runner import warm_up
from vkdml_lab.bench.trials import arrays
from vkdml_lab.gpu.cases import Case
from vkdml_lab.gpu_report.machine import UNKNOWN
from vkdml_lab.gpu_report.steps import CLOCKS
from vkdml_lab.internals import Run, Target, Trial, best, open_device, plan_of, select_device
from vkdml_lab.reports import append

CARDS = Path("/sys/class/drm")
# amdgpu's files have a line for each level and a star behind the present one; those of i915 and xe have a number in MHz
FILES = ("card*/device/pp_dpm_sclk", "card*/device/pp_dpm_mclk", "card*/gt_act_freq_mhz",
         "card*/device/tile*/gt*/freq*/act_freq")
NVIDIA = ("nvidia-smi", "--query-gpu=index,clocks.sm,clocks.mem,pstate", "--format=csv,noheader")
NVIDIA_SECONDS = 10.0  # it starts the driver if no other program has
WORK = Case("gru", (100, 16, 256, 256))


@contextmanager
def recorded(folder: Path, warms_up: bool) -> Iterator[None]:
    """Append the clocks before and after this context to clocks.jsonl. warms_up: also those after half a second of work."""
    append(folder / CLOCKS, {"when": "before", **clocks()})
    if warms_up:
        failed = work()
        append(folder / CLOCKS, {"when": "warmed up", **clocks(), **({"failed": failed} if failed else {})})
    yield
    append(folder / CLOCKS, {"when": "after", **clocks()})


def clocks() -> dict[str, str]:
    """Return the present clocks of this machine's GPUs, as texts. Keys: the files or the program that show the clocks."""
    return {path.relative_to(CARDS).as_posix(): in_use(path)
            for pattern in FILES for path in sorted(CARDS.glob(pattern))} | of_nvidia()


def in_use(path: Path) -> str:
    """Return the present clock as a driver's file shows it: as the only number, or with a star in a list of all clocks."""
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    except OSError:  # the GPU sleeps
        return UNKNOWN
    if len(lines) == 1 and len(lines[0]) == 1:
        return f"{lines[0][0]} MHz"
    return next((words[1] for words in lines if words[-1] == "*"), UNKNOWN)


def of_nvidia() -> dict[str, str]:
    try:
        said = subprocess.run(NVIDIA, capture_output=True, text=True, timeout=NVIDIA_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [line.partition(", ") for line in said.splitlines() if line.strip()]
    return {f"nvidia-smi {index}": clock for index, _, clock in rows}


def work() -> str:
    """Keep the device busy for half a second. Returns "", or the text of the error if that failed."""
    try:
        gpu = open_device(select_device(None))
        target = Target(WORK.problem, gpu.info, Options(schedule="sequence"))  # without tuning and without workgroups that wait
        warm_up(Run(Trial(gpu, WORK.problem, arrays(WORK.problem)), plan_of(target, best(target))).execute)
    except DriverError as error:
        return str(error)
    return ""
