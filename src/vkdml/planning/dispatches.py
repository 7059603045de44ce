"""Defines Dispatch, and the helpers that all planning of dispatches shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..operators.activations import BY_TYPE, ParametrizedActivation
from ..operators.cells import BY_DESC
from ..operators.checks import CheckedOperator
from ..operators.header.descs import DML_OPERATOR_TYPE
from .device_info import DeviceInfo

WORKGROUPS_EVERYWHERE = 65535  # the maxComputeWorkGroupCount that every Vulkan device has at least
_MOST_ACTIVATIONS = max(cell.activations for cell in BY_DESC.values())
_UNUSED = ParametrizedActivation(BY_TYPE[DML_OPERATOR_TYPE.ACTIVATION_IDENTITY])


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: a kernel, its specialization, the buffers of its GLSL blocks, and its push constants.

    kernel: its path in shaders/; halves/ before it means the variant that stores single 16-bit elements. constants, push: by
    their names in GLSL; there may be more of both than the kernel declares. constants are the same for all T and B of a size
    class. buffers: names of buffers by GLSL block, without optional tensors that are left out. writes: names of the buffers
    that it writes. starts_submission: whether it begins a new submission, as the one before it has work enough.
    subgroup_size: the size that the kernel requires, for which DeviceInfo.has_subgroups_of is true; 0: any.
    """

    kernel: str
    constants: dict[str, int]
    buffers: dict[str, str]
    writes: tuple[str, ...]
    groups: tuple[int, int, int]
    push: dict[str, int] = field(default_factory=dict)
    starts_submission: bool = False
    subgroup_size: int = 0


def float_bits(value: float) -> int:
    """Return the bits of a float32 as an integer: all constants are passed as uint32."""
    return int(np.float32(value).view(np.uint32))


def given(problem: CheckedOperator, *fields: str) -> dict[str, str]:
    """Return those of the fields whose tensors the problem has, by their GLSL blocks."""
    return {name.removesuffix("Tensor"): name for name in fields if problem.has(name)}


def in_room(name: str, problem: CheckedOperator) -> str:
    """Return the path of the kernel of this name for the problem's element type."""
    return f"float64/{name}" if problem.element.pairs else name


def storing_halves(dispatches: Iterable[Dispatch], problem: CheckedOperator, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Let dispatches that store 16-bit elements run the kernels that store single ones, if the device can.

    Kernels for CPU drivers have no such variant: they store whole words.
    """
    if problem.element.itemsize != 2 or not info.storage_16bit:
        return tuple(dispatches)
    return tuple(replace(dispatch, kernel=f"halves/{dispatch.kernel}")
                 if not dispatch.kernel.startswith("cpu/") and not {*problem.outputs}.isdisjoint(dispatch.writes) else dispatch
                 for dispatch in dispatches)


@lru_cache(256)
def activation_constants(fused: tuple[ParametrizedActivation | None, ...], of_direction: int, clip: float | None = None
                         ) -> Mapping[str, int]:
    """Make the constants of f, g and h of both directions. fused: `of_direction` of each direction; those of one serve both."""
    constants = {"HAS_CLIP": int(clip is not None), "CLIP": float_bits(clip or 0.0)}
    for place in range(2 * _MOST_ACTIVATIONS):
        direction, index = divmod(place, _MOST_ACTIVATIONS)
        at = direction * of_direction % len(fused) + index
        here = (fused[at] if index < of_direction else None) or _UNUSED
        constants |= {f"ACTIVATION_{place}": here.activation.shader_id, f"PARAM_A_{place}": float_bits(here.a),
                      f"PARAM_B_{place}": float_bits(here.b)}
    return constants
