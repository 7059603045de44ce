"""A bound on the loop iterations of an invocation in one dispatch, never too small: some drivers end all loops after a limit.

The loops are those of shaders/, but for the ones that drivers unroll.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..spec.problem import Problem
from ..spec.whole_numbers import ceil_div
from . import gpu_projection
from .gpu_loop import GpuLoop
from .options import FLOW, SEQUENCE, STEPPED
from .profiles import FLOAT64, GPU, LANES, RESIDENT
from .tiling import ARRAY_COLUMNS, MOST_COUNTED_ROWS, KernelTiling, Layout, LoopTiling, ProjectionTiling, Tiling


@dataclass(frozen=True)
class Loops:
    """Iterations of loops, one after the other.

    masked: what they cost where none of a subgroup's invocations runs them. Drivers that mask go through the code all the same.
    """

    run: int = 0
    masked: int = 0

    def __add__(self, other: Loops) -> Loops:
        return Loops(self.run + other.run, self.masked + other.masked)

    def __rmul__(self, count: int) -> Loops:
        return Loops(count * self.run, count * self.masked)


_NONE = Loops()


def _loop(times: int, body: Loops = _NONE) -> Loops:
    """The check that ends it goes through the body once more, masked."""
    return Loops(times * (1 + body.run) + 1 + body.masked, 1 + body.masked)


def of_loop(tiling: Tiling, steps: int) -> int:
    """Of a dispatch of the time loop that runs so many steps."""
    return _once(tiling) + steps * _step(tiling).run


def most_steps(tiling: Tiling, limit: int) -> int:
    """Time steps that a dispatch may run; below 1 where not even one is within the limit."""
    return (limit - _once(tiling)) // _step(tiling).run


def of_projection(projection: ProjectionTiling) -> int:
    """Of a dispatch of the projection: each of its workgroups has one tile."""
    gates = len(projection.problem.cell.gates)
    if projection.kernel == GPU:
        products = _loop(gpu_projection.blocks(projection))
    else:
        products = _multiply(projection, projection.input, gates) + _loop(projection.rows * projection.units_at_once)
    return (_find_samples(projection) + products).run


def _find_samples(projection: ProjectionTiling) -> Loops:
    """The steps of rows that are a tile's, which start where the ones before end; on GPUs an invocation looks for one."""
    batch, rows = MOST_COUNTED_ROWS, projection.rows  # of any batch: tilings are chosen for many
    if projection.kernel == GPU:
        return _loop(batch) if projection.skips_padding else _NONE
    if not projection.skips_padding:
        return _loop(rows)
    return _loop(batch + rows)


def _once(tiling: Tiling) -> int:
    """What does not grow with the steps: the last checks of their loops too."""
    loop = tiling.loop
    padding = loop.hidden.columns - loop.problem.hidden
    loops = _loop(loop.rows, _loop(loop.rows)) + _loop(loop.rows)  # the rows' order, and finished ones dropped
    loops += _state(loop, loop.part_units + padding) + _state(loop, loop.part_units)  # begin and end
    if isinstance(loop, GpuLoop):
        group_rows = loop.tiles_of_group * loop.rows
        loops += _loop(loop.shared_loads) + _loop(group_rows) + _loop(ceil_div(group_rows, loop.column_groups), _loop(0))
    if loop.kernel == RESIDENT:  # each load goes to one of the arrays
        arrays = loop.hidden.columns // ARRAY_COLUMNS[RESIDENT]
        loops += _loop(loop.hidden.loads, _loop(1) + (arrays - 1) * _loop(0))
    return loops.run + loop.spins + _step(tiling).masked


def _state(loop: LoopTiling, units: int) -> Loops:
    """All rows of so many units."""
    return _loop(ceil_div(units, loop.workgroup), _loop(loop.rows))


