"""How a time loop is cut: rows, units, parts and chunks, and the sizes that follow. Pure; `schedule` chooses among tilings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div, round_up
from .device_info import DeviceInfo
from .options import PERSISTENT, SEQUENCE

PACKED_INPUT, PACKED_HIDDEN, GATES, STATE = "packed input weights", "packed recurrent weights", "gates", "state"

# llvmpipe ends all loops of an invocation, silently, after 65535 iterations of them together.
_MOST_LOOP_ITERATIONS = {"llvmpipe": 60000}
# Bound on a persistent dispatch's slow waiting (shaders/lib/grid.glsl), in its loop's iterations: tens of milliseconds
_SPINS = {"llvmpipe": 12000}
_OTHER_SPINS = 100_000
_PAIR_ITERATIONS = 160  # of the loops in all activations of a unit, LSTM's five being the most
_PAIR_DOT_ITERATIONS = 5  # of one over four columns
_QUICK_SPINS = 32       # of a barrier there
_ARRAY_COLUMNS, _MOST_BLOCK_COLUMNS = 16, 256  # of one of the 16 arrays in shaders/lib/row_lanes.glsl, and of all
_RESIDENT_COLUMNS, _RESIDENT_ARRAYS = 32, 16  # of an array in shaders/lib/resident.glsl, and how many there are
_MOST_RESIDENT_IN_LINE = 2048  # products in line there
_RESIDENT_SHARED_SLOTS = 2
_GPU_BLOCK_VECS = 4  # of weights for each gate: loads under way at once, and registers that they take
_MOST_COUNTED_ROWS = 128  # so that counting takes little
# Of a block, where H and I are at most so many and there are fewer pairs of a step and a row
_QUICK_BLOCK_COLUMNS, _FEW_COLUMNS, _MANY_PAIRS = 128, 512, 1000


@dataclass(frozen=True)
class Tiling:
    """One way to run a problem.

    rows: batch rows of a tile, which share every loaded weight. units_at_once: units that an invocation computes together.
    row_lanes: a subgroup's invocations hold rows, not units (shaders/lib/row_lanes.glsl), in the loop; projection_row_lanes:
    in input_projection. resident: recurrent weights stay in private memory (shaders/lib/resident.glsl). parts: workgroups
    that share a tile's units. spins: bound on the waiting of persistent ones. own_states: each part has all of the state, and
    an only step with one phase is one dispatch (stepped). block_loads: loads of weights for a gate that belong together;
    in_line: they stand in line on a CPU too, not in a loop. projection_*: of a workgroup of input_projection. chunk_steps:
    most time steps of a dispatch of the loop. gates_steps: of input_projection, whose result is `gates`. units: H rounded up
    to whole tiles. *_loads: loads of weights for a row of X or h, whole blocks of block_loads, or of columns with row_lanes,
    or whole arrays where they are resident.
    """

    schedule: str
    lanes: int
    fused: bool
    rows: int
    units_at_once: int
    parts: int
    workgroup: int
    block_loads: int
    in_line: bool
    units: int
    input_loads: int
    hidden_loads: int
    spins: int = 0
    shared_state: bool = False
    own_states: bool = False
    row_lanes: bool = False
    resident: bool = False
    projection_row_lanes: bool = False
    projection_rows: int = 1
    projection_units: int = 0
    chunk_steps: int = 1
    gates_steps: int = 0

    @property
    def part_units(self) -> int:
        """Units of a part, whole tiles."""
        tile = self.workgroup * self.units_at_once
        return ceil_div(self.units // tile, self.parts) * tile

    @property
    def of_projection(self) -> Tiling:
        """What holds for input_projection. A plan and its fallback share it, and so its pipeline."""
        tiling = replace(self.in_one_part, shared_state=False, resident=False, row_lanes=self.projection_row_lanes,
                         rows=self.projection_rows)
        if self.projection_row_lanes:
            return replace(tiling, workgroup=self.lanes, units_at_once=1)
        if self.resident:
            return replace(tiling, workgroup=self.lanes, units_at_once=self.projection_units // self.lanes)
        return replace(tiling, workgroup=self.projection_units // self.units_at_once)

    @property
    def in_one_part(self) -> Tiling:
        """With the same packed weights."""
        workgroup = self.workgroup * self.parts if self.resident else self.workgroup
        return replace(self, schedule=SEQUENCE, parts=1, spins=0, workgroup=workgroup)

    def tiles(self, problem: Problem) -> int:
        return ceil_div(problem.batch, self.rows)

    def internal(self, problem: Problem) -> dict[str, int]:
        """Bytes of the buffers that are not the user's."""
        gates, real4 = len(problem.cell.gates), problem.element.real4_bytes
        has_peephole = problem.has("PeepholeTensor")
        states = problem.directions * self.tiles(problem) * (self.parts if self.own_states else 1)
        of_tile = state_bytes(problem, self.rows, self.hidden_loads) + sums_bytes(problem, self)
        sizes = {
            PACKED_INPUT: problem.directions * self.units * (self.input_loads * gates + 1) * real4,
            PACKED_HIDDEN: problem.directions * self.units * (self.hidden_loads * gates + 1 + has_peephole) * real4,
            STATE: states * of_tile + self.grid_words(problem) * 4,
        }
        if not self.fused:
            sizes[GATES] = self.gates_steps * gates_bytes(problem, self)
        return sizes

    def grid_words(self, problem: Problem) -> int:
        """Words behind the states by which the parts of a persistent tile meet; the first says that they did not."""
        return 1 + 2 * problem.directions * self.tiles(problem) if self.schedule == PERSISTENT else 0


