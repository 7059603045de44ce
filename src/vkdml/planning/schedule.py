"""Problem + device limits -> dispatches. No Vulkan here, and on one machine the same problem always gives the same plan.

Three schedules, one gate math (shaders/cells/):
- sequence: a workgroup owns a direction and a tile of batch rows from the first time step to the last; a dispatch runs a
  chunk of steps.
- stepped: the units of a tile are spread over several workgroups, and a dispatch runs one phase of one step.
- persistent: they are spread so too, and a dispatch runs a chunk of steps; the workgroups meet at a barrier of their own.
  Vulkan promises no progress of one workgroup while another waits, so waiting is bounded, and a plan has a fallback.

Each with the input's part of all gates first, as one matrix product for many time steps (projected), or multiplied in the
loop (fused): one submission less, for few steps or few inputs. Dispatches that depend on each other are marked by what they
read and write; `device` keeps them apart by ending the submission.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd
from typing import Any

from ..errors import InvalidArgumentError
from ..spec.checks import MAX_TENSOR_BYTES
from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, round_up
from . import costs
from .device_info import DeviceInfo
from .dispatches import pack, time_loop
from .options import PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options, check_options
from .plans import Plan, check_limits
from .tiling import (
    PACKED_HIDDEN,
    PACKED_INPUT,
    STATE,
    Tiling,
    chunk_iterations,
    gates_bytes,
    loads,
    loads_per_block,
    most_iterations,
    most_spins,
    projection_iterations,
    projection_tiles,
    resident_fits,
    resident_loads,
    shared_bytes,
    step_iterations,
)

_SUBMISSION_SECONDS = 0.5  # most work in one, by the model: drivers kill what runs for seconds
# Rows that share each loaded weight. More rows, fewer loads; with more than these, compiling takes long.
_MOST_ROWS = {True: 16, False: 8}
_MOST_VECTORS = 4  # rows of each invocation in the row_lanes kernels
_MOST_PAIR_ROWS = 1  # a product of pairs is 40 operations: arithmetic costs more than loads, and unrolling takes long
# Where products are compiled in line: rows times units at most, so that the loop's code fits a core's cache; and pairs of a
# step and a row for which the projection's tile gets one more, as compiling takes long
_MOST_IN_LINE, _PAIRS_FOR_A_ROW = 8, 16
_MOST_STATES_BYTES = 2**24  # of parts with a state each, for which there is no need where there are many rows
# Where the parts of a persistent tile were seen to run side by side. Elsewhere the schedule has to be asked for.
_RUNS_SIDE_BY_SIDE = {"llvmpipe", "SwiftShader driver"}
_GPU_PARTS = 16
# Invocations of a workgroup in the plain kernels: at most, by whether the device is a CPU (a GPU's core takes the loads of some
# 500 at a time); at least, and a multiple of it; and in input_projection, which has workgroups enough
_MOST_PLAIN_WORKGROUP = {True: 128, False: 512}
_LEAST_PLAIN_WORKGROUP, _PLAIN_PROJECTION_WORKGROUP = 32, 64
_MOST_STEPS_RECORDED = 2000  # stepped, a phase of a step is a submission, which takes some of the host's memory


def plan(problem: Problem, info: DeviceInfo, options: Options = Options()) -> Plan:
    """Choose kernels, tiles and chunks. Raises InvalidArgumentError for what the device cannot hold."""
    tiling = min(tilings(problem, info, options), key=lambda tiling: costs.seconds(problem, info, tiling))
    internal = tiling.internal(problem)
    built = Plan(
        initialize=(pack(problem, info, tiling, "WeightTensor", PACKED_INPUT),
                    pack(problem, info, tiling, "RecurrenceTensor", PACKED_HIDDEN)),
        execute=time_loop(problem, tiling),
        internal=internal,
    )
    if tiling.schedule == PERSISTENT:
        fallback = time_loop(problem, _fallbacks(problem, info, options, tiling)[0])
        built = replace(built, fallback=fallback, is_forced=options.schedule is not None,
                        gave_up=(STATE, internal[STATE] // 4 - tiling.grid_words(problem)))
    check_limits(problem, info, built)
    return built


def tilings(problem: Problem, info: DeviceInfo, options: Options = Options()) -> list[Tiling]:
    """All that the options allow and the device can run. Raises InvalidArgumentError if there is none."""
    check_options(options)
    lanes = _choose_lanes(problem, info, options)
    found = []
    shapes = _shapes(problem, info, options, lanes)
    for schedule, shape in product([options.schedule] if options.schedule else SCHEDULES, shapes):
        unit_tiles = ceil_div(problem.hidden, lanes * shape["units_at_once"])
        spins = most_spins(info) if schedule == PERSISTENT else 0
        for parts in _choose_parts(problem, info, options, schedule, shape, unit_tiles):
            tile = _resident_tile if shape["resident"] else _tile
            tiling = tile(problem, info, options, lanes, schedule=schedule, parts=parts, spins=spins, **shape)
            if tiling and (schedule != PERSISTENT or _fallbacks(problem, info, options, tiling)):
                found.append(tiling)
                break
    if not found:
        sizes = f"H = {problem.hidden}, I = {problem.input_size}"
        forced = {name: value for name, value in vars(options).items() if value != getattr(Options, name)}
        raise InvalidArgumentError(problem.operator, "options" if forced else "sizes",
                                   f"{forced} with {sizes}" if forced else sizes,
                                   f"ones that {info.name} can loop over in one dispatch")
    for name in ("row_lanes", "resident", "fused", "projection_row_lanes"):  # where they can be had
        found = [tiling for tiling in found if getattr(tiling, name) == getattr(options, name)] or found
    return found


def _fallbacks(problem: Problem, info: DeviceInfo, options: Options, tiling: Tiling) -> list[Tiling]:
    """What can run instead of a persistent tiling with the same weights, the fastest first."""
    rows = [tiling.rows] if tiling.row_lanes or options.rows else _distinct_rows(problem, tiling.rows)
    tiles = [replace(tiling.in_one_part, rows=of_tile) for of_tile in rows]
    others = [_with_shared_state(problem, info, options, tile) for tile in tiles
              if tile.rows * tile.tiles(problem) <= tiling.rows * tiling.tiles(problem)]  # for which the state has room
    if not tiling.resident and _can_be_stepped(problem):
        others.append(replace(tiling, schedule=STEPPED, spins=0))
    return sorted((_in_chunks(problem, info, options, other) for other in others
                   if other.workgroup <= info.max_workgroup_invocations and _steps_by_iterations(problem, info, other) >= 1),
                  key=lambda other: costs.seconds(problem, info, other))


_SHAPE = {"units_at_once": 1, "fused": False, "row_lanes": False, "resident": False, "projection_row_lanes": False}


def _shapes(problem: Problem, info: DeviceInfo, options: Options, lanes: int) -> list[dict[str, Any]]:
    """What tiles may look like."""
    rows = [options.rows] if options.rows else _distinct_rows(problem, _most_rows(problem, info))
    at_once = [options.units_at_once] if options.units_at_once else [2, 1] if lanes > 1 else [1]
    shapes = [_SHAPE | {"rows": of_tile, "units_at_once": units, "fused": True} for of_tile, units in product(rows, at_once)]
    rates = costs.rates(info)
    residents, in_rows = ([False, True] if rate and option is not False and lanes > 1 else [False] for rate, option in (
        (rates.resident_product, options.resident), (rates.row_product, options.projection_row_lanes)))
    shapes += [_SHAPE | {"rows": of_tile, "units_at_once": units, "resident": resident, "projection_row_lanes": in_row}
               for resident, in_row, of_tile, units in product(residents, in_rows, rows, at_once)]
    if rates.row_product and options.row_lanes is not False and lanes > 1:
        vectors = {ceil_div(of_tile, lanes) for of_tile in ([options.rows] if options.rows else
                                                            _distinct_rows(problem, _MOST_VECTORS * lanes))}
        shapes += [_SHAPE | {"rows": lanes * count, "row_lanes": True, "projection_row_lanes": True}
                   for count in sorted(vectors) if count <= _MOST_VECTORS]
    return shapes


def _choose_lanes(problem: Problem, info: DeviceInfo, options: Options) -> int:
    """The subgroup size where shuffles replace loads, else 1.

    Only CPU drivers gain: their workgroup is one whole subgroup, and loads are what they are slow at. A GPU reads shared
    memory faster, and may run a subgroup with fewer invocations than it reports (Intel does).
    """
    possible = info.subgroup_shuffle and info.subgroup_size > 1 and not problem.element.pairs
    for name, there, needed in (("lanes", possible, "a device that has subgroup shuffles"),
                                ("row_lanes", possible and costs.rates(info).row_product, "llvmpipe"),
                                ("projection_row_lanes", possible and costs.rates(info).row_product, "llvmpipe"),
                                ("resident", possible and costs.rates(info).resident_product, "llvmpipe")):
        if getattr(options, name) and not there:
            raise InvalidArgumentError("compile_operator", f"options.{name}", f"{problem.element.name} on {info.name}",
                                       f"{needed}, and another type than float64")
    shuffle = options.lanes or options.row_lanes or options.resident or options.projection_row_lanes
    wanted = shuffle or (options.lanes is None and info.is_cpu)
    return info.subgroup_size if wanted and possible else 1


def _distinct_rows(problem: Problem, most: int) -> list[int]:
    """Rows of a tile that share the batch out evenly."""
    return sorted({ceil_div(problem.batch, ceil_div(problem.batch, rows)) for rows in range(1, most + 1)})


def _most_rows(problem: Problem, info: DeviceInfo) -> int:
    return _MOST_PAIR_ROWS if problem.element.pairs else _MOST_ROWS[info.is_cpu]


def _choose_parts(problem: Problem, info: DeviceInfo, options: Options, schedule: str, shape: dict[str, Any],
                  unit_tiles: int) -> list[int]:
    """Workgroups that share a tile's units, the preferred number first; none where the schedule is no choice."""
    if schedule == SEQUENCE:
        return [1]
    forced = options.schedule == schedule
    if not (forced or (_can_be_stepped(problem) if schedule == STEPPED else info.driver in _RUNS_SIDE_BY_SIDE)):
        return []
    if options.parts:
        return [options.parts] if options.parts > 1 else []
    parts = min(_GPU_PARTS, ceil_div(problem.hidden, _LEAST_PLAIN_WORKGROUP))
    if info.is_cpu:  # as many as leave every core its own
        parts = min(costs.workers(info) // (problem.directions * ceil_div(problem.batch, shape["rows"])), unit_tiles)
    if schedule == STEPPED and shape["row_lanes"]:  # or as many as have loop iterations enough for a step
        return [count for count in (parts, 2, 4, 8) if 1 < count <= unit_tiles]
    return [max(parts, 2)] if forced else [parts] if parts > 1 else []


def _can_be_stepped(problem: Problem) -> bool:
    return problem.steps * problem.loop.phases <= _MOST_STEPS_RECORDED


def _tile(problem: Problem, info: DeviceInfo, options: Options, lanes: int, **chosen: Any) -> Tiling | None:
    """The tiling with the first workgroup that has loop iterations enough for a step."""
    row_lanes = chosen["row_lanes"]
    if costs.rates(info).in_line and chosen["rows"] * chosen["units_at_once"] > _MOST_IN_LINE and options.rows is None:
        return None
    for workgroup, in_line in _workgroups(problem, info, options, lanes, chosen["parts"]):
        if row_lanes and workgroup != lanes:
            return None
        tile_units = workgroup * chosen["units_at_once"]
        units = round_up(problem.hidden, tile_units)
        of_projection = tile_units if lanes > 1 else gcd(workgroup, _PLAIN_PROJECTION_WORKGROUP) * chosen["units_at_once"]
        tiling = Tiling(**chosen, lanes=lanes, workgroup=workgroup, block_loads=loads_per_block(problem, info, lanes),
                        in_line=in_line, units=units, hidden_loads=loads(problem, info, problem.hidden, lanes, row_lanes),
                        **_projection(problem, info, lanes, chosen, units, of_projection, chosen["units_at_once"]))
        tiling = _with_own_states(problem, tiling)
        if _steps_by_iterations(problem, info, tiling) < 1:
            continue
        return _with_projection(problem, info, options, _with_shared_state(problem, info, options, tiling))
    return None


def _resident_tile(problem: Problem, info: DeviceInfo, options: Options, lanes: int, **chosen: Any) -> Tiling | None:
    """The tiling whose workgroups hold all units of a part."""
    invocations = round_up(ceil_div(problem.hidden, chosen["parts"] * chosen["units_at_once"]), lanes)
    units = invocations * chosen["units_at_once"] * chosen["parts"]
    at_once = 2 if units % (2 * lanes) == 0 else 1  # of the projection
    tiling = Tiling(**chosen, lanes=lanes, workgroup=invocations, block_loads=loads_per_block(problem, info, lanes),
                    in_line=False, units=units, hidden_loads=resident_loads(problem),
                    **_projection(problem, info, lanes, chosen, units, lanes * at_once, at_once))
    if (tiling.schedule == STEPPED or invocations > info.max_workgroup_invocations
            or options.workgroup not in (None, invocations) or not resident_fits(problem, tiling)
            or _steps_by_iterations(problem, info, tiling) < 1):
        return None
    return _with_projection(problem, info, options, _with_shared_state(problem, info, options, tiling))


def _with_own_states(problem: Problem, tiling: Tiling) -> Tiling:
    """With all of the state in each part, where they need nothing else of each other, and it is small."""
    own = replace(tiling, own_states=True)
    is_only_phase = tiling.schedule == STEPPED and problem.steps * problem.loop.phases == 1
    return own if is_only_phase and own.internal(problem)[STATE] <= _MOST_STATES_BYTES else tiling


def _with_shared_state(problem: Problem, info: DeviceInfo, options: Options, tiling: Tiling) -> Tiling:
    """With the state in shared memory, where the kernels know that and it fits."""
    fits = ((tiling.lanes == 1 or tiling.resident) and tiling.schedule == SEQUENCE
            and shared_bytes(problem, tiling) <= info.max_shared_memory)
    return replace(tiling, shared_state=fits and options.shared_state is not False)


def _projection(problem: Problem, info: DeviceInfo, lanes: int, chosen: dict[str, Any], units: int, tile_units: int,
                units_at_once: int) -> dict[str, Any]:
    """The parts of a tiling that tell how input_projection is cut."""
    pairs, row_lanes = problem.batch * problem.steps, chosen["projection_row_lanes"]
    if row_lanes:
        rows = chosen["rows"] if chosen["row_lanes"] else lanes * min(_MOST_VECTORS, ceil_div(pairs, lanes))
    elif costs.rates(info).in_line:
        rows = min(_MOST_IN_LINE // units_at_once, ceil_div(pairs, _PAIRS_FOR_A_ROW))
    else:
        rows = min(_most_rows(problem, info), pairs)
    return {"projection_rows": rows, "projection_units": units if row_lanes else tile_units,
            "input_loads": loads(problem, info, problem.input_size, lanes, row_lanes)}


def _with_projection(problem: Problem, info: DeviceInfo, options: Options, tiling: Tiling) -> Tiling | None:
    """With chunks, and in row_lanes as many units of a workgroup of input_projection as it has loop iterations for."""
    while (tiling.projection_row_lanes and projection_iterations(problem, tiling) > most_iterations(info)
           and tiling.projection_units > tiling.lanes):
        tiling = replace(tiling, projection_units=ceil_div(tiling.projection_units, 2))
    if not tiling.fused and (projection_iterations(problem, tiling) > most_iterations(info)
                             or gates_bytes(problem, tiling) > _largest_gates(info, options)):
        return None
    return _in_chunks(problem, info, options, tiling)


def _workgroups(problem: Problem, info: DeviceInfo, options: Options, lanes: int, parts: int) -> Iterator[tuple[int, bool]]:
    """Invocations in a workgroup, and whether loads are in line; the preferred first, then with fewer loop iterations each."""
    most = info.max_workgroup_invocations
    if options.workgroup:
        if options.workgroup % lanes or options.workgroup > most:
            raise InvalidArgumentError("compile_operator", "options.workgroup", options.workgroup,
                                       f"a multiple of {lanes}, at most {most}")
        most = options.workgroup
    workgroup = options.workgroup or (lanes if lanes > 1 else _plain_workgroup(problem, info, parts))
    if not costs.rates(info).in_line:
        yield workgroup, False
    while workgroup <= most:
        yield workgroup, True
        workgroup *= 2


def _plain_workgroup(problem: Problem, info: DeviceInfo, parts: int) -> int:
    """The invocations that hold a part's units, in as few turns as can be."""
    units = ceil_div(problem.hidden, parts)
    turns = ceil_div(units, min(_MOST_PLAIN_WORKGROUP[info.is_cpu], info.max_workgroup_invocations))
    return round_up(ceil_div(units, turns), _LEAST_PLAIN_WORKGROUP)


def _largest_gates(info: DeviceInfo, options: Options) -> int:
    return min(options.workspace_bytes, info.max_storage_buffer_range, MAX_TENSOR_BYTES)


def _steps_by_iterations(problem: Problem, info: DeviceInfo, tiling: Tiling) -> int:
    return (most_iterations(info) - chunk_iterations(problem, tiling)) // step_iterations(problem, tiling)


def _in_chunks(problem: Problem, info: DeviceInfo, options: Options, tiling: Tiling) -> Tiling:
    """With the most time steps that a dispatch of the loop, and one of the projection, may run."""
    in_time = int(_SUBMISSION_SECONDS / costs.step_seconds(problem, info, tiling))
    chunk_steps = min(problem.steps, options.chunk_steps or problem.steps, _steps_by_iterations(problem, info, tiling), in_time)
    if tiling.schedule == STEPPED:
        chunk_steps = 1
    gates_steps = 0
    if not tiling.fused:
        gates_steps = min(problem.steps, _largest_gates(info, options) // gates_bytes(problem, tiling),
                          info.max_workgroup_count // projection_tiles(problem, tiling, 1),
                          int(_SUBMISSION_SECONDS / costs.projection_seconds(problem, info, tiling, 1)))
    return replace(tiling, chunk_steps=max(1, chunk_steps), gates_steps=max(not tiling.fused, gates_steps))
