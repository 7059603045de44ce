"""What a tiling takes, in seconds: a small model by which `schedule` chooses. It need only rank tilings.

A subgroup's time is that of its loads, its products and its gate math; workgroups are spread over the device's workers. The
rates are measured (docs/performance.md says how) for the CPU drivers; those for GPUs are guesses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div
from .device_info import DeviceInfo
from .options import PERSISTENT, STEPPED
from .tiling import (
    Tiling,
    block_columns,
    blocks,
    counts_pairs,
    hidden_columns,
    projection_tiles,
    resident_in_line,
)


@dataclass(frozen=True)
class Rates:
    """Seconds of a subgroup. load: of 16 bytes by each of its invocations. product: of 4 columns, for one gate and row;
    product_alone: where an invocation has one row and one unit, and so few sums; 0 where it is the same. gate_math: of one unit
    in each invocation, for one row. meeting: of the parts of a persistent tile, once. submission: of a dispatch, with the wait
    for it. second_worker: to wake one for what others do too: parts of a tile, or input_projection. compiling: of a tile's row
    of a unit, its share of each execution; it keeps the tiles of small problems small where drivers compile slowly.
    row_product: of a column, for one gate and row of each invocation, in the row_lanes kernels, and resident_product: for one
    gate and row, in the resident ones; 0 where these do not run. row_lanes_loop: how much slower the former are in the loop
    than before it. resident_compiling: of one of the latter in line, its share of each execution. waiting: how many
    times slower parts that wait for each other are where weights are not resident; other processes run too.
    """

    load: float
    product: float
    gate_math: float
    meeting: float
    submission: float
    second_worker: float = 0.0
    product_alone: float = 0.0
    compiling: float = 0.0
    row_product: float = 0.0
    row_lanes_loop: float = 1.0
    resident_product: float = 0.0
    resident_compiling: float = 0.0
    waiting: float = 1.25
    in_line: bool = False  # whether a block's loads are faster in line than in a loop


_RATES = {
    "llvmpipe": Rates(load=25e-9, product=1.2e-9, gate_math=200e-9, meeting=1.5e-6, submission=60e-6, second_worker=60e-6,
                      row_product=0.3e-9, resident_product=0.3e-9, resident_compiling=0.3e-6),
    "SwiftShader driver": Rates(load=18e-9, product=3e-9, product_alone=2.5e-9, gate_math=300e-9, meeting=2e-6,
                                submission=60e-6, compiling=20e-6, waiting=1.05, in_line=True),
}
# From a major version of Mesa on: newer ones compile loads otherwise. Measured with 25.0 and 26.2
_RATES_OF_NEWER_MESA = {
    24: replace(_RATES["llvmpipe"], product=2.2e-9, row_product=0.5e-9, row_lanes_loop=2.0, resident_product=1.2e-9,
                compiling=100e-6, resident_compiling=3e-6),
    # Its LLVM multiplies all columns of a block in the loop before it adds any, with the products in memory
    26: replace(_RATES["llvmpipe"], load=15e-9, row_product=0.35e-9, row_lanes_loop=2.5, compiling=15e-6,
                resident_compiling=1.5e-6),
}
_OTHER_CPU = _RATES["llvmpipe"]
_GPU = Rates(load=20e-9, product=2e-9, gate_math=100e-9, meeting=3e-6, submission=40e-6)
_GPU_WORKERS, _GPU_CORE_SUBGROUPS = 256, 4  # subgroups that run side by side, at a core's full rate: a workgroup has one core
_RESIDENT_WAITING = 1.05  # as Rates.waiting
_LATE_START = 100e-6  # of a thread that has to wake, while another waits for it in the shader
_VALID_PAIRS = 0.75  # of a step and a row, where lengths are given: a guess
_PAIR_PRODUCT = 20  # of pairs of floats, by products of floats
# The resident kernels: a weight of each invocation stored in private memory; one of a phase's first row fetched from beyond a
# core's cache, where there are more of them than that holds; their loads of h beside those of others; a barrier, for each
# subgroup; the share of each execution in their compiling (1 to 5 s), beside that of products
_RESIDENT_STORE, _RESIDENT_FETCH, _BARRIER = 10e-9, 0.75e-9, 20e-9
_RESIDENT_LOAD = {True: 1.8, False: 2.8}  # by whether h is in shared memory
_RESIDENT_COMPILING = 0.55e-3
_CACHE_BYTES = 512 * 1024
# The row_lanes kernels: a column of a row of each invocation stored in an array; their gate math beside that of others, which
# has loads of `gates` in it; and their compiling, its share of each execution: the loop's (1 to 2 s) and input_projection's
_ROW_LANES_STORE, _ROW_LANES_GATE_MATH, _ROW_LANES_COMPILING, _PROJECTION_COMPILING = 20e-9, 0.75, 9.9e-3, 0.05e-3


def rates(info: DeviceInfo) -> Rates:
    if not info.is_cpu:
        return _GPU
    mesa = re.match(r"Mesa (\d+)", info.driver_version)
    newer = [version for version in _RATES_OF_NEWER_MESA if mesa and int(mesa[1]) >= version]
    return _RATES_OF_NEWER_MESA[max(newer)] if newer else _RATES.get(info.driver, _OTHER_CPU)


def workers(info: DeviceInfo) -> int:
    """Subgroups that run side by side."""
    return info.cores if info.is_cpu else _GPU_WORKERS


def projection_seconds(problem: Problem, info: DeviceInfo, tiling: Tiling, steps: int) -> float:
    """Of input_projection for so many time steps."""
    tiles = projection_tiles(problem, tiling, steps) * problem.directions
    tiling = tiling.of_projection
    if tiling.row_lanes:
        of_tile = _row_lanes_seconds(problem, info, tiling, problem.input_size, tiling.projection_units)
        of_tile += tiling.rows // tiling.lanes * tiling.projection_units * rates(info).load  # stores of `gates`
    else:
        of_tile = _dot_seconds(problem, info, tiling, tiling.input_loads, tiling.projection_rows)
        of_tile += tiling.projection_rows * tiling.units_at_once * rates(info).load  # stores of `gates`
    return _spread(info, tiling, tiles * ceil_div(tiling.units, tiling.projection_units), of_tile)


def step_seconds(problem: Problem, info: DeviceInfo, tiling: Tiling) -> float:
    """Of one time step."""
    rate = rates(info)
    part = _row_lanes_part if tiling.row_lanes else _resident_part if tiling.resident else _part
    of_part = part(problem, info, tiling)
    seconds = _spread(info, tiling, problem.directions * tiling.tiles(problem) * tiling.parts, of_part)
    if tiling.schedule == PERSISTENT:
        waiting = _RESIDENT_WAITING if tiling.resident else rate.waiting
        seconds = waiting * seconds + problem.loop.phases * rate.meeting
    if tiling.schedule == STEPPED:
        seconds += problem.loop.phases * (rate.submission + rate.second_worker)
    return seconds


def _part(problem: Problem, info: DeviceInfo, tiling: Tiling) -> float:
    """Of a part's subgroup in a time step."""
    rate = rates(info)
    of_tile = _dot_seconds(problem, info, tiling, tiling.hidden_loads, tiling.rows)
    of_tile += tiling.rows * tiling.units_at_once * rate.gate_math
    if tiling.fused:
        of_tile += _dot_seconds(problem, info, tiling, tiling.input_loads, tiling.rows)
    else:
        of_tile += tiling.rows * tiling.units_at_once * rate.load  # of `gates`
    return tiling.part_units // (tiling.workgroup * tiling.units_at_once) * of_tile


