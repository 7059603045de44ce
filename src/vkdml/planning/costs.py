"""What a tiling takes, in seconds: a small model that need only rank tilings."""

from __future__ import annotations

from ..operators.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .options import STEPPED
from .target import Machine
from .tiling import Tiling

_VALID_STEPS = 0.75  # of a row, where lengths are given: a guess


class Costs:
    """The model of a device."""

    def __init__(self, info: DeviceInfo) -> None:
        self.machine = Machine(info)
        self.rates = self.machine.profile.rates

    def seconds(self, tiling: Tiling) -> float:
        """Of an execution, with its share of compiling."""
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
        """Of one time step."""
        return tiling.step_seconds(self.machine)

    def projection_seconds(self, tiling: Tiling, steps: int) -> float:
        """Of the projection of so many time steps."""
        return tiling.projection_seconds(self.machine, steps)
