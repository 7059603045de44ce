"""The parts of the report, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTES = 60


@dataclass(frozen=True)
class Part:
    """A part. name: that of its module, which has `run`, and of its folder. seconds: after which it counts as hanging.

    has_layers: Vulkan layers of this machine may be loaded; a validation layer takes time. room: the package of its module.
    """

    name: str
    title: str
    seconds: float
    has_layers: bool = False
    room: str = "tools.gpu_report"

    @property
    def module(self) -> str:
        return f"{self.room}.{self.name}"


PARTS = [
    Part("devices", "Devices and their limits", 2 * _MINUTES),
    Part("conformance", "Conformance", 120 * _MINUTES),
    Part("validation", "Validation", 60 * _MINUTES, has_layers=True),
    Part("bits", "Every schedule, bit for bit", 90 * _MINUTES),
    Part("ceilings", "Ceilings", 15 * _MINUTES),
    Part("candidates", "Candidates beside the tuner's choice", 60 * _MINUTES),
    Part("peers", "Beside other libraries", 60 * _MINUTES),
    Part("estimates", "Estimates beside measurements", 30 * _MINUTES),
]