def _step(tiling: Tiling) -> Loops:
    """An iteration of the loop over steps, and of the one that clears outputs past rows' lengths."""
    loop, problem = tiling.loop, tiling.problem
    if isinstance(loop, GpuLoop) and loop.schedule != SEQUENCE:
        return _exchange_step(loop)
    phases = [_PHASES[loop.kernel](tiling, gates) for gates in _gates_of_phases(problem)]
    step = sum(phases, Loops(1, 1)) + _loop(0)
    if loop.kernel == FLOAT64:  # the phases are one piece of code
        step += _loop(len(phases)) + Loops(phases[0].masked)
    return step + Loops(1, 1) + _state(loop, loop.part_units) if problem.has("SequenceLengthsTensor") else step


def _exchange_step(loop: GpuLoop) -> Loops:
    """Of parts on a GPU. Where lengths end early, an iteration clears the outputs of a step."""
    fetch = Loops(1, 1) if loop.meeting == FLOW else _NONE  # a loop that checks after its body; waiting has a bound of its own
    tiles = _loop(loop.tiles_of_group, fetch + _streamed(loop))
    phases = 1 if loop.schedule == STEPPED else loop.problem.loop.phases
    step = Loops(1, 1) + phases * (tiles + _loop(0)) + _loop(0)
    clear = ceil_div(loop.tiles_of_group * loop.rows, loop.column_groups)
    return step + Loops(clear, 1) if loop.problem.has("SequenceLengthsTensor") else step


def _streamed(loop: GpuLoop) -> Loops:
    """The blocks of streamed weights, but for the last."""
    return _loop(max(0, loop.streamed_loads // loop.stream_loads - 1)) if loop.streamed_loads else _NONE


def _gates_of_phases(problem: Problem) -> list[int]:
    """Gates that each phase multiplies: of two, the second has the last one."""
    gates = len(problem.cell.gates)
    return [gates] if problem.loop.phases == 1 else [gates - 1, 1]


def _resident_phase(tiling: Tiling, gates: int) -> Loops:
    """Products are unrolled."""
    return _loop(tiling.loop.rows, _loop(tiling.loop.units_at_once))


def _lanes_phase(tiling: Tiling, gates: int) -> Loops:
    """A tile is multiplied whole or, with lengths, its first half, by code of its own. Without, drivers may keep it."""
    loop = tiling.loop
    products = _multiply(loop, loop.hidden, gates)
    whole = _loop(1, products) if tiling.problem.has("SequenceLengthsTensor") else products
    products = whole + _loop(0, products)
    if loop.units_at_once > 1:  # drivers unroll what makes large tiles ready, but not all of it
        products += 2 * _loop(loop.units_at_once)
    return _turns(tiling, gates, products + _loop(loop.units_at_once, _loop(loop.rows)))


def _gpu_phase(tiling: Tiling, gates: int) -> Loops:
    """In sequence. A tile's rows are unrolled."""
    assert isinstance(tiling.loop, GpuLoop)
    return _loop(tiling.loop.turns, _streamed(tiling.loop))


def _float64_phase(tiling: Tiling, gates: int) -> Loops:
    """A cell's activations are one piece of code, of which each has an exponential, a logarithm and up to four divisions."""
    activation = _loop(3) + _loop(4) + _loop(7) + 4 * _loop(2)
    activations = _loop(len(tiling.problem.cell.gates) + 1, activation)
    return _turns(tiling, gates, _multiply(tiling.loop, tiling.loop.hidden, gates) + activations)


_PHASES = {RESIDENT: _resident_phase, LANES: _lanes_phase, GPU: _gpu_phase, FLOAT64: _float64_phase}


def _turns(tiling: Tiling, gates: int, turn: Loops) -> Loops:
    """Of a part, each with the input's products where they are fused."""
    loop = tiling.loop
    fused = _NONE if tiling.projection else _multiply(loop, tiling.input, gates)
    return _loop(loop.part_units // loop.turn_units, fused + turn)


def _multiply(tiling: KernelTiling, layout: Layout, gates: int) -> Loops:
    """A tile's rows with the weights of the units that an invocation computes together."""
    if tiling.kernel == FLOAT64:
        return _loop(layout.loads, _loop(gates, _loop(4)))
    block = _NONE if tiling.unrolled else Loops(tiling.block_loads, 1)  # a loop that checks after its body
    return _loop(layout.loads // tiling.block_loads, block)
