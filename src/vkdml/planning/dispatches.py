"""A tiling -> the dispatches that run it, with the kernels' specialization. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..spec.activations import BY_TYPE, FusedActivation
from ..spec.cells import BY_DESC
from ..spec.checks import CheckedOperator
from ..spec.descs import DML_OPERATOR_TYPE
from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, power_of_two
from .device_info import DeviceInfo
from .options import STEPPED
from .profiles import FLOAT64, GPU
from .tiling import (
    ARRAY_COLUMNS,
    GATES,
    PACKED_HIDDEN,
    PACKED_INPUT,
    QUICK_SPINS,
    STATE,
    KernelTiling,
    Layout,
    ProjectionTiling,
    Tiling,
)

_WORKGROUPS_EVERYWHERE = 65535  # what Vulkan promises of maxComputeWorkGroupCount
_PACK_WORKGROUP = 64
_MOST_ACTIVATIONS = max(cell.activations for cell in BY_DESC.values())
_UNUSED = FusedActivation(BY_TYPE[DML_OPERATOR_TYPE.ACTIVATION_IDENTITY])


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: a kernel, its specialization, the buffers of its GLSL blocks, and its push constants.

    kernel: its path in shaders/. constants, push: by their names in GLSL, and more constants than the kernel declares.
    buffers: names of buffers by block; optional tensors that are left out are not in it. writes: names of buffers.
    """

    kernel: str
    constants: dict[str, int]
    buffers: dict[str, str]
    writes: tuple[str, ...]
    groups: tuple[int, int, int]
    push: dict[str, int] = field(default_factory=dict)
    starts_submission: bool = False


def float_bits(value: float) -> int:
    """A float32 as the uint32 that specialization constants are passed as."""
    return int(np.float32(value).view(np.uint32))


def given(problem: CheckedOperator, *fields: str) -> dict[str, str]:
    """The tensors of these fields that are not left out, by their GLSL blocks."""
    return {name.removesuffix("Tensor"): name for name in fields if problem.has(name)}


def in_room(name: str, problem: CheckedOperator) -> str:
    """The kernel of this name for the problem's type."""
    return f"float64/{name}" if problem.element.pairs else name


def pack(tiling: Tiling, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Of the input's weights and of the recurrent ones."""
    problem = tiling.problem
    peepholes = problem.cell.peepholes if problem.has("PeepholeTensor") else 0
    return (_pack(tiling, info, "WeightTensor", PACKED_INPUT, tiling.input,
                  {"COLUMNS": problem.input_size, "IS_RECURRENT": 0, "PEEPHOLES": 0}),
            _pack(tiling, info, "RecurrenceTensor", PACKED_HIDDEN, tiling.loop.hidden,
                  {"COLUMNS": problem.hidden, "IS_RECURRENT": 1, "PEEPHOLES": peepholes}))


def _pack(tiling: Tiling, info: DeviceInfo, field: str, packed: str, layout: Layout, constants: dict[str, int]) -> Dispatch:
    problem = tiling.problem
    invocations = tiling.internal[packed] // problem.element.real4_bytes
    constants = constants | {
        "WORKGROUP": _PACK_WORKGROUP, "DIRECTIONS": problem.directions, "GATES": len(problem.cell.gates),
        "HIDDEN": problem.hidden, "UNITS": tiling.loop.units, "COLUMN_LOADS": layout.loads,
        "ELEMENT": problem.element.shader_id, "BY_UNITS": int(layout.by_units), "TOGETHER": layout.together,
        "HAS_BIAS": int(problem.has("BiasTensor")), "SPLIT_BIAS": problem.loop.split_bias,
        **_strides(problem, field, "WEIGHT", (1, 2, 3), ("D", "ROW", "COLUMN")),
        **_strides(problem, "BiasTensor", "BIAS", (2, 3), ("D", "ROW")),
        **_strides(problem, "PeepholeTensor", "PEEPHOLE", (2, 3), ("D", "ROW")),
    }
    buffers = {"Weights": field, "Packed": packed, **given(problem, "BiasTensor")}
    if constants["PEEPHOLES"]:
        buffers |= given(problem, "PeepholeTensor")
    groups = min(ceil_div(invocations, _PACK_WORKGROUP), info.max_workgroup_count)
    return Dispatch(in_room("pack", problem), constants, buffers, (packed,), (groups, 1, 1))


def time_loop(tiling: Tiling) -> tuple[Dispatch, ...]:
    """All dispatches of an execution, in order."""
    loop, projection, steps = tiling.loop, tiling.projection, tiling.problem.steps
    step = _loop(tiling)
    has_begin = loop.schedule == STEPPED and not loop.own_states
    dispatches = [step(0, 0, 0, 0)] if has_begin else []  # the state before the first step
    for first, last in _chunks(0, steps, projection.chunk_steps if projection else steps):
        if projection:
            dispatches.append(_projection(tiling, projection, first, last))
        dispatches += [step(*chunk, phase, first) for chunk in _chunks(first, last, loop.chunk_steps)
                       for phase in range(tiling.problem.loop.phases if loop.schedule == STEPPED else 1)]
    return tuple(dispatches)


def _chunks(first: int, last: int, most: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + most, last)) for start in range(first, last, most))


