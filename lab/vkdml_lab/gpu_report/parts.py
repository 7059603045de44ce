"""Lists the parts of the report and their turns. A part is a module with steps; a turn runs those that are left."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTES = 60


@dataclass(frozen=True)
class Part:
    """A part of the report. name: of its module and folder. silence: seconds after which it counts as hung if no step begins or
    ends. has_layers: it may load Vulkan layers, which cost time. is_timed: the GPU is warmed up before it. room: its package.
    """

    name: str
    title: str
    silence: float = 5 * _MINUTES
    has_layers: bool = False
    is_timed: bool = False
    room: str = "vkdml_lab.gpu_report"

    @property
    def module(self) -> str:
        return f"{self.room}.{self.name}"


@dataclass(frozen=True)
class Turn:
    """A run of those steps of a part that are left. seconds: expected time. first: run only the most important steps."""

    part: Part
    seconds: float
    first: bool = False


DEVICES = Part("devices", "Devices")
CONFORMANCE = Part("conformance", "Conformance", 30 * _MINUTES)
SCHEDULES = Part("schedules", "Schedules, bit for bit and beside the model", is_timed=True)
PEERS = Part("peers", "Beside other libraries", 10 * _MINUTES, is_timed=True)
ON_GPU = Part("on_gpu", "PyTorch's tensors on the GPU", is_timed=True)
CEILINGS = Part("ceilings", "Ceilings", is_timed=True)
CANDIDATES = Part("candidates", "The tuner's choices", 10 * _MINUTES, is_timed=True)
VALIDATION = Part("validation", "Validation", 60 * _MINUTES, has_layers=True)
PARTS = [DEVICES, CONFORMANCE, SCHEDULES, PEERS, ON_GPU, CEILINGS, CANDIDATES, VALIDATION]

# The most important first: correctness, the times of schedules, and times beside other libraries
TURNS = [
    Turn(DEVICES, 5), Turn(CONFORMANCE, 75, first=True), Turn(SCHEDULES, 75, first=True), Turn(PEERS, 150, first=True),
    Turn(ON_GPU, 30), Turn(CEILINGS, 60), Turn(SCHEDULES, 6 * _MINUTES), Turn(CANDIDATES, 6 * _MINUTES),
    Turn(ON_GPU, 3 * _MINUTES), Turn(PEERS, 6 * _MINUTES), Turn(CONFORMANCE, 10 * _MINUTES), Turn(VALIDATION, 10 * _MINUTES),
]
