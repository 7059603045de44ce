"""Fits the cost model's figures of a GPU, such as latencies, to a report's times. Says what to change in the tables of GPUs."""

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

# If times do not distinguish two figures, the first one here is fitted
FIGURES = {"seen": "until another workgroup sees a word", "dispatch": "a dispatch",
           "latency": "a load", "cache_rate": "the second-level cache", "clock": "arithmetic", "submission": "a submission"}
NOTHING, APART = "no time here depends on it", "these times do not tell it apart from others"
MOST = math.log(50)  # limit of a figure's change, as a logarithm
STEP = 0.01  # step in a logarithm, for derivatives
KNOWN = 0.9  # share of a figure's prior uncertainty that times must remove
UNSURE = 0.1  # prior uncertainty of a figure's logarithm, in units of that of a time's
ROUNDS, CLOSE = 30, 1e-4

Row = Mapping[str, Any]
Figures = TypeVar("Figures", GpuRates, Rates)


@dataclass(frozen=True)
class Change:
    """A figure before and after fitting. after: None if the times do not determine the figure. reason: why they do not."""

    figure: str
    before: float
    after: float | None
    reason: str = ""

    @property
    def what(self) -> str:
        return FIGURES[self.figure]


@dataclass(frozen=True)
class Fit:
    """The figures fitted to a device's times. name: the device's. gpu, profile: names of its rows in GPUS and PROFILES. runs:
    number of fitted times. off_before, off_after: by what factor estimates are typically off, before and after fitting.
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
        """Lines of Python with the fitted figures, for planning/gpus.py (below its table) and planning/profiles.py."""
        fitted = {change.figure: f"{change.figure}={change.after:.3g}" for change in self.changes if change.after is not None}
        calls = [fitted.pop(name) for name in CALLS if name in fitted]
        rates = list(fitted.values())
        changed = self.name if self.gpu == UNKNOWN else self.gpu
        return [*[f'GPUS["{changed}"] = replace(GPUS["{self.gpu}"], {", ".join(rates)})'] * bool(rates),
                *[f'rates=replace(_GPU.rates, {", ".join(calls)}),  # "{self.profile}"'] * bool(calls)]


CALLS = ("dispatch", "submission")  # figures in PROFILES


def fit(rows: Sequence[Row], info: DeviceInfo) -> Fit:
    """Fit figures to the times in a report's rows, by least squares of logarithms. Figures that the times do not determine stay
    as they are. For a CPU driver, nothing is fitted, as figures of GPUs do not describe it.
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
    """Whether a row has a time of a schedule whose results were not wrong and whose workgroups did not give up waiting."""
    return bool(row.get("schedule") in WAYS and row.get("seconds") and not row.get("gave up") and row.get("right") is not False)


def with_figures(target: Target, times: Mapping[str, float]) -> Target:
    """Return a copy of the target in which figures (of GpuRates and Rates) are multiplied. times: factors by figure."""
    changed = replace(target)
    vars(changed).update(gpu=_times(target.gpu, times),  # cached attributes
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
        """Plan a row's problem with the present planner. Returns a Run with the row's time; None if the planner refuses."""
        words = str(row["problem"]).split("-")
        case = Case(row["cell"], (row["T"], row["B"], row["I"], row["H"]), "phases" in words, 1 + ("bidirectional" in words),
                    "ragged" in words, row["type"])
        target = Target(case.problem, info, WAYS[row["schedule"]])
        try:
            return Run(target, best(target), row["seconds"])
        except InvalidArgumentError:
            return None


class Model:
    """Computes the cost model's estimates for some runs (timed plans) as logarithms, with figures that vary."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._measured = np.log([run.seconds for run in runs])

    def estimates(self, times: Mapping[str, float]) -> np.ndarray:
        """Return the logarithm of each run's estimated time, with figures multiplied by `times` (factors by figure)."""
        target = with_figures(self._runs[0].target, times) if self._runs else None
        return np.log([run.tiling.run_seconds(target) for run in self._runs if target])

    def off(self, times: Mapping[str, float]) -> float:
        residual = self._measured - self.estimates(times)
        return math.exp(float(np.sqrt(np.mean(residual**2)))) if len(residual) else 1.0

    def slopes(self, times: Mapping[str, float], names: Sequence[str] = tuple(FIGURES)) -> np.ndarray:
        """Return the derivatives of `estimates(times)` by the logarithms of figures: rows for runs, columns for figures."""
        columns = [self.estimates({**times, name: times.get(name, 1) * math.exp(STEP)})
                   - self.estimates({**times, name: times.get(name, 1) * math.exp(-STEP)}) for name in names]
        return np.array(columns).reshape(len(names), len(self._runs)).T / (2 * STEP)

    def solve(self, names: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
        """Fit figures by Gauss-Newton. Returns two dicts by figure: factors, and shares of prior variance that are removed."""
        found, held = np.zeros(len(names)), UNSURE**2 * np.eye(len(names))
        times = dict(zip(names, np.exp(found)))
        for number in range(ROUNDS):
            slopes, residual = self.slopes(times, names), self._measured - self.estimates(times)
            weak = np.sqrt(held * 0.1**number)  # keeps the first rounds near the start
            step = np.linalg.lstsq(np.vstack([slopes, weak]), np.append(residual, -weak @ found), rcond=None)[0]
            found = np.clip(found + step, -MOST, MOST)
            times = dict(zip(names, np.exp(found).tolist()))
            if np.abs(step).max(initial=0) < CLOSE:
                break
        unknown = np.diag(held @ np.linalg.inv(slopes.T @ slopes + held))
        return times, dict(zip(names, (1 - unknown).tolist()))