def _projection(tiling: Tiling, projection: ProjectionTiling, first: int, last: int) -> Dispatch:
    tiles = projection.tiles(last - first)
    if power_of_two(tiles) <= _WORKGROUPS_EVERYWHERE:
        tiles = power_of_two(tiles)  # so that sequences of like lengths can share a pipeline; those too many end at once
    rooms = {GPU: "gpu/projection", FLOAT64: "float64/projection"}
    return Dispatch(
        kernel=rooms.get(projection.kernel, f"cpu/projection_{projection.kernel}"),
        constants={
            **_problem_constants(tiling), **_kernel_constants(projection, projection.input),
            "PART_UNITS": projection.group_units, "OF_TILES": int(projection.by_tile),
            "COUNTED": int(projection.skips_padding),
        },
        buffers={"InputWeights": PACKED_INPUT, "Gates": GATES,
                 **given(tiling.problem, "InputTensor", "SequenceLengthsTensor")},
        writes=(GATES,),
        groups=(projection.groups_of_units, tiles, tiling.problem.directions),
        push=_push(tiling.problem, first, last, 0, first),
    )


def _loop(tiling: Tiling) -> Callable[[int, int, int, int], Dispatch]:
    """A dispatch of the time loop for the first and last step, the phase, and the step that the projection starts with."""
    loop, problem = tiling.loop, tiling.problem
    constants = {
        **_problem_constants(tiling), **_kernel_constants(loop, loop.hidden),
        "FUSED": int(tiling.projection is None), "PARTS": loop.parts, "PART_UNITS": loop.part_units,
        "SPINS": loop.spins, "QUICK_SPINS": QUICK_SPINS, "SHARED_STATE": int(loop.shared_state),
        "SHARED_SLOTS": loop.shared_slots, "OWN_STATES": int(loop.own_states),
    }
    of_input = {"Gates": GATES} if tiling.projection else {"InputWeights": PACKED_INPUT, **given(problem, "InputTensor")}
    outputs = given(problem, "OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
    inputs = given(problem, "SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor")
    return lambda *push: Dispatch(
        kernel=_loop_kernel(tiling),
        constants=constants,
        buffers={"State": STATE, "HiddenWeights": PACKED_HIDDEN, **of_input, **inputs, **outputs},
        writes=(STATE, *outputs.values()),
        groups=(loop.tiles, problem.directions, loop.parts),
        push=_push(problem, *push),
    )


def _loop_kernel(tiling: Tiling) -> str:
    cell, kernel = tiling.problem.cell.kernel, tiling.loop.kernel
    if kernel == GPU:
        return f"gpu/{cell}" + "_parts" * (tiling.loop.parts > 1) + "_fused" * (tiling.projection is None)
    return f"float64/{cell}" if kernel == FLOAT64 else f"cpu/{cell}_{kernel}"


def _push(problem: Problem, first: int, last: int, phase: int, gates_step: int) -> dict[str, int]:
    return {"first_step": first, "last_step": last, "phase": phase, "gates_step": gates_step, "steps": problem.steps}


def _kernel_constants(tiling: KernelTiling, layout: Layout) -> dict[str, int]:
    """layout: of the weights that the kernel multiplies by."""
    return {
        "WORKGROUP": tiling.workgroup, "LANES": tiling.lanes, "ROWS": tiling.rows, "UNITS_AT_ONCE": tiling.units_at_once,
        "UNITS": tiling.units, "IN_LINE": int(tiling.unrolled), "HIDDEN_BLOCK": tiling.block_loads,
        "INPUT_BLOCK": tiling.block_loads,
        "BLOCK_COLUMNS": layout.block_columns, "ARRAY_COLUMNS": ARRAY_COLUMNS.get(tiling.kernel, 0),
    }


def _problem_constants(tiling: Tiling) -> dict[str, int]:
    problem = tiling.problem
    return {
        "BATCH": problem.batch, "INPUTS": problem.input_size, "HIDDEN": problem.hidden,
        "DIRECTIONS": problem.directions, "GATES": len(problem.cell.gates), "ELEMENT": problem.element.shader_id,
        "INPUT_LOADS": tiling.input.loads, "HIDDEN_LOADS": tiling.loop.hidden.loads,
        "REVERSE": sum(reverse << direction for direction, reverse in enumerate(problem.reverse)),
        "SLOTS": problem.loop.slots, "PHASES": problem.loop.phases,
        "COUPLE_INPUT_FORGET": int(problem.flags.get("CoupleInputForget", False)),
        "HAS_PEEPHOLE": int(problem.has("PeepholeTensor")),
        **activation_constants(problem.activations, problem.cell.activations, problem.clip),
        **{f"HAS_{prefix}": int(problem.has(field)) for field, prefix, _, _ in _IN_PLACE},
        **{name: value for row in _IN_PLACE for name, value in _strides(problem, *row).items()},
    }


# The tensors that the kernels read and write in place: field, name in the shaders, dimensions and their letters
_IN_PLACE = (
    ("InputTensor", "INPUT", (1, 2, 3), "TBI"),
    ("HiddenInitTensor", "INITIAL_H", (1, 2, 3), "DBH"),
    ("OutputSequenceTensor", "SEQUENCE", (0, 1, 2, 3), "TDBH"),
    ("OutputSingleTensor", "SINGLE", (1, 2, 3), "DBH"),
    ("SequenceLengthsTensor", "LENGTHS", (3,), "B"),
    ("CellMemInitTensor", "INITIAL_C", (1, 2, 3), "DBH"),
    ("OutputCellSingleTensor", "CELL_SINGLE", (1, 2, 3), "DBH"),
)


def _strides(problem: Problem, field: str, prefix: str, dims: Sequence[int], letters: Sequence[str]) -> dict[str, int]:
    strides = problem.tensor(field).strides if problem.has(field) else (0, 0, 0, 0)
    return {f"{prefix}_STRIDE_{letter}": strides[dim] for dim, letter in zip(dims, letters)}


def activation_constants(fused: Sequence[FusedActivation], of_direction: int, clip: float | None = None) -> dict[str, int]:
    """f, g and h of both directions. fused: of each direction, as many as one takes; a single direction's stand for both."""
    constants = {"HAS_CLIP": int(clip is not None), "CLIP": float_bits(clip or 0.0)}
    for place in range(2 * _MOST_ACTIVATIONS):
        direction, index = divmod(place, _MOST_ACTIVATIONS)
        at = direction * of_direction % len(fused) + index
        here = fused[at] if index < of_direction else _UNUSED
        constants |= {f"ACTIVATION_{place}": here.activation.shader_id, f"PARAM_A_{place}": float_bits(here.a),
                      f"PARAM_B_{place}": float_bits(here.b)}
    return constants
