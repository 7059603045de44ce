"""Makes the dispatches of a recurrent operator, and their constants, as far as all families of kernels share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..operators.checks import ceil_div
from ..operators.problem import Problem
from .dispatches import Dispatch, activation_constants, given, in_room, storing_halves
from .options import STEPPED
from .tiling import GATES, PACKED_HIDDEN, PACKED_INPUT, STATE, KernelTiling, Packing, Target, Tiling, TimedDispatches

_PACK_WORKGROUP = 64  # on GPUs. CPU drivers run one subgroup after the other: there, a workgroup is a subgroup, for the caches
# The fewest loads that an invocation packs, as finding its first one takes divisions; and the most invocations that gain time
_LEAST_PACKED, _MOST_PACKERS = 8, 2**14


def pack(target: Target, tiling: Tiling) -> tuple[Dispatch, ...]:
    """Make the dispatches that pack the input weights and the recurrent weights."""
    problem = tiling.problem
    peepholes = problem.cell.peepholes if problem.has("PeepholeTensor") else 0
    return (_pack(target, tiling, "WeightTensor", PACKED_INPUT, tiling.input,
                  {"columns": problem.input_size, "gates": len(problem.cell.gates), "is_recurrent": 0, "peepholes": 0}),
            _pack(target, tiling, "RecurrenceTensor", PACKED_HIDDEN, tiling.loop.hidden,
                  {"columns": problem.columns, "gates": problem.loop.products, "is_recurrent": 1, "peepholes": peepholes}))


def _pack(target: Target, tiling: Tiling, field: str, packed: str, packing: Packing, sizes: dict[str, int]) -> Dispatch:
    problem, info = tiling.problem, target.info
    loads = tiling.buffers[packed] // problem.element.real4_bytes
    push = sizes | {
        "directions": problem.directions, "hidden": problem.hidden,
        "units": tiling.loop.units, "column_loads": packing.loads, "together": packing.together,
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


def time_loop(target: Target, tiling: Tiling) -> tuple[Dispatch, ...]:
    """Make all dispatches of an execution, in order. A new submission starts where the current one would take too long."""
    found, total = [], 0.0  # total: seconds of the current submission
    for dispatch, seconds in tiling.dispatches(target):
        if seconds is not None:
            starts = total > 0 and total + seconds > target.profile.submission_seconds
            total = seconds if starts else total + seconds
            dispatch = replace(dispatch, starts_submission=True) if starts else dispatch
        found.append(dispatch)
    return storing_halves(found, tiling.problem, target.info)


def in_order(target: Target, tiling: Tiling) -> TimedDispatches:
    """Make the dispatches of an execution whose time loop keeps its state between them: by chunks, or stepped by phases."""
    loop, projection, steps, push = tiling.loop, tiling.projection, tiling.problem.steps, push_constants(tiling)
    step, project = _step(tiling, push), projected(tiling, push) if projection else None
    phases = tiling.problem.loop.phases if loop.schedule == STEPPED else 1
    of_step = tiling.step_seconds(target) / phases
    if loop.schedule == STEPPED:  # this dispatch writes the state before the first step
        yield step(0, 0, 0, 0), 0.0
    for first, last in chunks(0, steps, projection.chunk_steps if projection else steps):
        if project:
            yield project(first, last), tiling.projection_seconds(target, last - first)
        for start, end in chunks(first, last, loop.chunk_steps):
            for phase in range(phases):
                yield step(start, end, phase, first), (end - start) * of_step


def chunks(first: int, last: int, most: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + most, last)) for start in range(first, last, most))


def projected(tiling: Tiling, sizes: dict[str, int]) -> Callable[[int, int], Dispatch]:
    """Return a function that makes a dispatch of the projection from its first and last step."""
    projection = tiling.projection
    assert projection
    constants = {
        **_problem_constants(tiling), **_kernel_constants(projection, projection.input), **_input_constants(tiling),
        "GATES": len(tiling.problem.cell.gates), "PART_UNITS": projection.group_units,
        "COUNTED": int(projection.skips_padding), **projection.constants,
    }
    buffers = {"InputWeights": PACKED_INPUT, "Gates": GATES, **given(tiling.problem, "InputTensor", "SequenceLengthsTensor")}
    return lambda first, last: Dispatch(
        projection.kernel, constants, buffers, (GATES,),
        (projection.groups_of_units, tiling.dispatched_tiles(last - first), tiling.problem.directions),
        sizes | place(first, last, 0, first))


def place(first: int, last: int, phase: int, gates_step: int, last_slot: int = 0) -> dict[str, int]:
    """Make the push constants that place a dispatch in the sequence. gates_step: the step that the projection starts with."""
    return {"first_step": first, "last_step": last, "phase": phase, "gates_step": gates_step, "last_slot": last_slot}


def _step(tiling: Tiling, sizes: dict[str, int]) -> Callable[[int, int, int, int], Dispatch]:
    """Return a function that makes a time loop's dispatch from its first and last step, phase, and first projected step."""
    loop, problem, constants = tiling.loop, tiling.problem, loop_constants(tiling)
    of_input = {"Gates": GATES} if tiling.projection else {"InputWeights": PACKED_INPUT, **given(problem, "InputTensor")}
    outputs = given(problem, "OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
    inputs = given(problem, "SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor", "SavedTensor")
    writes = (STATE, *outputs.values())
    buffers = {"State": STATE, "HiddenWeights": PACKED_HIDDEN, **of_input, **inputs, **outputs}
    groups = (loop.tiles, problem.directions, loop.parts)
    return lambda first, last, phase, gates_step: Dispatch(
        loop.kernel, constants, buffers, writes, groups, sizes | place(first, last, phase, gates_step),
        subgroup_size=loop.subgroup_size)


def loop_constants(tiling: Tiling) -> dict[str, int]:
    loop = tiling.loop
    return {
        **_problem_constants(tiling), **_kernel_constants(loop, loop.hidden),
        **(_UNUSED_INPUT if tiling.projection else _input_constants(tiling)),
        "GATES": tiling.problem.loop.products, "FUSED": int(tiling.projection is None), "PARTS": loop.parts,
        "PART_UNITS": loop.part_units,
        "SHARED_STATE": int(loop.shared_state), **loop.constants,
    }


def push_constants(tiling: Tiling) -> dict[str, int]:
    """Make the push constants that all dispatches of the time loop and of the projection have."""
    problem = tiling.problem
    strides = {name: value for field, prefix, dims, letters in _IN_PLACE
               for name, value in _strides(problem, field, prefix.lower(), dims, letters).items()}
    return {"steps": problem.steps, "batch": problem.batch, "tiles": tiling.loop.tiles, **strides}


def _kernel_constants(tiling: KernelTiling, packing: Packing) -> dict[str, int]:
    """Make the constants of a kernel's tiling. packing: that of the weights that the kernel multiplies by."""
    return {
        "WORKGROUP": tiling.workgroup, "LANES": tiling.lanes, "ROWS": tiling.rows, "UNITS_AT_ONCE": tiling.units_at_once,
        "UNITS": tiling.units, "TOGETHER": packing.together, "IN_LINE": int(tiling.unrolled),
    }


# With a projection, the time loop never reads the input: its kernel is the same for all inputs
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
        "HIDDEN": problem.hidden, "DIRECTIONS": problem.directions,
        "ELEMENT": problem.element.shader_id, "HIDDEN_LOADS": tiling.loop.hidden.loads,
        "REVERSE": sum(reverse << direction for direction, reverse in enumerate(problem.reverse)),
        "SLOTS": problem.loop.slots, "PHASES": problem.loop.phases, "SOURCES": problem.loop.sources,
        "WORDS": problem.loop.words,
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
    ("SavedTensor", "SAVED", (0, 1, 2, 3), "tdbh"),
)


def _strides(problem: Problem, field: str, prefix: str, dims: Sequence[int], letters: Sequence[str]) -> dict[str, int]:
    strides = problem.tensor(field).strides if problem.has(field) else (0, 0, 0, 0)
    return {f"{prefix}_stride_{letter}": strides[dim] for dim, letter in zip(dims, letters)}
