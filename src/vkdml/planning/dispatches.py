"""A tiling -> the dispatches that run it, with the kernels' specialization. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, power_of_two
from .device_info import DeviceInfo
from .options import STEPPED
from .plans import NONE, Dispatch, float_bits, kernel_name
from .tiling import (
    GATES,
    PACKED_HIDDEN,
    PACKED_INPUT,
    STATE,
    Tiling,
    block_columns,
    counts_pairs,
    projection_tiles,
    together,
)

_WORKGROUPS_EVERYWHERE = 65535  # what Vulkan promises of maxComputeWorkGroupCount
_PACK_WORKGROUP = 64


def pack(problem: Problem, info: DeviceInfo, tiling: Tiling, field: str, packed: str) -> Dispatch:
    recurrent = packed == PACKED_HIDDEN
    peephole = _given(problem, "PeepholeTensor") if recurrent else NONE
    columns = problem.hidden if recurrent else problem.input_size
    column_loads = tiling.hidden_loads if recurrent else tiling.input_loads
    invocations = tiling.internal(problem)[packed] // problem.element.real4_bytes
    tiling = tiling if recurrent else tiling.of_projection
    constants = {
        "WORKGROUP": _PACK_WORKGROUP, "DIRECTIONS": problem.directions, "GATES": len(problem.cell.gates),
        "HIDDEN": problem.hidden, "UNITS": tiling.units, "COLUMNS": columns, "COLUMN_LOADS": column_loads,
        "ELEMENT": problem.element.shader_id, "BY_UNITS": int(tiling.row_lanes), "TOGETHER": together(problem, tiling, columns),
        "HAS_BIAS": int(problem.has("BiasTensor")), "IS_RECURRENT": int(recurrent), "SPLIT_BIAS": problem.loop.split_bias,
        "PEEPHOLES": problem.cell.peepholes if peephole != NONE else 0,
        **_strides(problem, field, "WEIGHT", (1, 2, 3), ("D", "ROW", "COLUMN")),
        **_strides(problem, "BiasTensor", "BIAS", (2, 3), ("D", "ROW")),
        **_strides(problem, "PeepholeTensor", "PEEPHOLE", (2, 3), ("D", "ROW")),
    }
    groups = min(ceil_div(invocations, _PACK_WORKGROUP), info.max_workgroup_count)
    buffers = (field, _given(problem, "BiasTensor"), peephole, packed)
    return Dispatch(kernel_name("pack", problem), constants, buffers, (packed,), (groups, 1, 1))


def time_loop(problem: Problem, tiling: Tiling) -> tuple[Dispatch, ...]:
    """All dispatches of an execution, in order."""
    step = _sequence(problem, tiling)
    has_begin = tiling.schedule == STEPPED and not tiling.own_states
    dispatches = [step(0, 0, 0, 0)] if has_begin else []  # the state before the first step
    gates_steps = problem.steps if tiling.fused else tiling.gates_steps
    for first, last in _chunks(0, problem.steps, gates_steps):
        if not tiling.fused:
            dispatches.append(_projection(problem, tiling, first, last))
        dispatches += [step(*chunk, phase, first) for chunk in _chunks(first, last, tiling.chunk_steps)
                       for phase in range(problem.loop.phases if tiling.schedule == STEPPED else 1)]
    return tuple(dispatches)


def _chunks(first: int, last: int, most: int) -> list[tuple[int, int]]:
    return [(start, min(start + most, last)) for start in range(first, last, most)]


def _projection(problem: Problem, tiling: Tiling, first: int, last: int) -> Dispatch:
    tiles = projection_tiles(problem, tiling, last - first)
    if power_of_two(tiles) <= _WORKGROUPS_EVERYWHERE:
        tiles = power_of_two(tiles)  # so that sequences of like lengths can share a pipeline; those too many end at once
    return Dispatch(
        kernel=kernel_name("input_projection", problem, tiling.lanes, tiling.projection_row_lanes),
        constants=_constants(problem, tiling.of_projection, problem.input_size)
        | {"PART_UNITS": tiling.projection_units, "OF_TILES": int(tiling.row_lanes),
           "COUNTED": int(counts_pairs(problem, tiling))},
        buffers=("InputTensor", PACKED_INPUT, _given(problem, "SequenceLengthsTensor"), GATES),
        writes=(GATES,),
        groups=(ceil_div(tiling.units, tiling.projection_units), tiles, problem.directions),
        push=(first, last, 0, first, problem.steps),
    )


def _sequence(problem: Problem, tiling: Tiling) -> Callable[..., Dispatch]:
    """A dispatch of the time loop for the first and last step, the phase, and the step that `gates` starts with."""
    lengths, hidden_init, *outputs = (_given(problem, field) for field in (
        "SequenceLengthsTensor", "HiddenInitTensor", "OutputSequenceTensor", "OutputSingleTensor"))
    cell_state = [_given(problem, field) for field in ("CellMemInitTensor", "OutputCellSingleTensor")
                  if field in problem.tensors]
    constants = _constants(problem, tiling, problem.hidden)
    return lambda *push: Dispatch(
        kernel=kernel_name(f"sequence_{problem.cell.kernel}", problem, tiling.lanes, tiling.row_lanes, tiling.resident),
        constants=constants,
        buffers=("InputTensor" if tiling.fused else GATES, PACKED_INPUT if tiling.fused else NONE, PACKED_HIDDEN, lengths,
                 hidden_init, *outputs, STATE, *cell_state),
        writes=(*outputs, STATE, *cell_state[1:]),
        groups=(tiling.tiles(problem), problem.directions, tiling.parts),
        push=(*push, problem.steps),
    )


def _constants(problem: Problem, tiling: Tiling, columns: int) -> dict[str, int]:
    """The specialization of the time loop's kernels, by the names in shaders/. columns: of what a kernel multiplies."""
    return {
        "WORKGROUP": tiling.workgroup, "LANES": tiling.lanes, "ROWS": tiling.rows,
        "UNITS_AT_ONCE": tiling.units_at_once, "IN_LINE": int(tiling.in_line), "LOADS_PER_BLOCK": tiling.block_loads,
        "BLOCK_COLUMNS": block_columns(problem, columns, tiling.lanes),
        "PARTS": tiling.parts, "PART_UNITS": tiling.part_units, "SPINS": tiling.spins,
        "BATCH": problem.batch, "INPUTS": problem.input_size, "HIDDEN": problem.hidden,
        "DIRECTIONS": problem.directions, "GATES": len(problem.cell.gates),
        "ELEMENT": problem.element.shader_id, "UNITS": tiling.units,
        "INPUT_LOADS": tiling.input_loads, "HIDDEN_LOADS": tiling.hidden_loads,
        "REVERSE": sum(reverse << direction for direction, reverse in enumerate(problem.reverse)),
        "FUSED": int(tiling.fused), "SLOTS": problem.loop.slots, "PHASES": problem.loop.phases,
        "SHARED_STATE": int(tiling.shared_state), "OWN_STATES": int(tiling.own_states),
        "COUPLE_INPUT_FORGET": int(problem.flags.get("CoupleInputForget", False)),
        "HAS_PEEPHOLE": int(problem.has("PeepholeTensor")),
        "HAS_CLIP": int(problem.clip is not None), "CLIP": float_bits(problem.clip or 0.0),
        **_activation_constants(problem),
        **{f"HAS_{prefix}": int(problem.has(field)) for field, prefix, _, _ in _IN_PLACE},
        **{name: value for row in _IN_PLACE for name, value in _strides(problem, *row).items()},
    }


