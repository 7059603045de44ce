"""A tiling -> the dispatches that run it, with the kernels' specialization. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ..spec.activations import BY_TYPE, FusedActivation
from ..spec.cells import BY_DESC
from ..spec.checks import CheckedOperator
from ..spec.descs import DML_OPERATOR_TYPE
from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, power_of_two
from . import gpu_dispatches, gpu_projection
from .costs import SUBMISSION_SECONDS, Costs
from .device_info import DeviceInfo
from .gpu_dispatches import Piece
from .gpu_loop import GpuLoop
from .options import SEQUENCE, STEPPED
from .profiles import FLOAT64, GPU
from .tiling import (
    ARRAY_COLUMNS,
    GATES,
    MEETING,
    PACKED_HIDDEN,
    PACKED_INPUT,
    STATE,
    KernelTiling,
    Layout,
    ProjectionTiling,
    Tiling,
)

WORKGROUPS_EVERYWHERE = 65535  # what Vulkan promises of maxComputeWorkGroupCount
_PACK_WORKGROUP = 64  # on GPUs. CPU drivers run a subgroup to its end before the next: there, one is what has caches to itself
# Loads that an invocation packs at least, as it divides to find its first, and invocations that suffice
_LEAST_PACKED, _MOST_PACKERS = 8, 2**14
_MOST_ACTIVATIONS = max(cell.activations for cell in BY_DESC.values())
UNUSED = FusedActivation(BY_TYPE[DML_OPERATOR_TYPE.ACTIVATION_IDENTITY])


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: a kernel, its specialization, the buffers of its GLSL blocks, and its push constants.

    kernel: its path in shaders/. constants, push: by their names in GLSL, and more of both than the kernel declares. constants
    are the same for all T and B of a size class. buffers: names of buffers by block; optional tensors that are left out are not
    in it. writes: names of buffers. starts_submission: what the plan has before it is work enough for one submission.
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
                  {"columns": problem.input_size, "is_recurrent": 0, "peepholes": 0}),
            _pack(tiling, info, "RecurrenceTensor", PACKED_HIDDEN, tiling.loop.hidden,
                  {"columns": problem.hidden, "is_recurrent": 1, "peepholes": peepholes}))


def _pack(tiling: Tiling, info: DeviceInfo, field: str, packed: str, layout: Layout, sizes: dict[str, int]) -> Dispatch:
    problem = tiling.problem
    loads = tiling.internal[packed] // problem.element.real4_bytes
    push = sizes | {
        "directions": problem.directions, "gates": len(problem.cell.gates), "hidden": problem.hidden,
        "units": tiling.loop.units, "column_loads": layout.loads, "together": layout.together,
        "has_bias": int(problem.has("BiasTensor")), "split_bias": problem.loop.split_bias,
        **_strides(problem, field, "weight", (1, 2, 3), ("d", "row", "column")),
        **_strides(problem, "BiasTensor", "bias", (2, 3), ("d", "row")),
        **_strides(problem, "PeepholeTensor", "peephole", (2, 3), ("d", "row")),
    }
    workgroup = info.subgroup_size if info.is_cpu else _PACK_WORKGROUP
    constants = {"WORKGROUP": workgroup, "ELEMENT": problem.element.shader_id}
    buffers = {"Weights": field, "Packed": packed, **given(problem, "BiasTensor")}
    if push["peepholes"]:
        buffers |= given(problem, "PeepholeTensor")
    groups = min(ceil_div(loads, workgroup * _LEAST_PACKED), _MOST_PACKERS // workgroup, info.max_workgroup_count)
    return Dispatch(in_room("pack", problem), constants, buffers, (packed,), (groups, 1, 1), push)


def time_loop(tiling: Tiling, costs: Costs) -> tuple[Dispatch, ...]:
    """All dispatches of an execution, in order."""
    if isinstance(tiling.loop, GpuLoop) and tiling.loop.schedule != SEQUENCE:
        return _exchange(tiling, tiling.loop, costs)
    loop, projection, steps = tiling.loop, tiling.projection, tiling.problem.steps
    push = _push(tiling)
    step, project = _loop(tiling, push), _projection(tiling, push) if projection else None
    phases = tiling.problem.loop.phases if loop.schedule == STEPPED else 1
    of_step = costs.step_seconds(tiling) / phases
    submissions = _Submissions()
    dispatches = [step(0, 0, 0, 0, False)] if loop.schedule == STEPPED else []  # the state before the first step
    for first, last in _chunks(0, steps, projection.chunk_steps if projection else steps):
        if projection and project:
            starts = submissions.start(costs.projection_seconds(projection, last - first))
            dispatches.append(project(first, last, starts))
        for start, end in _chunks(first, last, loop.chunk_steps):
            seconds = (end - start) * of_step
            dispatches += [step(start, end, phase, first, submissions.start(seconds)) for phase in range(phases)]
    return tuple(dispatches)


def _exchange(tiling: Tiling, loop: GpuLoop, costs: Costs) -> tuple[Dispatch, ...]:
    """Of a time loop whose parts exchange h on a GPU."""
    projection, steps, push = tiling.projection, tiling.problem.steps, _push(tiling)
    assert projection
    project, run = _projection(tiling, push), _pieces(tiling, loop, push)
    of_step = costs.step_seconds(tiling) / (tiling.problem.loop.phases if loop.schedule == STEPPED else 1)
    submissions, last_slot = _Submissions(), 0
    dispatches = [run(gpu_dispatches.begin(loop, 0, min(loop.chunk_steps, projection.chunk_steps, steps), 0), 0, False)]
    for first, last in _chunks(0, steps, projection.chunk_steps):
        starts = submissions.start(costs.projection_seconds(projection, last - first))
        dispatches.append(project(first, last, starts))
        for piece in gpu_dispatches.of_steps(loop, first, last, last_slot):
            seconds = (piece.last_step - piece.first_step) * of_step if piece.in_loop else 0
            dispatches.append(run(piece, first, submissions.start(seconds)))
        last_slot = piece.last_step - piece.first_step
    end = run(gpu_dispatches.end(loop, piece.first_step, piece.last_step), 0, False)
    return (*dispatches, end) if end.writes else tuple(dispatches)


def _pieces(tiling: Tiling, loop: GpuLoop, sizes: dict[str, int]) -> Callable[[Piece, int, bool], Dispatch]:
    """A dispatch of a piece, for the step that the projection starts with, and whether it starts a submission."""
    problem = tiling.problem
    constants = _loop_constants(tiling)
    # What comes before and after the loop is the same for all of its tiles, and compiled once
    beside = constants | {"WORKGROUP": gpu_dispatches.WORKGROUP, "ROWS": 1, "PART_UNITS": 1}
    outputs = given(problem, "OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
    buffers = {"State": STATE, "Meeting": MEETING, "Gates": GATES, "HiddenWeights": PACKED_HIDDEN, **outputs,
               **given(problem, "SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor")}

    def run(piece: Piece, gates_step: int, starts: bool) -> Dispatch:
        push = sizes | {"first_step": piece.first_step, "last_step": piece.last_step, "phase": piece.phase,
                        "last_slot": piece.last_slot, "gates_step": gates_step}
        written = [outputs[block] for block in piece.outputs if block in outputs]
        return Dispatch(f"gpu/{piece.kernel}", constants if piece.in_loop else beside,
                        {block: buffers[block] for block in piece.blocks if block in buffers},
                        (*piece.written, *written), piece.groups, push, starts)

    return run


class _Submissions:
    """How much work is in the one that dispatches are added to, in the model's seconds."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def start(self, seconds: float) -> bool:
        """Whether a dispatch of so many seconds has to start another."""
        starts = self._seconds > 0 and self._seconds + seconds > SUBMISSION_SECONDS
        self._seconds = seconds if starts else self._seconds + seconds
        return starts


