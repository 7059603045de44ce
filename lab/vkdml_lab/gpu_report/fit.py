"""The figures of the planner's model that explain the times of a report best: what to change in the tables of GPUs, to what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from vkdml import DeviceInfo, InvalidArgumentError
from vkdml_lab.gpu.cases import Case
from vkdml_lab.gpu_report.devices import UNKNOWN, figures_of
from vkdml_lab.gpu_report.problems import WAYS
from vkdml_lab.internals import PROFILES, GpuRates, Rates, Target, Tiling, best, profile

# Where times do not tell two figures apart, the one that comes first here is fitted
FIGURES = {"seen": "until another workgroup sees a word", "dispatch": "a dispatch",
           "latency": "a load", "cache_rate": "the second-level cache", "clock": "arithmetic", "submission": "a submission"}
NOTHING, APART = "no time here depends on it", "these times do not tell it apart from others"
MOST = math.log(50)  # no figure is as wrong as that
STEP = 0.01   # of a logarithm, for derivatives
KNOWN = 0.9   # of what is not known of a figure before, its share that times must tell
UNSURE = 0.1  # of the logarithm of a time beside that of a figure, before
ROUNDS, CLOSE = 30, 1e-4

Row = Mapping[str, Any]
Figures = TypeVar("Figures", GpuRates, Rates)


@dataclass(frozen=True)
class Change:
    """A figure. after: what explains the times best; None: they do not say, and `reason` says why."""

    figure: str
    before: float
    after: float | None
    reason: str = ""

    @property
    def what(self) -> str:
        return FIGURES[self.figure]


@dataclass(frozen=True)
class Fit:
    """All figures. name: the device's. gpu, profile: the rows of GPUS and PROFILES that have them. runs: of schedules, whose
    times they explain. off_before, off_after: by which factor the model is off, up or down, typically.
    """

    name: str

    gpu: str
    profile: str
    changes: Sequence[Change]
    runs: int
    off_before: float
    off_after: float

    @property
    def lines(self) -> list[str]:
        """Python to paste: into planning/gpus.py, below the table, and into the row of planning/profiles.py."""
        fitted = {change.figure: f"{change.figure}={change.after:.3g}" for change in self.changes if change.after is not None}
        calls = [fitted.pop(name) for name in CALLS if name in fitted]
        rates = list(fitted.values())
        changed = self.name if self.gpu == UNKNOWN else self.gpu
        return [*[f'GPUS["{changed}"] = replace(GPUS["{self.gpu}"], {", ".join(rates)})'] * bool(rates),
                *[f'rates=replace(_GPU.rates, {", ".join(calls)}),  # "{self.profile}"'] * bool(calls)]


CALLS = ("dispatch", "submission")  # figures of PROFILES


def fit(rows: Sequence[Row], info: DeviceInfo) -> Fit:
    """The fit of a report's rows: least squares of the logarithms of whole executions' times, over the figures' logarithms.

    A CPU driver's figures are not those of a GPU: nothing is fitted.
    """
    runs = [run for row in rows if usable(row) and not info.is_cpu and (run := Run.of(row, info))]
    model = Model(runs)
    left = {name: NOTHING for name, effect in zip(FIGURES, np.abs(model.slopes({})).max(axis=0, initial=0)) if not effect}
    while True:
        names = [name for name in FIGURES if name not in left]
        times, known = model.solve(names)
        worst = min(reversed(names), key=lambda name: round(known[name], 3), default=None)
        if worst is None or known[worst] >= KNOWN:
            break
        left[worst] = APART
    gpu, of_calls = profile(info).gpu, profile(info).rates
    changes = []
    for name in FIGURES:
        before = getattr(of_calls if name in CALLS else gpu, name)
        changes.append(Change(name, before, before * times[name] if name in times else None, left.get(name, "")))
    of_profile = next(key for key, row in PROFILES.items() if row.fits(info))
    return Fit(info.name, figures_of(profile(info)), of_profile, changes, len(runs), model.off({}), model.off(times))


def usable(row: Row) -> bool:
    """Whether a row has the time of a schedule, which did what it was estimated to do."""
    return bool(row.get("schedule") in WAYS and row.get("seconds") and not row.get("gave up") and row.get("right") is not False)


def with_figures(target: Target, times: Mapping[str, float]) -> Target:
    """The target of a device with so many times the figures that are named, of GpuRates or of Rates."""
    changed = replace(target)
    vars(changed).update(gpu=_times(target.gpu, times),  # which are looked up once
                         profile=replace(target.profile, rates=_times(target.profile.rates, times)))
    return changed


def _times(figures: Figures, times: Mapping[str, float]) -> Figures:
    named = {name: getattr(figures, name) * factor for name, factor in times.items() if hasattr(figures, name)}
    return replace(figures, **named)


@dataclass(frozen=True)
class Run:
    target: Target
    tiling: Tiling
    seconds: float

    @staticmethod
    def of(row: Row, info: DeviceInfo) -> Run | None:
        """A row's. The plan is the one that was chosen then, unless planning has changed meanwhile."""
        words = str(row["problem"]).split("-")
        case = Case(row["cell"], (row["T"], row["B"], row["I"], row["H"]), "phases" in words, 1 + ("bidirectional" in words),
                    "ragged" in words, row["type"])
        target = Target(case.problem, info, WAYS[row["schedule"]])
        try:
            return Run(target, best(target), row["seconds"])
        except InvalidArgumentError:
            return None


class Model:
    """The planner's, of some runs, as logarithms."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._measured = np.log([run.seconds for run in runs])

    def estimates(self, times: Mapping[str, float]) -> np.ndarray:
        """The logarithms of what runs take with so many times the figures."""
        target = with_figures(self._runs[0].target, times) if self._runs else None
        return np.log([run.tiling.run_seconds(target) for run in self._runs if target])

    def off(self, times: Mapping[str, float]) -> float:
        residual = self._measured - self.estimates(times)
        return math.exp(float(np.sqrt(np.mean(residual**2)))) if len(residual) else 1.0

    def slopes(self, times: Mapping[str, float], names: Sequence[str] = tuple(FIGURES)) -> np.ndarray:
        """How the estimates grow with each figure: a row for each run."""
        columns = [self.estimates({**times, name: times.get(name, 1) * math.exp(STEP)})
                   - self.estimates({**times, name: times.get(name, 1) * math.exp(-STEP)}) for name in names]
        return np.array(columns).reshape(len(names), len(self._runs)).T / (2 * STEP)

    def solve(self, names: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
        """Gauss and Newton's way: so many times each figure, and which share of what was not known of it is known now."""
        found, held = np.zeros(len(names)), UNSURE**2 * np.eye(len(names))
        times = dict(zip(names, np.exp(found)))
        for number in range(ROUNDS):
            slopes, residual = self.slopes(times, names), self._measured - self.estimates(times)
            weak = np.sqrt(held * 0.1**number)  # holds the first rounds near to where they began
            step = np.linalg.lstsq(np.vstack([slopes, weak]), np.append(residual, -weak @ found), rcond=None)[0]
            found = np.clip(found + step, -MOST, MOST)
            times = dict(zip(names, np.exp(found).tolist()))
            if np.abs(step).max(initial=0) < CLOSE:
                break
        unknown = np.diag(held @ np.linalg.inv(slopes.T @ slopes + held))
        return times, dict(zip(names, (1 - unknown).tolist()))
