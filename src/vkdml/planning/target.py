"""What plans are made for: a problem, a device, and options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..operators.problem import Problem
from .device_info import DeviceInfo
from .gpus import GpuRates
from .options import PERSISTENT, Options
from .profiles import gpu_rates, profile


class Machine:
    """A device with what its profile says of it, looked up once."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info, self.profile = info, profile(info)
        self.workers = self.profile.workers or info.cores

    @cached_property
    def gpu(self) -> GpuRates:
        """The rates for kernels for GPUs, which CPU drivers may run too."""
        return gpu_rates(self.info)


@dataclass(frozen=True)
class Target:
    """A problem on a machine, with options that are checked."""

    problem: Problem
    machine: Machine
    options: Options

    @cached_property
    def lanes(self) -> int:
        """The subgroup size where shuffles replace loads, else 1.

        Only CPU drivers gain: their workgroup is one whole subgroup, and loads are what they are slow at. A GPU reads shared
        memory faster, and may run a subgroup with fewer invocations than it reports. Kernels that shuffle are never persistent.
        """
        info, options = self.machine.info, self.options
        possible = info.subgroup_shuffle and info.subgroup_size > 1 and not self.problem.element.pairs
        is_preferred = self.machine.profile.prefers_shuffles and options.schedule != PERSISTENT
        wanted = is_preferred if options.lanes is None else options.lanes
        return info.subgroup_size if possible and wanted else 1