def gates_bytes(problem: Problem, tiling: Tiling) -> int:
    """Bytes of `gates` for one time step."""
    of_unit = problem.batch
    if tiling.row_lanes:
        of_unit = tiling.tiles(problem) * len(problem.cell.gates) * tiling.lanes
    return problem.directions * tiling.units * of_unit * problem.element.real4_bytes


def projection_tiles(problem: Problem, tiling: Tiling, steps: int) -> int:
    """Tiles of input_projection for so many time steps."""
    return steps * tiling.tiles(problem) if tiling.row_lanes else ceil_div(steps * problem.batch, tiling.projection_rows)


def state_bytes(problem: Problem, rows: int, hidden_loads: int) -> int:
    """Bytes of a tile's state."""
    return problem.loop.slots * _slot_bytes(problem, rows, hidden_loads)


def shared_bytes(problem: Problem, tiling: Tiling) -> int:
    """Bytes of it that may be in shared memory (shaders/lib/state.glsl)."""
    slots = min(problem.loop.slots, _RESIDENT_SHARED_SLOTS) if tiling.resident else problem.loop.slots
    return slots * _slot_bytes(problem, tiling.rows, tiling.hidden_loads)


def _slot_bytes(problem: Problem, rows: int, hidden_loads: int) -> int:
    return rows * hidden_loads * problem.element.vecs_per_load * problem.element.real4_bytes


def hidden_columns(problem: Problem, tiling: Tiling) -> int:
    """Of a row of h, padded to whole loads."""
    return tiling.hidden_loads * problem.element.columns_per_load


def sums_bytes(problem: Problem, tiling: Tiling) -> int:
    """Bytes behind it of the sums between blocks, in row_lanes."""
    columns = hidden_columns(problem, tiling)
    return columns * len(problem.cell.gates) * tiling.lanes * problem.element.real4_bytes if tiling.row_lanes else 0


