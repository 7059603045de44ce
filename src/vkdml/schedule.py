"""Problem + device limits -> dispatches. No Vulkan here, and on one machine the same problem always gives the same plan.

Two schedules, one gate math (shaders/cells/):
- projected: the input's part of all gates first, as one matrix product for a whole chunk of time steps
  (input_projection), then the time loop of the chunk in one dispatch (sequence).
- fused: the time loop alone, which multiplies the input itself. One submission less; for few steps or few inputs.

The time loop's workgroups each own a direction and some batch rows, so nothing passes between workgroups. Dispatches that
depend on each other are marked by what they read and write; `device` keeps them apart by ending the submission.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import InvalidArgumentError
from .plans import NONE, Dispatch, Plan, ceil_div, check_limits, float_bits, kernel_name, round_up
from .problem import Problem
from .vulkan import DeviceInfo

PACKED_INPUT, PACKED_HIDDEN, GATES, STATE = "packed input weights", "packed recurrent weights", "gates", "state"

WORKSPACE_BYTES = 64 * 2**20  # for `gates`; more time steps than fit go through in chunks
_PACK_WORKGROUP = 64
# Most work in a submission: drivers kill what runs for seconds. At the slowest rates seen (1 GFLOP/s on a CPU driver).
_FLOPS_PER_SUBMISSION = {True: 1e9, False: 4e9}
# Rows that share each loaded weight. CPU drivers: more rows, fewer loads; beyond 16 the sums leave the registers.
_MOST_ROWS = {True: 16, False: 8}
_MOST_PAIR_ROWS = 1  # a product of pairs is 40 operations: arithmetic costs more than loads, and unrolling takes long
_PAIR_FLOPS = 40
_PAIR_ITERATIONS = 160  # of the loops in all activations of a unit, LSTM's five being the most
_MOST_FORCED_ROWS = 32  # compilers take minutes over more
_FUSED_INPUTS = 8  # with so few inputs, W costs less to load again each step than `gates` costs to store and load
# llvmpipe ends all loops of an invocation, silently, after 65535 iterations of them together. Half of it is used: what
# counts as an iteration there is not documented.
_MOST_LOOP_ITERATIONS = {"llvmpipe": 32767}
_GPU_WORKGROUPS = 64  # on a GPU, rows are shared only when this many workgroups remain


@dataclass(frozen=True)
class Options:
    """What to force instead of what the plan would choose; None leaves the choice. For tests and measurements.

    lanes: use the subgroup-shuffle kernels. fused: the schedule of that name. rows: batch rows a workgroup carries.
    workgroup: invocations (a multiple of the subgroup size with lanes). shared_state: keep h in shared memory (not with
    lanes). chunk_steps: most time steps a dispatch runs.
    """

    lanes: bool | None = None
    fused: bool | None = None
    rows: int | None = None
    workgroup: int | None = None
    shared_state: bool | None = None
    chunk_steps: int | None = None


def plan(problem: Problem, info: DeviceInfo, options: Options = Options()) -> Plan:
    """Choose kernels, tiles and chunks. Raises InvalidArgumentError for what the device cannot hold."""
    _check_options(options)
    choice = _choose(problem, info, options)
    _check_projection(problem, info, choice)
    built = Plan(
        initialize=(_pack(problem, info, choice, "WeightTensor", PACKED_INPUT),
                    _pack(problem, info, choice, "RecurrenceTensor", PACKED_HIDDEN)),
        execute=tuple(dispatch for chunk in _chunks(problem, choice) for dispatch in _time_loop(problem, choice, chunk)),
        internal=choice.internal(problem),
    )
    check_limits(problem, info, built)
    return built


@dataclass(frozen=True)
class _Choice:
    """What is decided, and the sizes that follow. Loads of weights for a row of X or h are whole blocks of `lanes`."""

    lanes: int
    fused: bool
    rows: int
    projection_rows: int
    workgroup: int
    shared_state: bool
    chunk_steps: int
    units: int
    input_loads: int
    hidden_loads: int

    def tiles(self, problem: Problem) -> int:
        return ceil_div(problem.batch, self.rows)

    def internal(self, problem: Problem) -> dict[str, int]:
        gates, real4 = len(problem.cell.gates), problem.element.real4_bytes
        has_peephole = problem.has("PeepholeTensor")
        sizes = {
            PACKED_INPUT: problem.directions * self.units * (self.input_loads * gates + 1) * real4,
            PACKED_HIDDEN: problem.directions * self.units * (self.hidden_loads * gates + 1 + has_peephole) * real4,
            STATE: problem.directions * self.tiles(problem) * _state_bytes(problem, self.rows, self.hidden_loads),
        }
        if not self.fused:
            sizes[GATES] = self.chunk_steps * _gates_bytes(problem, self.units)
        return sizes


def _check_options(options: Options) -> None:
    for name in ("lanes", "fused", "shared_state"):
        value = getattr(options, name)
        if value not in (None, False, True):
            raise InvalidArgumentError("compile_operator", f"options.{name}", repr(value), "True, False or None")
    for name, most in (("rows", _MOST_FORCED_ROWS), ("workgroup", 2**31), ("chunk_steps", 2**31)):
        value = getattr(options, name)
        if value is not None and not (isinstance(value, int) and 1 <= value <= most):
            raise InvalidArgumentError("compile_operator", f"options.{name}", repr(value), f"a whole number from 1 to {most}")


def _gates_bytes(problem: Problem, units: int) -> int:
    """Bytes of `gates` for one time step."""
    return problem.directions * problem.batch * units * problem.element.real4_bytes


def _state_bytes(problem: Problem, rows: int, hidden_loads: int) -> int:
    """Bytes of a tile's state."""
    return problem.loop.slots * rows * hidden_loads * problem.element.vecs_per_load * problem.element.real4_bytes


