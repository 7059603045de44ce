"""What a tiling takes, in seconds: a small model that need only rank tilings, and measured times that correct it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from ..operators.element_types import ElementType
from ..operators.problem import Problem
from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .gpus import GpuRates
from .options import STEPPED
from .profiles import Rates
from .tiling import Machine, Tiling

Figures = TypeVar("Figures", GpuRates, Rates)

_VALID_STEPS = 0.75  # of a row, where lengths are given: a guess
_OF_THE_PROBLEM = (Problem, ElementType)
_FITTED = "chunk_steps"  # to the problem's own T and B


@dataclass(frozen=True)
class Measured:
    """The tiling that was the fastest of a size class, as `described`, and the seconds of each of its time steps, with what
    they have of the projection and of submitting.
    """

    tiling: Mapping[str, Any]
    step_seconds: float


class Costs:
    """The model of a device. times: how many times as long as it says steps and projections take."""

    def __init__(self, info: DeviceInfo, times: float = 1.0) -> None:
        self.machine = Machine(info)
        self.rates = self.machine.profile.rates
        self._times = times

    def seconds(self, tiling: Tiling) -> float:
        """Seconds of an execution, with its share of compiling."""
        return self.run_seconds(tiling) + tiling.compile_seconds(self.machine)

    def run_seconds(self, tiling: Tiling) -> float:
        loop, projection, steps = tiling.loop, tiling.projection, tiling.problem.steps
        total = steps * self.step_seconds(tiling) + loop.chunks * tiling.start_seconds(self.machine)
        dispatches = loop.dispatches
        if projection:
            share = _VALID_STEPS if projection.skips_padding else 1
            total += share * self.projection_seconds(tiling, steps)
            dispatches += ceil_div(steps, projection.chunk_steps)
        if loop.parts > 1 or projection:
            total += self.rates.second_worker
        if loop.schedule == STEPPED:
            total += (dispatches - 2) * self.rates.late_worker
        return total + self.rates.submission + dispatches * self.rates.dispatch

    def step_seconds(self, tiling: Tiling) -> float:
        """Seconds of one time step."""
        return self._times * tiling.step_seconds(self.machine)

    def projection_seconds(self, tiling: Tiling, steps: int) -> float:
        """Seconds of the projection of so many time steps."""
        return self._times * tiling.projection_seconds(self.machine, steps)

    def with_figures(self, times: Mapping[str, float]) -> Costs:
        """The model of a device with so many times the figures that are named, of GpuRates or of Rates."""
        changed = Costs(self.machine.info, self._times)
        machine = changed.machine
        machine.gpu = _times(machine.gpu, times)
        changed.rates = _times(changed.rates, times)
        machine.profile = replace(machine.profile, rates=changed.rates)
        return changed

    def corrected(self, tiling: Tiling, step_seconds: float) -> Costs:
        """The model, so that a step of this tiling takes what was measured."""
        steps, expected = tiling.problem.steps, self.step_seconds(tiling)
        if tiling.projection:
            expected += self.projection_seconds(tiling, steps) / steps
        return Costs(self.machine.info, step_seconds / expected)


def _times(figures: Figures, times: Mapping[str, float]) -> Figures:
    changed = {name: getattr(figures, name) * factor for name, factor in times.items() if hasattr(figures, name)}
    return replace(figures, **changed)


def described(part: Any) -> dict[str, Any]:
    """All that tells a tiling from the others of its size class, as JSON can have it."""
    values = {field.name: getattr(part, field.name) for field in fields(part) if field.name != _FITTED}
    return {name: described(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items() if not isinstance(value, _OF_THE_PROBLEM)}
