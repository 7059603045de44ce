"""The family of kernels for GPUs, shaders/gpu/: its tilings, their costs and dispatches. The input is always projected.

A model of multiply-adds, bytes, waiting and dispatches estimates a time step. It ranks tilings; the tuner measures the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ...operators.checks import ceil_div
from ..dispatches import WORKGROUPS_EVERYWHERE, Dispatch, given
from ..gpus import GpuRates
from ..loop_dispatches import chunks, in_order, loop_constants, place, projected, push_constants
from ..options import PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options
from ..tiling import GATES, GAVE_UP, PACKED_HIDDEN, STATE, Target, Tiling, TimedDispatches, loops, loops_of_phases
from .gpu_loop import GpuLoop, loops_of, resident_workgroups, whole_units
from .gpu_projection import GpuProjection, projections

_TILE_INSTRUCTIONS, _ROW_INSTRUCTIONS = 230, 20  # an invocation's, besides multiply-adds, in compiled code
_TILE_CYCLES, _ROW_CYCLES, _CYCLES_OF_MULTIPLY_ADD = 600, 130, 2.5  # a lone subgroup's, in compiled code
_SYNCHRONIZATION_CYCLES = 150  # cycles of a phase's two workgroup barriers, with the latency of shared memory
_NOT_SIDE_BY_SIDE = 1.0  # seconds that are charged if parts may wait for ones that have not begun
_MOST_STATE_BYTES = 64 * 2**20  # most bytes of h that a persistent chunk stores
_WORKGROUP = 64  # invocations of a workgroup before and after the time loop
_MOST_SLOT_GROUPS = 64  # most workgroups that share the slots of persistent chunks
_BEGIN_BLOCKS = ("HiddenInit", "State", "CellMemInit")
_STEP_BLOCKS = ("Gates", "HiddenWeights", "SequenceLengths", "OutputSequence", "State", "Saved")
_END_BLOCKS = ("SequenceLengths", "OutputSingle", "State", "OutputCellSingle", "GaveUp")


@dataclass(frozen=True)
class GpuTiling(Tiling):
    """A tiling of the kernels for GPUs: a time loop by any schedule, and the fastest projection."""

    loop: GpuLoop
    projection: GpuProjection

    whole_units = staticmethod(whole_units)

    @staticmethod
    def tilings(target: Target) -> Iterator[Tiling]:
        fastest = min(projections(target), default=None,
                      key=lambda projection: projection.seconds(target.problem.steps, target.gpu))
        if fastest is None:
            return
        for schedule in [target.options.schedule] if target.options.schedule else SCHEDULES:
            yield from (GpuTiling(loop, fastest.input, fastest) for loop in loops_of(target, schedule))

    def fallbacks(self, target: Target) -> list[Tiling]:
        alike = replace(target, options=Options(schedule=SEQUENCE, rows=target.options.rows))
        alone = [loop for loop in loops_of(alike, SEQUENCE) if loop.states_bytes <= self.loop.states_bytes]
        stepped = replace(self.loop, schedule=STEPPED, spins=0, counted_together=False, coherent_polls=False)
        return [replace(self, loop=loop) for loop in (*alone, stepped)]

    def fits_side_by_side(self, target: Target) -> bool:
        return self.loop.workgroups <= resident_workgroups(self.loop, target)

    def step_estimate(self, target: Target) -> float:
        """Estimate a step: the longest of the bounds on a tile, what nothing hides, and the time that parts wait."""
        loop, rates, phases = self.loop, target.gpu, self.problem.loop.phases
        # A lone subgroup waits for each result that it needs. A narrower one issues instructions faster
        narrower = loop.subgroup_size / target.info.subgroup_size if loop.subgroup_size else 1
        products = _CYCLES_OF_MULTIPLY_ADD * narrower * _multiply_adds(loop)
        alone = (_TILE_CYCLES + loop.rows * _ROW_CYCLES + products) / rates.clock + phases * _exposed(loop, rates)
        step = loop.tiles_of_group * loop.turns * (_farther(loop, rates) + max(
            _instructions(loop, rates), _shared(loop, rates), _cache(loop, rates), alone))
        if loop.schedule == SEQUENCE:
            return step
        if loop.schedule != PERSISTENT:
            of_step, kept = (_weights(loop, loads) for loads in (loop.group_loads, loop.group_loads - loop.streamed_loads))
            return step + phases * target.profile.rates.dispatch + _kept(loop, rates) + rates.beyond_cache(kept, of_step)
        return step + phases * rates.seen

    def start_seconds(self, target: Target) -> float:
        """Estimate loading the weights that stay, and charge for workgroups that do not run at once: others wait for them."""
        excess = ceil_div(self.loop.workgroups, max(1, resident_workgroups(self.loop, target))) - 1
        waiting = excess * _NOT_SIDE_BY_SIDE if self.loop.schedule == PERSISTENT else 0
        return _kept(self.loop, target.gpu) + waiting

    def projection_estimate(self, target: Target, steps: int) -> float:
        return self.projection.seconds(steps, target.gpu)

    def most_steps(self, target: Target) -> int:
        most, loop, problem = super().most_steps(target), self.loop, self.problem
        of_step = problem.loop.phases * problem.directions * problem.batch * loop.vector_bytes
        return min(most, max(1, _MOST_STATE_BYTES // of_step)) if loop.schedule == PERSISTENT else most

    def loops_once(self) -> int:
        """Bound the loops over kept weights, over the rows of a group, and of waiting in a whole dispatch."""
        loop = self.loop
        group_rows = loop.tiles_of_group * loop.rows
        of_rows = loops(group_rows) + loops(ceil_div(group_rows, loop.column_groups), loops(0))
        return loops(loop.shared_loads) + of_rows + loop.spins

    def loops_of_step(self) -> int:
        """Bound a step, in which a tile's rows are unrolled. If parts exchange h, it also clears outputs past rows' lengths."""
        loop, phases = self.loop, self.problem.loop.phases
        streamed = 0  # iterations over the blocks of streamed weights, except the last
        if loop.streamed_loads:
            streamed = loops(max(0, loop.streamed_loads // loop.stream_loads - 1))
        if loop.schedule == SEQUENCE:
            return loops_of_phases(loop, [loops(loop.turns, streamed)] * phases)
        fetch = 1 if loop.schedule == PERSISTENT else 0  # the polling loop checks after its body; waiting is bounded separately
        tiles = loops(loop.tiles_of_group, fetch + streamed)
        step = 1 + (1 if loop.schedule == STEPPED else phases) * (tiles + loops(0)) + loops(0)
        clear = ceil_div(loop.tiles_of_group * loop.rows, loop.column_groups)
        return step + clear if self.problem.has("SequenceLengthsTensor") else step

    def loops_of_projection(self) -> int:
        """Bound a projection's tile: an invocation searches for one sample, in any batch, and multiplies blocks."""
        find = loops(self.projection.counted_rows) if self.projection.skips_padding else 0
        return find + loops(self.projection.blocks)

    def dispatches(self, target: Target) -> TimedDispatches:
        return in_order(target, self) if self.loop.schedule == SEQUENCE else _exchanging(target, self)


