"""Times the plans that vkdml could choose for a problem (candidates), among them those that the cost model and tuner choose."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vkdml import Options
from vkdml_lab import internals
from vkdml_lab.bench import candidates
from vkdml_lab.gpu.cases import Case
from vkdml_lab.gpu_report.problems import CANDIDATES, QUICK_CANDIDATES, QUICK_SAMPLES, SAMPLES, about
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import (
    ON,
    Gpu,
    Target,
    Tiling,
    Tuner,
    best_of_each_schedule,
    described,
    folder_of_choices,
    open_device,
    select_device,
)

MOST, QUICK_MOST = 24, 3
NOTES = """The model's best candidates, and its best of each schedule, take turns; times are medians. `choice` says which the
model takes, and which the tuner, to whom nothing was known before. `over the best` is how much longer one takes than the
fastest. What the tuner has kept is in the folder tuning. CPU drivers go by the model alone."""


def steps(job: Job) -> list[Step]:
    gpu = open_device(select_device(None))

    def run(case: Case) -> Iterator[Row]:
        with nothing_kept(job.folder):
            for row in measure(gpu, Tuner(gpu), case, *((QUICK_MOST, QUICK_SAMPLES) if job.quick else (MOST, SAMPLES))):
                yield {"table": case.name, **about(case), "library": "vkdml", "way": "device", **row}

    return [Step(case.name, partial(run, case), like=f"H={case.sizes[-1]}", seconds=30)
            for case in (QUICK_CANDIDATES if job.quick else CANDIDATES)]


def summary(found: list[Row]) -> str:
    regrets = [row["over the best"] for row in found if "tuner" in row.get("choice", "") and row["over the best"] is not None]
    return f"the tuner's choice takes at most {max(regrets):.0%} more than the best of {len(found)}" if regrets else ""


@contextmanager
def nothing_kept(folder: Path) -> Iterator[None]:
    """Give the tuner an empty folder of choices in this context. In the end, copy its new choices to "tuning" in `folder`."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        yield
        place = folder_of_choices()
        if place and place.exists():
            shutil.copytree(place, folder / "tuning", dirs_exist_ok=True)


def measure(gpu: Gpu, tuner: Tuner, case: Case, most: int, samples: int) -> list[Row]:
    """Time the best candidates, each schedule's best and the tuner's choice. Returns a row for each, the model's first."""
    target = Target(case.problem, gpu.info)
    _, chosen = tuner.choice(case.problem, Options(), ON)
    tilings = worth_trying(target, most)
    if described(chosen) not in map(described, tilings):
        tilings.append(chosen)
    rows = candidates.measure(gpu, target, tilings, samples)
    return [{"choice": choice(place, described(tiling) == described(chosen)), "schedule": row.pop("way"), **row}
            for place, (tiling, row) in enumerate(zip(tilings, rows))]


def worth_trying(target: Target, most: int) -> list[Tiling]:
    """Return the best candidates by estimated times, `most` in number, and the best of each schedule."""
    tilings = internals.tilings(target)
    return tilings[:most] + [tiling for tiling in best_of_each_schedule(tilings) if tiling not in tilings[:most]]


def choice(place: int, is_tuners: bool) -> str:
    return " and ".join(["model"] * (place == 0) + ["tuner"] * is_tuners)
