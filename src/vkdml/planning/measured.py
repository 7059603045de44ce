"""What an execution was measured to take, in the place of what the model expects of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ..operators.element_types import ElementType
from ..operators.problem import Problem
from .costs import Costs
from .device_info import DeviceInfo
from .tiling import Tiling

_OF_THE_PROBLEM = (Problem, ElementType)
_FITTED = "chunk_steps"  # to the problem's own T and B


@dataclass(frozen=True)
class Measured:
    """The tiling that was the fastest of a size class, as `described`, and the seconds of each of its time steps, with what
    they have of the projection and of submitting.
    """

    tiling: Mapping[str, Any]
    step_seconds: float


class MeasuredCosts(Costs):
    """The model, with steps and projections so many times as long as it says."""

    def __init__(self, info: DeviceInfo, times: float) -> None:
        super().__init__(info)
        self._times = times

    def step_seconds(self, tiling: Tiling) -> float:
        return self._times * super().step_seconds(tiling)

    def projection_seconds(self, tiling: Tiling, steps: int) -> float:
        return self._times * super().projection_seconds(tiling, steps)


def measured_costs(info: DeviceInfo, tiling: Tiling, step_seconds: float) -> Costs:
    """The model, so that a step of this tiling takes what was measured."""
    model, steps = Costs(info), tiling.problem.steps
    expected = model.step_seconds(tiling)
    if tiling.projection:
        expected += model.projection_seconds(tiling, steps) / steps
    return MeasuredCosts(info, step_seconds / expected)


def described(tiling: Tiling) -> dict[str, Any]:
    """All that tells a tiling from the others of its size class, as JSON can have it."""
    return _described(tiling)


def _described(part: Any) -> dict[str, Any]:
    values = {field.name: getattr(part, field.name) for field in fields(part) if field.name != _FITTED}
    return {name: _described(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items() if not isinstance(value, _OF_THE_PROBLEM)}
