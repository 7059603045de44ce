"""Problem + device -> plan. No Vulkan here, and on one machine the same problem always gives the same plan, but for what was
measured of it (measured.py).

Three schedules, one gate math (shaders/cells/):
- sequence: a workgroup owns a direction and a tile of batch rows from the first time step to the last; a dispatch runs a
  chunk of steps.
- stepped: the units are spread over several workgroups, the parts, and a dispatch runs one phase of one step.
- persistent: they are spread so too, and a dispatch runs a chunk of steps; the parts wait for each other at a barrier of their
  own or, in flow, for each word of h. Vulkan promises no progress of one workgroup while another waits, so waiting is bounded,
  and a plan has a fallback. Only the kernels for GPUs know it, and unasked only GPUs have it, where all parts fit side by side.

Each with the input's part of all gates first, as one matrix product for many time steps (the projection). The kernels of CPU
drivers and of float64 may multiply it in the loop instead (fused): one dispatch less, for few steps or few inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import InvalidArgumentError
from ..operators.checks import CheckedOperator
from ..operators.problem import Problem
from .candidates import Planner
from .cuts import MEETING
from .device_info import DeviceInfo
from .dispatches import Dispatch
from .loop_dispatches import pack, time_loop
from .options import PERSISTENT, Options
from .tiling import Tiling


@dataclass(frozen=True)
class Plan:
    """internal: bytes of each buffer that is not the user's. initialize packs the weights; execute runs the operator.

    Where execute may give up, timed_out is the buffer and its word that say so, and fallback runs the operator then. tiling:
    what it was made of. seconds: of an execution, by the model of costs. Both are None for an activation.
    """

    initialize: tuple[Dispatch, ...]
    execute: tuple[Dispatch, ...]
    internal: dict[str, int]
    fallback: tuple[Dispatch, ...] = ()
    timed_out: tuple[str, int] | None = None
    tiling: Tiling | None = None
    seconds: float | None = None

    @property
    def submissions(self) -> int:
        """Of an execution whose weights are packed, where barriers order dispatches. A fallback has its own."""
        return 1 + sum(dispatch.starts_submission for dispatch in self.execute[1:])

    @property
    def packed(self) -> dict[str, int]:
        """Bytes of the packed weights, by name."""
        written = {name for dispatch in self.initialize for name in dispatch.writes}
        return {name: size for name, size in self.internal.items() if name in written}

    @property
    def scratch(self) -> dict[str, int]:
        """Bytes of what an execution needs beside them, by name."""
        return {name: size for name, size in self.internal.items() if name not in self.packed}


def plan(problem: Problem, info: DeviceInfo, options: Options = Options(), workspace_bytes: int | None = None
         ) -> Plan:
    """Choose kernels, tiles and chunks. workspace_bytes: of chunks, where memory is short; it changes no other choice.

    Raises InvalidArgumentError for an option that cannot be had, and for what the device cannot hold.
    """
    planner = Planner(problem, info, options, workspace_bytes=workspace_bytes)
    return plan_of(planner, planner.best())


def plan_of(planner: Planner, tiling: Tiling) -> Plan:
    """Of one of its tilings. Raises InvalidArgumentError for what the device cannot hold."""
    built = Plan(pack(tiling, planner.info), time_loop(tiling, planner.costs), tiling.internal, tiling=tiling,
                 seconds=planner.costs.run_seconds(tiling))
    if tiling.loop.schedule == PERSISTENT:
        built = replace(built, fallback=time_loop(planner.fallbacks(tiling)[0], planner.costs), timed_out=(MEETING, 0))
    check_limits(planner.problem, planner.info, built)
    return built


def check_limits(problem: CheckedOperator, info: DeviceInfo, plan: Plan) -> None:
    """Refuse what the device cannot hold."""
    sizes = plan.internal | {field: tensor.size_in_bytes for field, tensor in problem.tensors.items() if tensor}
    limit = info.max_storage_buffer_range
    for name, size in sizes.items():
        if size > limit:
            raise InvalidArgumentError(problem.operator, name, f"{size} bytes",
                                       f"at most {limit}, the largest storage buffer of {info.name}")
    for dispatch in plan.initialize + plan.execute + plan.fallback:
        if max(dispatch.groups) > info.max_workgroup_count:
            raise InvalidArgumentError(problem.operator, "batch size", f"{max(dispatch.groups)} workgroups",
                                       f"at most {info.max_workgroup_count} on {info.name}")