def _chunks(first: int, last: int, most: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + most, last)) for start in range(first, last, most))


def _projection(tiling: Tiling, sizes: dict[str, int]) -> Callable[[int, int, bool], Dispatch]:
    """A dispatch of the projection for the first and last step, and whether it starts a submission."""
    projection = tiling.projection
    assert projection
    constants = {
        **_problem_constants(tiling), **_kernel_constants(projection, projection.input), **_input_constants(tiling),
        "PART_UNITS": projection.group_units, "COUNTED": int(projection.skips_padding),
    }
    if projection.kernel == GPU:
        constants |= gpu_projection.constants(projection)
    rooms = {GPU: "gpu/projection", FLOAT64: "float64/projection"}
    kernel = rooms.get(projection.kernel, f"cpu/projection_{projection.kernel}")
    buffers = {"InputWeights": PACKED_INPUT, "Gates": GATES,
               **given(tiling.problem, "InputTensor", "SequenceLengthsTensor")}
    return lambda first, last, starts: Dispatch(
        kernel, constants, buffers, (GATES,),
        (projection.groups_of_units, _projection_tiles(projection, last - first), tiling.problem.directions),
        sizes | {"first_step": first, "last_step": last, "phase": 0, "gates_step": first}, starts)


def _projection_tiles(projection: ProjectionTiling, steps: int) -> int:
    """Where lengths may leave the last ones nothing to do, so many that CPU kernels can spread those (cpu/spread.glsl)."""
    tiles, is_ragged = projection.tiles(steps), projection.problem.has("SequenceLengthsTensor")
    spread = power_of_two(tiles) if is_ragged and projection.kernel != GPU else tiles
    return spread if spread <= WORKGROUPS_EVERYWHERE else tiles