def _resident_part(problem: Problem, info: DeviceInfo, tiling: Tiling) -> float:
    """Of a part's subgroup in a time step, where weights stay in private memory."""
    rate, phases, products = rates(info), problem.loop.phases, resident_in_line(problem, tiling)
    loads_of_h = phases * hidden_columns(problem, tiling) / (4 * tiling.lanes)
    of_row = loads_of_h * _RESIDENT_LOAD[tiling.shared_state] * rate.load + products * rate.resident_product
    of_row += tiling.units_at_once * (rate.gate_math + rate.load)
    is_cached = products * tiling.workgroup * 4 <= _CACHE_BYTES
    return tiling.rows * of_row + phases * _BARRIER + (0 if is_cached else products * _RESIDENT_FETCH)


def _resident_start(problem: Problem, info: DeviceInfo, tiling: Tiling) -> float:
    """Of a dispatch's loads of them."""
    of_subgroup = resident_in_line(problem, tiling) * (rates(info).load / 4 + _RESIDENT_STORE)
    return _spread(info, tiling, problem.directions * tiling.tiles(problem) * tiling.parts, of_subgroup)


def _row_lanes_part(problem: Problem, info: DeviceInfo, tiling: Tiling) -> float:
    """The same, of a subgroup of rows."""
    rate, vectors = rates(info), tiling.rows // tiling.lanes
    products = _row_lanes_seconds(problem, info, tiling, problem.hidden, tiling.part_units, problem.loop.phases)
    of_unit = vectors * _ROW_LANES_GATE_MATH * rate.gate_math + len(problem.cell.gates) * rate.load
    return rate.row_lanes_loop * products + tiling.part_units * of_unit