def loads_per_block(problem: Problem, info: DeviceInfo, lanes: int) -> int:
    vecs = lanes if lanes > 1 or info.is_cpu or problem.element.pairs else _GPU_BLOCK_VECS
    return max(1, vecs // problem.element.vecs_per_load)


def resident_loads(problem: Problem) -> int:
    """Loads of recurrent weights for a row of h, whole arrays."""
    return round_up(problem.hidden, _RESIDENT_COLUMNS) // problem.element.columns_per_load


def loads(problem: Problem, info: DeviceInfo, columns: int, lanes: int, row_lanes: bool = False) -> int:
    """Loads of weights for a row of so many columns."""
    if row_lanes:
        return blocks(problem, columns) * block_columns(problem, columns, lanes) // problem.element.columns_per_load
    return round_up(ceil_div(columns, problem.element.columns_per_load), loads_per_block(problem, info, lanes))


def blocks(problem: Problem, columns: int) -> int:
    """Blocks of columns that the row_lanes kernels multiply in line. Larger ones compile for longer."""
    is_quick = max(columns, problem.hidden) <= _FEW_COLUMNS and problem.steps * problem.batch < _MANY_PAIRS
    most = _QUICK_BLOCK_COLUMNS if is_quick else _MOST_BLOCK_COLUMNS
    return ceil_div(columns, most)


def block_columns(problem: Problem, columns: int, lanes: int) -> int:
    """Columns of such a block: whole loads of a subgroup, and whole arrays."""
    of_loads = max(problem.element.columns_per_load * lanes, _ARRAY_COLUMNS)
    return round_up(ceil_div(columns, blocks(problem, columns)), of_loads)


def together(problem: Problem, tiling: Tiling, columns: int) -> int:
    """Units whose packed weights lie together, or, with row_lanes, loads: what a subgroup reads one after the other."""
    if tiling.row_lanes:
        return block_columns(problem, columns, tiling.lanes) // problem.element.columns_per_load
    return tiling.lanes if tiling.lanes > 1 else tiling.units


def most_iterations(info: DeviceInfo) -> int:
    """Loop iterations that an invocation may have in one dispatch."""
    return _MOST_LOOP_ITERATIONS.get(info.driver, 2**31)


def most_spins(info: DeviceInfo) -> int:
    """Iterations of waiting that a persistent dispatch may spend."""
    return _SPINS.get(info.driver, _OTHER_SPINS)


def counts_pairs(problem: Problem, tiling: Tiling) -> bool:
    """Whether input_projection takes only the steps that rows have. Its tiles look for theirs in the lengths, row by row."""
    return problem.has("SequenceLengthsTensor") and not tiling.row_lanes and problem.batch <= _MOST_COUNTED_ROWS


def projection_iterations(problem: Problem, tiling: Tiling) -> int:
    vectors = tiling.projection_rows // tiling.lanes
    finds = vectors + 1 if tiling.projection_row_lanes else 1
    found = tiling.projection_rows + 1 + (finds * (problem.batch + 1) if counts_pairs(problem, tiling) else 0)
    if tiling.projection_row_lanes:
        products = _row_lanes_iterations(problem, tiling.of_projection, problem.input_size, tiling.projection_units)
        stores = 0 if tiling.row_lanes else tiling.projection_units * (vectors + 1)
        return found + products + blocks(problem, problem.input_size) * stores
    stores = tiling.projection_rows * tiling.units_at_once + 1
    return found + _dot_iterations(problem, tiling, tiling.input_loads, tiling.projection_rows) + stores


def resident_in_line(problem: Problem, tiling: Tiling) -> int:
    """Products of weights that stay in private memory, all of them in line."""
    return hidden_columns(problem, tiling) * tiling.units_at_once * len(problem.cell.gates)


def resident_fits(problem: Problem, tiling: Tiling) -> bool:
    """Whether there are arrays enough, and compilers need not take long."""
    arrays = hidden_columns(problem, tiling) // _RESIDENT_COLUMNS
    return arrays <= _RESIDENT_ARRAYS and resident_in_line(problem, tiling) <= _MOST_RESIDENT_IN_LINE


def step_iterations(problem: Problem, tiling: Tiling) -> int:
    """Loop iterations of an invocation in a time step, at most. A loop's last check counts too."""
    clears = _row_iterations(tiling, tiling.part_units) if problem.has("SequenceLengthsTensor") else 0
    waits = _QUICK_SPINS + 2 if tiling.schedule == PERSISTENT else 0
    of_phase = _phase_iterations(problem, tiling) + waits + 2
    return problem.loop.phases * of_phase + clears + 2


def _phase_iterations(problem: Problem, tiling: Tiling) -> int:
    if tiling.row_lanes:
        return _row_lanes_iterations(problem, tiling, problem.hidden, tiling.part_units)
    if tiling.resident:
        return tiling.rows * (tiling.units_at_once + 2) + 1
    of_tile = tiling.units_at_once * (tiling.rows + 1) + 1 if tiling.lanes > 1 or problem.element.pairs else 0
    if problem.element.pairs:
        of_tile += tiling.units_at_once * tiling.rows * _PAIR_ITERATIONS
    of_units = _dot_iterations(problem, tiling, tiling.hidden_loads, tiling.rows) + of_tile + 6
    if tiling.fused:
        of_units += _dot_iterations(problem, tiling, tiling.input_loads, tiling.rows)
    return tiling.part_units // (tiling.workgroup * tiling.units_at_once) * of_units


def _row_lanes_iterations(problem: Problem, tiling: Tiling, columns: int, units: int) -> int:
    vectors = tiling.rows // tiling.lanes
    of_load = block_columns(problem, columns, tiling.lanes) // _ARRAY_COLUMNS * (vectors * (_ARRAY_COLUMNS // 4 * 6 + 2) + 1)
    of_unit = len(problem.cell.gates) + 4
    return blocks(problem, columns) * (of_load + units * of_unit + 2) + units * (vectors + 2) + 1


def chunk_iterations(problem: Problem, tiling: Tiling) -> int:
    """Loop iterations of an invocation in a dispatch, beside the steps': the state's begin and end, and waiting."""
    begun = problem.hidden if tiling.own_states else tiling.part_units
    padded = begun + hidden_columns(problem, tiling) - problem.hidden
    rows = (tiling.rows + 2) ** 2  # their order
    weights = tiling.hidden_loads * (_RESIDENT_ARRAYS + 2) + 1 if tiling.resident else 0
    return 2 * _row_iterations(tiling, padded) + rows + tiling.spins + weights


def _row_iterations(tiling: Tiling, units: int) -> int:
    return ceil_div(units, tiling.workgroup) * (tiling.rows + 2) + 1


def _dot_iterations(problem: Problem, tiling: Tiling, count: int, rows: int) -> int:
    if problem.element.pairs:  # the loop in add_dot (shaders/lib/pairs.glsl) keeps those around it from being in line, or all
        gates = len(problem.cell.gates)
        weights = tiling.units_at_once * (gates + 2) + 1
        products = tiling.units_at_once * (gates * (_PAIR_DOT_ITERATIONS + 1) + 2) + 2
        return count * (2 * weights + rows * (products + _PAIR_DOT_ITERATIONS) + 7) + 1
    of_block = 1 if tiling.lanes == 1 or tiling.in_line else 2 + tiling.block_loads
    return count // tiling.block_loads * of_block + 1