# The model of costs, for one turn of a tile in all workgroups

def _instructions(loop: GpuLoop, rates: GpuRates) -> float:
    """Estimate the seconds in which a unit issues the instructions of all its workgroups."""
    products = loop.workgroup * _multiply_adds(loop)
    others = loop.workgroup * (_TILE_INSTRUCTIONS + loop.rows * _ROW_INSTRUCTIONS)
    return ceil_div(loop.workgroups, rates.units) * (products + others) / (rates.lanes * rates.clock)


def _shared(loop: GpuLoop, rates: GpuRates) -> float:
    """Estimate the seconds for the bytes from shared memory."""
    vectors = loop.group_loads * loop.problem.element.vecs_per_load * loop.rows
    size = loop.workgroup * 16 * (vectors + loop.shared_loads * loop.problem.loop.products)
    return ceil_div(loop.workgroups, rates.units) * size / (rates.shared_rate * rates.clock)


def _cache(loop: GpuLoop, rates: GpuRates) -> float:
    """Estimate the seconds for the bytes from the second-level cache: streamed weights, h and the input's part."""
    streamed = loop.tiles * _weights(loop, loop.streamed_loads) / loop.turns
    return (streamed + _fetched(loop) + loop.workgroups * loop.rows * loop.turn_units * 16) / rates.cache_rate


def _fetched(loop: GpuLoop) -> int:
    """Count the bytes of h that all workgroups load in a phase."""
    return 0 if loop.schedule == SEQUENCE else loop.workgroups * loop.rows * loop.vector_bytes


def _farther(loop: GpuLoop, rates: GpuRates) -> float:
    """Estimate how many seconds more a tile's streamed weights and input's part take if that cache does not hold them all.

    Nothing hides these: at the barriers of a turn, no loads are under way. Weights come once for all tiles of a turn.
    """
    x = loop.workgroups * loop.rows * loop.turn_units * 16
    all_x = loop.problem.steps * x * loop.tiles_of_group * loop.turns
    of_step = _weights(loop, loop.group_loads if loop.schedule == STEPPED else loop.streamed_loads)
    return rates.beyond_cache(_weights(loop, loop.streamed_loads) / loop.turns, of_step) + rates.beyond_cache(x, all_x)