def _row_lanes_seconds(problem: Problem, info: DeviceInfo, tiling: Tiling, columns: int, units: int, phases: int = 1) -> float:
    """Of a subgroup's products of its rows with all gates' weights of so many units, block by block, in so many phases."""
    rate, vectors, gates = rates(info), tiling.rows // tiling.lanes, len(problem.cell.gates)
    width, count = block_columns(problem, columns, tiling.lanes), blocks(problem, columns)
    of_block = vectors * width * (_ROW_LANES_STORE + rate.load / 4)
    loads = width / (problem.element.columns_per_load * tiling.lanes)  # of weights
    of_column = count * (width * vectors * rate.row_product + loads * rate.load)
    sums = 2 * (count - 1) * rate.load  # between blocks
    return count * phases * of_block + units * gates * (of_column + sums)


def seconds(problem: Problem, info: DeviceInfo, tiling: Tiling) -> float:
    """Of an execution."""
    total = problem.steps * step_seconds(problem, info, tiling)
    dispatches = dispatches_of_loop = 1 if tiling.schedule == STEPPED else ceil_div(problem.steps, tiling.chunk_steps)
    if not tiling.fused:
        share = _VALID_PAIRS if counts_pairs(problem, tiling) else 1
        total += share * projection_seconds(problem, info, tiling, problem.steps)
        dispatches += ceil_div(problem.steps, tiling.gates_steps)
    if tiling.schedule == PERSISTENT:
        total += dispatches_of_loop * _LATE_START
    if tiling.schedule == PERSISTENT or not tiling.fused:
        total += rates(info).second_worker
    if tiling.own_states:
        dispatches -= 1
    if tiling.resident:
        total += dispatches_of_loop * _resident_start(problem, info, tiling)
        total += _RESIDENT_COMPILING + resident_in_line(problem, tiling) * rates(info).resident_compiling
    total += tiling.row_lanes * _ROW_LANES_COMPILING + tiling.projection_row_lanes * _PROJECTION_COMPILING
    return total + dispatches * rates(info).submission + tiling.rows * tiling.units_at_once * rates(info).compiling


def _dot_seconds(problem: Problem, info: DeviceInfo, tiling: Tiling, loads: int, rows: int) -> float:
    """Of a subgroup's products of `rows` vectors with all gates' weights of its units."""
    rate, element = rates(info), problem.element
    gates = len(problem.cell.gates) * tiling.units_at_once
    sharing = tiling.block_loads if tiling.lanes > 1 else 1  # loads of weights for each of a vector
    vectors = rows * element.vecs_per_load * problem.loop.phases / sharing
    product = (rate.product_alone if rows * tiling.units_at_once == 1 else 0) or rate.product
    product *= _PAIR_PRODUCT if element.pairs else 1
    return loads * ((gates + vectors) * rate.load + gates * rows * element.vecs_per_load * product)


def _spread(info: DeviceInfo, tiling: Tiling, workgroups: int, of_subgroup: float) -> float:
    """Seconds of so many workgroups, each of whose subgroups takes `of_subgroup`."""
    subgroups = ceil_div(tiling.workgroup, info.subgroup_size)
    if info.is_cpu:  # a worker runs whole workgroups
        return ceil_div(workgroups, workers(info)) * subgroups * of_subgroup
    at_once = min(subgroups, _GPU_CORE_SUBGROUPS)
    return ceil_div(workgroups * at_once, workers(info)) * ceil_div(subgroups, at_once) * of_subgroup
