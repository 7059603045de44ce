"""What a dispatch is, and what all planning of them has in common."""

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

WORKGROUPS_EVERYWHERE = 65535  # what Vulkan promises of maxComputeWorkGroupCount
_MOST_ACTIVATIONS = max(cell.activations for cell in BY_DESC.values())
UNUSED = ParametrizedActivation(BY_TYPE[DML_OPERATOR_TYPE.ACTIVATION_IDENTITY])


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: a kernel, its specialization, the buffers of its GLSL blocks, and its push constants.

    kernel: its path in shaders/, with halves/ before it where it stores elements of 16 bits by themselves. constants, push: by
    their names in GLSL, and more of both than the kernel declares. constants are the same for all T and B of a size class.
    buffers: names of buffers by block; optional tensors that are left out are not in it. writes: names of buffers.
    starts_submission: what the plan has before it is work enough for one submission.
    subgroup_size: that the kernel relies on, of a device with DeviceInfo.has_subgroups_of it; 0: any.
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
    """A float32 as the uint32 that specialization constants are passed as."""
    return int(np.float32(value).view(np.uint32))


def given(problem: CheckedOperator, *fields: str) -> dict[str, str]:
    """The tensors of these fields that are not left out, by their GLSL blocks."""
    return {name.removesuffix("Tensor"): name for name in fields if problem.has(name)}


def in_room(name: str, problem: CheckedOperator) -> str:
    """The kernel of this name for the problem's type."""
    return f"float64/{name}" if problem.element.pairs else name


def storing_halves(dispatches: Iterable[Dispatch], problem: CheckedOperator, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """The same dispatches, but where the device can store 16 bits by themselves, those that store such elements run the kernels
    that do. Kernels for CPU drivers have none: they store whole words.
    """
    if problem.element.itemsize != 2 or not info.storage_16bit:
        return tuple(dispatches)
    return tuple(replace(dispatch, kernel=f"halves/{dispatch.kernel}")
                 if not dispatch.kernel.startswith("cpu/") and not {*problem.outputs}.isdisjoint(dispatch.writes) else dispatch
                 for dispatch in dispatches)


@lru_cache(256)
def activation_constants(fused: tuple[ParametrizedActivation, ...], of_direction: int, clip: float | None = None
                         ) -> Mapping[str, int]:
    """f, g and h of both directions. fused: of each direction, as many as one takes; a single direction's stand for both."""
    constants = {"HAS_CLIP": int(clip is not None), "CLIP": float_bits(clip or 0.0)}
    for place in range(2 * _MOST_ACTIVATIONS):
        direction, index = divmod(place, _MOST_ACTIVATIONS)
        at = direction * of_direction % len(fused) + index
        here = fused[at] if index < of_direction else UNUSED
        constants |= {f"ACTIVATION_{place}": here.activation.shader_id, f"PARAM_A_{place}": float_bits(here.a),
                      f"PARAM_B_{place}": float_bits(here.b)}
    return constants