def _exposed(loop: GpuLoop, rates: GpuRates) -> float:
    """Estimate the waiting that nothing hides, in a phase: for h, which all load at once, or for weights, and for barriers."""
    waits = loop.schedule != SEQUENCE or loop.streamed_loads > 0
    return waits * max(rates.latency, _fetched(loop) / rates.cache_rate) + _SYNCHRONIZATION_CYCLES / rates.clock


def _kept(loop: GpuLoop, rates: GpuRates) -> float:
    """Estimate the seconds of loading the weights that stay, in all workgroups, from the second-level cache."""
    return rates.latency + loop.tiles * _weights(loop, loop.group_loads - loop.streamed_loads) / rates.cache_rate


def _weights(loop: GpuLoop, loads: int) -> int:
    """Count the bytes of so many loads of each gate in all invocations that share a tile."""
    return loop.problem.directions * loop.parts * loop.turns * loop.workgroup * loads * loop.problem.loop.products * 16


def _multiply_adds(loop: GpuLoop) -> int:
    """Count the multiply-adds of an invocation for a turn."""
    return loop.group_loads * loop.problem.element.columns_per_load * loop.sum_registers


# Dispatches

def _exchanging(target: Target, tiling: GpuTiling) -> TimedDispatches:
    """Make the dispatches of an execution whose parts exchange h: gpu/begin, then steps or chunks of steps, then gpu/end.

    The gpu/begin of a persistent chunk finds the h of the chunk before in its last slot.
    """
    loop, problem, steps, most = tiling.loop, tiling.problem, tiling.problem.steps, tiling.projection.chunk_steps
    is_persistent, phases, directions = loop.schedule == PERSISTENT, problem.loop.phases, problem.directions
    push, run = push_constants(tiling), _runner(tiling)
    project = projected(tiling, push)
    kernel = f"{loop.kernel}_{loop.schedule}{'_coherent' if loop.coherent_polls else ''}"
    blocks, written = (*_STEP_BLOCKS, *["GaveUp"] * is_persistent), (STATE, *[GAVE_UP] * is_persistent)
    in_dispatch = 1 if is_persistent else phases  # how many phases have a dispatch of their own
    of_dispatch, last_slot = tiling.step_seconds(target) / in_dispatch, 0

    def begin(first: int, last: int, last_slot: int, gates_step: int) -> Dispatch:
        vecs = directions * problem.batch * loop.vector_bytes // 16
        slots = phases * (last - first if is_persistent else 1)
        return run("gpu/begin", _BEGIN_BLOCKS, (STATE,), (_groups(vecs), min(slots, _MOST_SLOT_GROUPS), 1),
                   push | place(first, last, 0, gates_step, last_slot))

    yield begin(0, min(loop.chunk_steps, most, steps), 0, 0), None
    for start, end in chunks(0, steps, most):
        yield project(start, end), tiling.projection_seconds(target, end - start)
        for first, last in chunks(start, end, loop.chunk_steps):
            if is_persistent and first > 0:
                yield begin(first, last, last_slot, start), 0.0
            for phase in range(in_dispatch):
                yield run(kernel, blocks, (*written, "OutputSequenceTensor"), (loop.tiles, directions, loop.parts),
                          push | place(first, last, phase, start)), (last - first) * of_dispatch
            last_slot = last - first
    units = directions * problem.batch * problem.hidden
    finish = run("gpu/end", _END_BLOCKS, ("OutputSingleTensor", "OutputCellSingleTensor"), (_groups(units), 1, 1),
                 push | place(first, last, 0, 0))
    if finish.writes:
        yield finish, None


def _runner(tiling: GpuTiling) -> Callable[..., Dispatch]:
    """Return a function that makes a dispatch of a kernel, its GLSL blocks, written buffers, workgroups and push constants.

    It leaves out tensors that the problem does not have.
    """
    problem, constants = tiling.problem, loop_constants(tiling)
    # The kernels before and after the time loop have the same constants for all of its tilings, so they are compiled once
    beside = constants | {"WORKGROUP": _WORKGROUP, "ROWS": 1, "PART_UNITS": 1}
    buffers = {"State": STATE, "GaveUp": GAVE_UP, "Gates": GATES, "HiddenWeights": PACKED_HIDDEN,
               **given(problem, *problem.outputs, "SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor",
                       "SavedTensor")}

    def run(kernel: str, blocks: tuple[str, ...], writes: tuple[str, ...], groups: tuple[int, int, int], push: dict[str, int]
            ) -> Dispatch:
        in_loop = "Gates" in blocks
        bound = {block: buffers[block] for block in blocks if block in buffers}
        written = tuple(name for name in writes if name in buffers.values())
        return Dispatch(kernel, constants if in_loop else beside, bound, written, groups, push,
                        subgroup_size=tiling.loop.subgroup_size if in_loop else 0)

    return run


def _groups(invocations: int) -> int:
    return min(ceil_div(invocations, _WORKGROUP), WORKGROUPS_EVERYWHERE)