def _choose(problem: Problem, info: DeviceInfo, options: Options) -> _Choice:
    lanes = _choose_lanes(problem, info, options)
    rows = options.rows or _choose_rows(problem, info)
    input_loads, hidden_loads = (_loads(problem, size, lanes) for size in (problem.input_size, problem.hidden))
    fused = problem.steps == 1 or problem.input_size <= _FUSED_INPUTS if options.fused is None else options.fused
    workgroup, iterations = _choose_workgroup(problem, info, options, lanes, rows, hidden_loads + input_loads * fused)
    largest_workspace = min(WORKSPACE_BYTES, info.max_storage_buffer_range)
    if not fused and _gates_bytes(problem, round_up(problem.hidden, workgroup)) > largest_workspace:
        fused = True  # one step's gates alone are too large to store
        workgroup, iterations = _choose_workgroup(problem, info, options, lanes, rows, hidden_loads + input_loads)
    units = round_up(problem.hidden, workgroup)
    fits = lanes == 1 and _state_bytes(problem, rows, hidden_loads) <= info.max_shared_memory
    chunk_steps = _choose_chunk(problem, info, options, iterations)
    if not fused:
        chunk_steps = min(chunk_steps, WORKSPACE_BYTES // _gates_bytes(problem, units),
                          info.max_workgroup_count * rows // problem.batch)
    chunk_steps = max(1, chunk_steps)
    return _Choice(
        lanes=lanes,
        fused=fused,
        rows=rows,
        projection_rows=min(_most_rows(problem, info), chunk_steps * problem.batch),
        workgroup=workgroup,
        shared_state=fits if options.shared_state is None else options.shared_state and fits,
        chunk_steps=chunk_steps,
        units=units,
        input_loads=input_loads,
        hidden_loads=hidden_loads,
    )


def _loads_per_block(problem: Problem, lanes: int) -> int:
    return max(1, lanes // problem.element.vecs_per_load)


def _loads(problem: Problem, columns: int, lanes: int) -> int:
    """Loads of weights for a row of so many columns."""
    return round_up(ceil_div(columns, 4 * problem.element.vecs_per_load), _loads_per_block(problem, lanes))


def _choose_workgroup(problem: Problem, info: DeviceInfo, options: Options, lanes: int, rows: int, loads: int
                      ) -> tuple[int, int]:
    """Invocations in a workgroup, and the loop iterations of each in a time step: over units, and for each over the blocks of
    each product (`loads` of weights in all), and, in pairs, over rows and in activations. A loop's last check counts too.
    """
    of_unit = loads // _loads_per_block(problem, lanes) + 3
    if problem.element.pairs:
        of_unit += rows * (_PAIR_ITERATIONS + 1) + 1

    def iterations(workgroup: int) -> int:
        return problem.loop.phases * (ceil_div(problem.hidden, workgroup) * of_unit + 2)

    if options.workgroup:
        if options.workgroup % lanes or options.workgroup > info.max_workgroup_invocations:
            raise InvalidArgumentError("compile_operator", "options.workgroup", options.workgroup,
                                       f"a multiple of {lanes}, at most {info.max_workgroup_invocations}")
        return options.workgroup, iterations(options.workgroup)
    workgroup = lanes if lanes > 1 else min(round_up(problem.hidden, 32), 128)
    while 2 * iterations(workgroup) > _most_iterations(info) and 2 * workgroup <= info.max_workgroup_invocations:
        workgroup *= 2  # fewer units for each invocation
    return workgroup, iterations(workgroup)


def _most_iterations(info: DeviceInfo) -> int:
    return _MOST_LOOP_ITERATIONS.get(info.driver, 2**32)


def _choose_chunk(problem: Problem, info: DeviceInfo, options: Options, iterations: int) -> int:
    """Time steps for one dispatch."""
    if 2 * iterations > _most_iterations(info):
        found = f"H = {problem.hidden}, I = {problem.input_size}"
        raise InvalidArgumentError(problem.operator, "RecurrenceTensor.Sizes", found,
                                   f"sizes that {info.name} can loop over in one dispatch")
    weights = problem.directions * len(problem.cell.gates) * problem.hidden * (problem.input_size + problem.hidden)
    return min(options.chunk_steps or problem.steps, problem.steps,
               int(_FLOPS_PER_SUBMISSION[info.is_cpu] / (_flops(problem) * problem.batch * weights)),
               _most_iterations(info) // iterations - 1)


def _check_projection(problem: Problem, info: DeviceInfo, choice: _Choice) -> None:
    if choice.input_loads // _loads_per_block(problem, choice.lanes) + 2 > _most_iterations(info):
        raise InvalidArgumentError(problem.operator, "InputTensor.Sizes", f"I = {problem.input_size}",
                                   f"an input size that {info.name} can loop over in one dispatch")


def _flops(problem: Problem) -> int:
    """For each weight and row."""
    return _PAIR_FLOPS if problem.element.pairs else 2


def _choose_lanes(problem: Problem, info: DeviceInfo, options: Options) -> int:
    """The subgroup size where shuffles replace loads, else 1.

    Only CPU drivers gain: their workgroup is one whole subgroup, and loads are what they are slow at. A GPU reads shared
    memory faster, and may run a subgroup with fewer invocations than it reports (Intel does).
    """
    possible = info.subgroup_shuffle and info.subgroup_size > 1 and not problem.element.pairs
    wanted = info.is_cpu if options.lanes is None else options.lanes
    if options.lanes and not possible:
        raise InvalidArgumentError("compile_operator", "options.lanes", f"{problem.element.name} on {info.name}",
                                   "a device that has subgroup shuffles, and another type than float64")
    return info.subgroup_size if wanted and possible else 1


def _choose_rows(problem: Problem, info: DeviceInfo) -> int:
    """Batch rows a workgroup: as many as leave every core, or enough of a GPU, its share."""
    wanted_groups = (os.cpu_count() or 1) if info.is_cpu else _GPU_WORKGROUPS
    tiles = round_up(ceil_div(problem.batch, _most_rows(problem, info)), ceil_div(wanted_groups, problem.directions))
    return ceil_div(problem.batch, tiles)


def _most_rows(problem: Problem, info: DeviceInfo) -> int:
    return _MOST_PAIR_ROWS if problem.element.pairs else _MOST_ROWS[info.is_cpu]


def _pack(problem: Problem, info: DeviceInfo, choice: _Choice, field: str, packed: str) -> Dispatch:
    recurrent = packed == PACKED_HIDDEN
    peephole = _given(problem, "PeepholeTensor") if recurrent else NONE
    columns = problem.hidden if recurrent else problem.input_size
    column_loads = choice.hidden_loads if recurrent else choice.input_loads
    constants = {
        "WORKGROUP": _PACK_WORKGROUP, "DIRECTIONS": problem.directions, "GATES": len(problem.cell.gates),
        "HIDDEN": problem.hidden, "UNITS": choice.units, "COLUMNS": columns, "COLUMN_LOADS": column_loads,
        "ELEMENT": problem.element.shader_id,
        "HAS_BIAS": int(problem.has("BiasTensor")), "IS_RECURRENT": int(recurrent), "SPLIT_BIAS": problem.loop.split_bias,
        "PEEPHOLES": problem.cell.peepholes if peephole != NONE else 0,
        **_strides(problem, field, "WEIGHT", (1, 2, 3), ("D", "ROW", "COLUMN")),
        **_strides(problem, "BiasTensor", "BIAS", (2, 3), ("D", "ROW")),
        **_strides(problem, "PeepholeTensor", "PEEPHOLE", (2, 3), ("D", "ROW")),
    }
    invocations = choice.internal(problem)[packed] // problem.element.real4_bytes
    groups = min(ceil_div(invocations, _PACK_WORKGROUP), info.max_workgroup_count)
    buffers = (field, _given(problem, "BiasTensor"), peephole, packed)
    return Dispatch(kernel_name("pack", problem), constants, buffers, (packed,), (groups, 1, 1))


def _chunks(problem: Problem, choice: _Choice) -> list[tuple[int, int]]:
    return [(first, min(first + choice.chunk_steps, problem.steps)) for first in range(0, problem.steps, choice.chunk_steps)]


def _time_loop(problem: Problem, choice: _Choice, chunk: tuple[int, int]) -> list[Dispatch]:
    constants = _constants(problem, choice)
    lengths, hidden_init, *outputs = (_given(problem, field) for field in (
        "SequenceLengthsTensor", "HiddenInitTensor", "OutputSequenceTensor", "OutputSingleTensor"))
    cell_state = [_given(problem, field) for field in ("CellMemInitTensor", "OutputCellSingleTensor")
                  if field in problem.tensors]
    sequence = Dispatch(
        kernel=kernel_name(f"sequence_{problem.cell.kernel}", problem, choice.lanes),
        constants=constants,
        buffers=("InputTensor" if choice.fused else GATES, PACKED_INPUT if choice.fused else NONE, PACKED_HIDDEN, lengths,
                 hidden_init, *outputs, STATE, *cell_state),
        writes=(*outputs, STATE, *cell_state[1:]),
        groups=(choice.tiles(problem), problem.directions, 1),
        push=chunk,
    )
    if choice.fused:
        return [sequence]
    pairs = (chunk[1] - chunk[0]) * problem.batch
    projection = Dispatch(
        kernel=kernel_name("input_projection", problem, choice.lanes),
        constants=constants | {"ROWS": choice.projection_rows},
        buffers=("InputTensor", PACKED_INPUT, lengths, GATES),
        writes=(GATES,),
        groups=(choice.units // choice.workgroup, ceil_div(pairs, choice.projection_rows), problem.directions),
        push=chunk,
    )
    return [projection, sequence]


def _constants(problem: Problem, choice: _Choice) -> dict[str, int]:
    """The specialization of the time loop's kernels, by the names in shaders/."""
    return {
        "WORKGROUP": choice.workgroup, "LANES": choice.lanes, "ROWS": choice.rows,
        "STEPS": problem.steps, "BATCH": problem.batch, "INPUTS": problem.input_size, "HIDDEN": problem.hidden,
        "DIRECTIONS": problem.directions, "GATES": len(problem.cell.gates),
        "ELEMENT": problem.element.shader_id, "UNITS": choice.units,
        "INPUT_LOADS": choice.input_loads, "HIDDEN_LOADS": choice.hidden_loads,
        "REVERSE": sum(reverse << direction for direction, reverse in enumerate(problem.reverse)),
        "FUSED": int(choice.fused), "SLOTS": problem.loop.slots, "SHARED_STATE": int(choice.shared_state),
        "LINEAR_BEFORE_RESET": int(problem.flags.get("LinearBeforeReset", False)),
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