def _loop(tiling: Tiling, sizes: dict[str, int]) -> Callable[[int, int, int, int, bool], Dispatch]:
    """A dispatch of the time loop for the first and last step, the phase, the step that the projection starts with, and whether
    it starts a submission.
    """
    loop, problem, constants = tiling.loop, tiling.problem, _loop_constants(tiling)
    of_input = {"Gates": GATES} if tiling.projection else {"InputWeights": PACKED_INPUT, **given(problem, "InputTensor")}
    outputs = given(problem, "OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
    inputs = given(problem, "SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor")
    kernel, writes = _loop_kernel(tiling), (STATE, *outputs.values())
    buffers = {"State": STATE, "HiddenWeights": PACKED_HIDDEN, **of_input, **inputs, **outputs}
    groups = (loop.tiles, problem.directions, loop.parts)
    return lambda first, last, phase, gates_step, starts: Dispatch(
        kernel, constants, buffers, writes, groups,
        sizes | {"first_step": first, "last_step": last, "phase": phase, "gates_step": gates_step}, starts)


def _loop_constants(tiling: Tiling) -> dict[str, int]:
    loop = tiling.loop
    return {
        **_problem_constants(tiling), **_kernel_constants(loop, loop.hidden),
        **(_UNUSED_INPUT if tiling.projection else _input_constants(tiling)),
        "FUSED": int(tiling.projection is None), "PARTS": loop.parts, "PART_UNITS": loop.part_units,
        "SPINS": loop.spins, "SHARED_STATE": int(loop.shared_state),
        "SHARED_SLOTS": loop.shared_slots, **(loop.constants if isinstance(loop, GpuLoop) else {}),
    }


def _loop_kernel(tiling: Tiling) -> str:
    cell, kernel = tiling.problem.cell.kernel, tiling.loop.kernel
    if kernel == GPU:
        return f"gpu/{cell}"
    return f"float64/{cell}" if kernel == FLOAT64 else f"cpu/{cell}_{kernel}"


def _push(tiling: Tiling) -> dict[str, int]:
    """What all dispatches of the time loop and of the projection are told."""
    problem = tiling.problem
    strides = {name: value for field, prefix, dims, letters in _IN_PLACE
               for name, value in _strides(problem, field, prefix.lower(), dims, letters).items()}
    return {"steps": problem.steps, "batch": problem.batch, "tiles": tiling.loop.tiles, "last_slot": 0, **strides}


def _kernel_constants(tiling: KernelTiling, layout: Layout) -> dict[str, int]:
    """layout: of the weights that the kernel multiplies by."""
    return {
        "WORKGROUP": tiling.workgroup, "LANES": tiling.lanes, "ROWS": tiling.rows, "UNITS_AT_ONCE": tiling.units_at_once,
        "UNITS": tiling.units, "TOGETHER": layout.together, "IN_LINE": int(tiling.unrolled),
        "ARRAY_COLUMNS": ARRAY_COLUMNS.get(tiling.kernel, 0),
    }


# Where the input is projected, the loop's kernels are the same for all of them
_UNUSED_INPUT = {"INPUTS": 0, "INPUT_LOADS": 0, "X_IN_VECS": 0}


def _input_constants(tiling: Tiling) -> dict[str, int]:
    problem = tiling.problem
    _, of_step, of_row, of_column = problem.tensor("InputTensor").strides
    alignment = 4 // problem.element.vecs_per_load  # elements of 16-bit types are loaded in words
    in_vecs = of_column == 1 and problem.input_size % 4 == 0 and of_step % alignment == of_row % alignment == 0
    return {"INPUTS": problem.input_size, "INPUT_LOADS": tiling.input.loads, "X_IN_VECS": int(in_vecs)}


def _problem_constants(tiling: Tiling) -> dict[str, int]:
    problem = tiling.problem
    return {
        "HIDDEN": problem.hidden, "DIRECTIONS": problem.directions, "GATES": len(problem.cell.gates),
        "ELEMENT": problem.element.shader_id, "HIDDEN_LOADS": tiling.loop.hidden.loads,
        "REVERSE": sum(reverse << direction for direction, reverse in enumerate(problem.reverse)),
        "SLOTS": problem.loop.slots, "PHASES": problem.loop.phases,
        "COUPLE_INPUT_FORGET": int(problem.flags.get("CoupleInputForget", False)),
        "HAS_PEEPHOLE": int(problem.has("PeepholeTensor")), "WHOLE_WORDS": int(_stores_whole_words(problem)),
        **activation_constants(problem.activations, problem.cell.activations, problem.clip),
        **{f"HAS_{prefix}": int(problem.has(field)) for field, prefix, _, _ in _IN_PLACE},
    }


def _stores_whole_words(problem: Problem) -> bool:
    """Whether the two 16-bit elements of each word of the output sequence are those of units side by side."""
    if problem.element.itemsize != 2 or problem.hidden % 2 or not problem.has("OutputSequenceTensor"):
        return False
    *others, of_unit = problem.tensor("OutputSequenceTensor").strides
    return of_unit == 1 and all(stride % 2 == 0 for stride in others)


# The tensors that the kernels read and write in place: field, name in the shaders, dimensions and their letters
_IN_PLACE = (
    ("InputTensor", "INPUT", (1, 2, 3), "tbi"),
    ("HiddenInitTensor", "INITIAL_H", (1, 2, 3), "dbh"),
    ("OutputSequenceTensor", "SEQUENCE", (0, 1, 2, 3), "tdbh"),
    ("OutputSingleTensor", "SINGLE", (1, 2, 3), "dbh"),
    ("SequenceLengthsTensor", "LENGTHS", (3,), "b"),
    ("CellMemInitTensor", "INITIAL_C", (1, 2, 3), "dbh"),
    ("OutputCellSingleTensor", "CELL_SINGLE", (1, 2, 3), "dbh"),
)


def _strides(problem: Problem, field: str, prefix: str, dims: Sequence[int], letters: Sequence[str]) -> dict[str, int]:
    strides = problem.tensor(field).strides if problem.has(field) else (0, 0, 0, 0)
    return {f"{prefix}_stride_{letter}": strides[dim] for dim, letter in zip(dims, letters)}


@lru_cache(256)
def activation_constants(fused: tuple[FusedActivation, ...], of_direction: int, clip: float | None = None) -> Mapping[str, int]:
    """f, g and h of both directions. fused: of each direction, as many as one takes; a single direction's stand for both."""
    constants = {"HAS_CLIP": int(clip is not None), "CLIP": float_bits(clip or 0.0)}
    for place in range(2 * _MOST_ACTIVATIONS):
        direction, index = divmod(place, _MOST_ACTIVATIONS)
        at = direction * of_direction % len(fused) + index
        here = fused[at] if index < of_direction else UNUSED
        constants |= {f"ACTIVATION_{place}": here.activation.shader_id, f"PARAM_A_{place}": float_bits(here.a),
                      f"PARAM_B_{place}": float_bits(here.b)}
    return constants