# The tensors that the time loop reads and writes in place: field, name in the shaders, dimensions and their letters
_IN_PLACE = (
    ("InputTensor", "INPUT", (1, 2, 3), "TBI"),
    ("HiddenInitTensor", "INITIAL_H", (1, 2, 3), "DBH"),
    ("OutputSequenceTensor", "SEQUENCE", (0, 1, 2, 3), "TDBH"),
    ("OutputSingleTensor", "SINGLE", (1, 2, 3), "DBH"),
    ("SequenceLengthsTensor", "LENGTHS", (3,), "B"),
    ("CellMemInitTensor", "INITIAL_C", (1, 2, 3), "DBH"),
    ("OutputCellSingleTensor", "CELL_SINGLE", (1, 2, 3), "DBH"),
)


def _given(problem: Problem, field: str) -> str:
    return field if problem.has(field) else NONE


def _strides(problem: Problem, field: str, prefix: str, dims: Sequence[int], letters: Sequence[str]) -> dict[str, int]:
    strides = problem.tensor(field).strides if problem.has(field) else (0, 0, 0, 0)
    return {f"{prefix}_STRIDE_{letter}": strides[dim] for dim, letter in zip(dims, letters)}


def _activation_constants(problem: Problem) -> dict[str, int]:
    """f, g (and h) of each direction at 3 * direction + place; a single direction's stand for both."""
    constants = {}
    for place in range(6):
        direction, index = divmod(place, 3)
        fused = None
        if index < problem.cell.activations:
            fused = problem.activation(min(direction, problem.directions - 1), index)
        constants[f"ACTIVATION_{place}"] = fused.activation.shader_id if fused else 0
        constants[f"PARAM_A_{place}"] = float_bits(fused.a if fused else 0.0)
        constants[f"PARAM_B_{place}"] = float_bits(fused.b if fused else 0.0)
    return constants
