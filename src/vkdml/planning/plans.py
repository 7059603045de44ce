"""What a plan is: dispatches of kernels with their specialization and buffers, and the limits that all plans keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgumentError
from ..spec.checks import MAX_TENSOR_BYTES, CheckedOperator
from .device_info import DeviceInfo

NONE = "none"  # stands for an optional tensor that is left out; bound to a placeholder that no kernel touches


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: a kernel, its specialization, its buffers by binding, and its push constants."""

    kernel: str
    constants: dict[str, int]
    buffers: tuple[str, ...]
    writes: tuple[str, ...]
    groups: tuple[int, int, int]
    push: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """internal: bytes of each buffer that is not the user's. initialize packs the weights; execute runs the operator.

    Where execute may give up, gave_up is the buffer and its word that say so, and fallback runs the operator then, or, if not
    is_forced, where it is faster.
    """

    initialize: tuple[Dispatch, ...]
    execute: tuple[Dispatch, ...]
    internal: dict[str, int]
    fallback: tuple[Dispatch, ...] = ()
    gave_up: tuple[str, int] | None = None
    is_forced: bool = False


def float_bits(value: float) -> int:
    """A float32 as the uint32 that specialization constants are passed as."""
    return int(np.float32(value).view(np.uint32))


def kernel_name(name: str, problem: CheckedOperator, lanes: int = 1, row_lanes: bool = False, resident: bool = False) -> str:
    """The variant of a kernel (tools/compile_shaders.py) for a type and a choice of lanes."""
    of_lanes = "_rows" if row_lanes else "_resident" if resident else "_lanes"
    return name + (of_lanes if lanes > 1 else "_pairs" if problem.element.pairs else "")


def check_limits(problem: CheckedOperator, info: DeviceInfo, plan: Plan) -> None:
    """Refuse what the device cannot hold."""
    sizes = plan.internal | {field: tensor.size_in_bytes for field, tensor in problem.tensors.items() if tensor}
    limit = min(info.max_storage_buffer_range, MAX_TENSOR_BYTES)
    for name, size in sizes.items():
        if size > limit:
            raise InvalidArgumentError(problem.operator, name, f"{size} bytes",
                                       f"at most {limit}, the largest storage buffer of {info.name}")
    for dispatch in plan.initialize + plan.execute + plan.fallback:
        if len(dispatch.buffers) > info.max_storage_buffers:
            raise InvalidArgumentError(problem.operator, dispatch.kernel, f"{len(dispatch.buffers)} storage buffers",
                                       f"at most {info.max_storage_buffers} on {info.name}")
        if max(dispatch.groups) > info.max_workgroup_count:
            raise InvalidArgumentError(problem.operator, "batch size", f"{max(dispatch.groups)} workgroups",
                                       f"at most {info.max_workgroup_count} on {info.name}")
