"""A bound on the loop iterations of an invocation in one dispatch, never too small. Only a driver with a limit cares.

Only loops that drivers may leave as loops count. One costs an iteration more than it runs, for its last check.
"""

from __future__ import annotations

from ..spec.whole_numbers import ceil_div
from .options import PERSISTENT
from .profiles import FLOAT64, GPU, LANES, PRIVATE_ARRAYS, RESIDENT, ROWS
from .tiling import ARRAY_COLUMNS, QUICK_SPINS, KernelTiling, Layout, LoopTiling, ProjectionTiling, Tiling

_FLOAT64_ACTIVATIONS = 160  # of the loops in all activations of a unit: the LSTM's five have most


def of_loop(tiling: Tiling, steps: int) -> int:
    """Of a dispatch of the time loop that runs so many steps."""
    return _once(tiling.loop) + steps * _step(tiling)


def most_steps(tiling: Tiling, limit: int) -> int:
    """Time steps that a dispatch may run; below 1 where not even one is within the limit."""
    return (limit - _once(tiling.loop)) // _step(tiling)


def of_projection(projection: ProjectionTiling) -> int:
    """Of a dispatch of the projection: each of its workgroups has one tile."""
    searches = 0
    if projection.skips_padding:  # for the first step of a tile, or for one of each row that an invocation holds
        searches = (projection.rows_of_lane + 1 if projection.kernel == ROWS else 1) * (projection.problem.batch + 1)
    found = projection.rows + 1 + searches
    if projection.kernel == ROWS:
        stores = 0 if projection.by_tile else projection.group_units * (projection.rows_of_lane + 1)
        return found + _rows_products(projection, projection.input, projection.group_units) + projection.input.blocks * stores
    stores = projection.rows * projection.units_at_once + 1
    return found + _products(projection, projection.input) + stores


def _once(loop: LoopTiling) -> int:
    """What does not depend on the number of steps: the state's begin and end, the rows' order, waiting, resident weights."""
    begun = loop.problem.hidden if loop.own_states else loop.part_units
    padding = loop.hidden.columns - loop.problem.hidden
    order = (loop.rows + 2) ** 2
    weights = loop.hidden.loads * (PRIVATE_ARRAYS + 2) + 1 if loop.kernel == RESIDENT else 0
    return 2 * _rows_of_state(loop, begun + padding) + order + loop.spins + weights


def _rows_of_state(loop: LoopTiling, units: int) -> int:
    """Of a loop over units, and in it one over a tile's rows."""
    return ceil_div(units, loop.workgroup) * (loop.rows + 2) + 1


def _step(tiling: Tiling) -> int:
    loop, problem = tiling.loop, tiling.problem
    phase = _PHASES[loop.kernel](tiling)
    meeting = QUICK_SPINS + 2 if loop.schedule == PERSISTENT else 0
    cleared = _rows_of_state(loop, loop.part_units) if problem.has("SequenceLengthsTensor") else 0
    return problem.loop.phases * (phase + meeting + 2) + cleared + 2


def _rows_phase(tiling: Tiling) -> int:
    return _rows_products(tiling.loop, tiling.loop.hidden, tiling.loop.part_units)


def _resident_phase(tiling: Tiling) -> int:
    """Products are unrolled."""
    return tiling.loop.rows * (tiling.loop.units_at_once + 2) + 1


def _lanes_phase(tiling: Tiling) -> int:
    loop = tiling.loop
    return _turns(tiling, loop.units_at_once * (loop.rows + 1) + 1)


def _gpu_phase(tiling: Tiling) -> int:
    """A tile's rows are unrolled."""
    return _turns(tiling, 0)


def _float64_phase(tiling: Tiling) -> int:
    return _turns(tiling, 3 + _FLOAT64_ACTIVATIONS)


_PHASES = {ROWS: _rows_phase, RESIDENT: _resident_phase, LANES: _lanes_phase, GPU: _gpu_phase, FLOAT64: _float64_phase}


def _turns(tiling: Tiling, finishes: int) -> int:
    """Of a part's turns, each with its products and so many iterations to finish its units."""
    loop = tiling.loop
    products = _products(loop, loop.hidden) + (0 if tiling.projection else _products(loop, tiling.input))
    return loop.part_units // loop.turn_units * (products + finishes + 6)


def _products(tiling: KernelTiling, layout: Layout) -> int:
    """Of a tile's rows with the weights of the units that an invocation computes together."""
    if tiling.kernel == FLOAT64:
        return layout.loads * (8 * len(tiling.problem.cell.gates) + 22) + 1
    of_block = 1 if tiling.kernel == GPU or tiling.unrolled else 2 + tiling.block_loads
    return layout.loads // tiling.block_loads * of_block + 1


def _rows_products(tiling: KernelTiling, layout: Layout, units: int) -> int:
    """The same in the rows kernels, of so many units: the columns of each block, then its products, unit by unit."""
    columns = ARRAY_COLUMNS[ROWS]
    of_load = layout.block_columns // columns * (tiling.rows_of_lane * (columns // 4 * 6 + 2) + 1)
    of_unit = len(tiling.problem.cell.gates) + 4
    return layout.blocks * (of_load + units * of_unit + 2) + units * (tiling.rows_of_lane + 2) + 1
