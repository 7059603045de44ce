"""The family of kernels for GPUs, shaders/gpu/: tilings, what they take, and their dispatches. The input is always projected.

What a time step takes is a model of multiply-adds, bytes, waiting and dispatches. It ranks tilings; a GPU's tuner measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ...operators.whole_numbers import ceil_div
from ..dispatches import WORKGROUPS_EVERYWHERE, Dispatch, given
from ..gpus import GpuRates
from ..loop_dispatches import chunks, in_order, loop_constants, projected, push_constants
from ..options import FLOW, PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options
from ..tiling import (
    GATES,
    MEETING,
    MOST_COUNTED_ROWS,
    PACKED_HIDDEN,
    STATE,
    Target,
    Tiling,
    TimedDispatches,
    loops,
    loops_of_phases,
)
from .gpu_loop import GpuLoop, loops_of, resident_workgroups, whole_units
from .gpu_projection import GpuProjection, projections

_TILE_INSTRUCTIONS, _ROW_INSTRUCTIONS = 230, 20  # of an invocation, beside its multiply-adds, as compilers make it
_TILE_CYCLES, _ROW_CYCLES, _CYCLES_OF_MULTIPLY_ADD = 600, 130, 2.5  # of a subgroup by itself, likewise
_SYNCHRONIZATION_CYCLES = 150  # of a phase: two barriers of the workgroup, with the latency of shared memory
_NOT_SIDE_BY_SIDE = 1.0  # seconds: parts that may wait for ones that have not begun
_WORKGROUP = 64  # of what comes before and after the loop
_MOST_SLOT_GROUPS = 64  # workgroups that share the slots of flow
_BEGIN_BLOCKS = ("HiddenInit", "State", "CellMemInit", "Meeting")
_STEP_BLOCKS = ("Gates", "HiddenWeights", "SequenceLengths", "OutputSequence", "State")
_END_BLOCKS = ("SequenceLengths", "OutputSingle", "State", "OutputCellSingle", "Meeting")


@dataclass(frozen=True)
class GpuTiling(Tiling):
    """A time loop by any schedule, and the fastest projection."""

    loop: GpuLoop
    projection: GpuProjection

    @staticmethod
    def runs_on(target: Target) -> bool:
        return target.lanes == 1 and not target.problem.element.pairs

    @staticmethod
    def whole_units(target: Target) -> int:
        return whole_units(target)

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
        stepped = replace(self.loop, schedule=STEPPED, meeting=None, spins=0, counted_together=False, coherent_flow=False)
        return [replace(self, loop=loop) for loop in (*alone, stepped)]

    def fits_side_by_side(self, target: Target) -> bool:
        return self.loop.workgroups <= resident_workgroups(self.loop, target)

    def step_estimate(self, target: Target) -> float:
        """The longest of what may bound a tile, and what parts wait for each other."""
        loop, rates, phases = self.loop, target.gpu, self.problem.loop.phases
        # A subgroup by itself waits for each result that it needs. A narrower one issues faster
        narrower = loop.subgroup_size / target.info.subgroup_size if loop.subgroup_size else 1
        products = _CYCLES_OF_MULTIPLY_ADD * narrower * _multiply_adds(loop)
        alone = (_TILE_CYCLES + loop.rows * _ROW_CYCLES + products) / rates.clock + phases * _exposed(loop, rates)
        step = loop.tiles_of_group * loop.turns * max(
            _instructions(loop, rates), _shared(loop, rates), _cache(loop, rates), alone)
        if loop.schedule == SEQUENCE:
            return step
        if loop.schedule != PERSISTENT:
            return step + phases * target.profile.rates.dispatch + _kept(loop, rates)
        return step + phases * (rates.seen if loop.meeting == FLOW else rates.meeting)

    def start_seconds(self, target: Target) -> float:
        """Weights are loaded. Workgroups that do not fit would deadlock with those that wait for them."""
        excess = ceil_div(self.loop.workgroups, max(1, resident_workgroups(self.loop, target))) - 1
        waiting = excess * _NOT_SIDE_BY_SIDE if self.loop.schedule == PERSISTENT else 0
        return _kept(self.loop, target.gpu) + waiting

    def projection_estimate(self, target: Target, steps: int) -> float:
        return self.projection.seconds(steps, target.gpu)

    def most_steps(self, target: Target) -> int:
        most = super().most_steps(target)
        return min(most, self.loop.most_flow_steps) if self.loop.meeting == FLOW else most

    def loops_once(self) -> int:
        """What is kept, the rows of a group, and waiting, which is bounded in all of a dispatch."""
        loop = self.loop
        group_rows = loop.tiles_of_group * loop.rows
        of_rows = loops(group_rows) + loops(ceil_div(group_rows, loop.column_groups), loops(0))
        return loops(loop.shared_loads) + of_rows + loop.spins

    def loops_of_step(self) -> int:
        """A tile's rows are unrolled. Where parts exchange h and lengths end early, an iteration clears a step's outputs."""
        loop, phases = self.loop, self.problem.loop.phases
        streamed = 0  # the blocks of weights, but for the last
        if loop.streamed_loads:
            streamed = loops(max(0, loop.streamed_loads // loop.stream_loads - 1))
        if loop.schedule == SEQUENCE:
            return loops_of_phases(loop, [loops(loop.turns, streamed)] * phases)
        fetch = 1 if loop.meeting == FLOW else 0  # it checks after its body; waiting has a bound of its own
        tiles = loops(loop.tiles_of_group, fetch + streamed)
        step = 1 + (1 if loop.schedule == STEPPED else phases) * (tiles + loops(0)) + loops(0)
        clear = ceil_div(loop.tiles_of_group * loop.rows, loop.column_groups)
        return step + clear if self.problem.has("SequenceLengthsTensor") else step

    def loops_of_projection(self) -> int:
        """An invocation looks for one sample: of any batch, as tilings are chosen for many."""
        find = loops(MOST_COUNTED_ROWS) if self.projection.skips_padding else 0
        return find + loops(self.projection.blocks)

    def dispatches(self, target: Target) -> TimedDispatches:
        return in_order(target, self) if self.loop.schedule == SEQUENCE else _exchanging(target, self)


# The model of costs: of one turn of a tile, in all workgroups

def _instructions(loop: GpuLoop, rates: GpuRates) -> float:
    """Seconds that a unit, which has several workgroups, issues instructions."""
    products = loop.workgroup * _multiply_adds(loop)
    others = loop.workgroup * (_TILE_INSTRUCTIONS + loop.rows * _ROW_INSTRUCTIONS)
    return _of_unit(loop, rates) * (products + others) / (rates.lanes * rates.clock)


def _shared(loop: GpuLoop, rates: GpuRates) -> float:
    """Seconds for the bytes from shared memory."""
    vectors = loop.group_loads * loop.problem.element.vecs_per_load * loop.rows
    size = loop.workgroup * 16 * (vectors + loop.shared_loads * len(loop.problem.cell.gates))
    return _of_unit(loop, rates) * size / (rates.shared_rate * rates.clock)


def _cache(loop: GpuLoop, rates: GpuRates) -> float:
    """Seconds for the bytes from the second-level cache: streamed weights, h and the input's part."""
    streamed = loop.workgroup * loop.streamed_loads * len(loop.problem.cell.gates) * 16
    h = 0 if loop.schedule == SEQUENCE else loop.rows * loop.vector_bytes
    return loop.workgroups * (streamed + h + loop.rows * loop.turn_units * 16) / rates.cache_rate


def _exposed(loop: GpuLoop, rates: GpuRates) -> float:
    """Seconds of waiting that nothing hides, in a phase: for h or the first streamed weights, and for its barriers."""
    waits = loop.schedule != SEQUENCE or loop.streamed_loads > 0
    return waits * rates.latency + _SYNCHRONIZATION_CYCLES / rates.clock


def _kept(loop: GpuLoop, rates: GpuRates) -> float:
    """Seconds of loading the weights that stay, in all workgroups."""
    loads = (loop.register_loads + loop.shared_loads) * len(loop.problem.cell.gates)
    return rates.latency + loop.workgroups * loop.workgroup * loads * 16 / rates.cache_rate


def _of_unit(loop: GpuLoop, rates: GpuRates) -> int:
    return ceil_div(loop.workgroups, rates.units)


def _multiply_adds(loop: GpuLoop) -> int:
    """Multiply-adds of an invocation."""
    return loop.group_loads * loop.problem.element.columns_per_load * loop.sum_registers


# Dispatches

@dataclass(frozen=True)
class _Piece:
    """A dispatch.

    last_slot: in flow, where the chunk before left its last h. blocks: the kernel's buffers, by their GLSL blocks; outputs:
    which of them are outputs of the operator that it writes. written: names of the other buffers that it writes.
    """

    kernel: str
    first_step: int
    last_step: int
    groups: tuple[int, int, int]
    blocks: tuple[str, ...]
    written: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    phase: int = 0
    last_slot: int = 0

    @property
    def in_loop(self) -> bool:
        return "Gates" in self.blocks


def _exchanging(target: Target, tiling: GpuTiling) -> TimedDispatches:
    """All dispatches of an execution whose parts exchange h: steps, or chunks of steps, between the beginning of the state and
    its end.
    """
    loop, projection, steps, push = tiling.loop, tiling.projection, tiling.problem.steps, push_constants(tiling)
    project, run = projected(tiling, push), _dispatches(tiling, push)
    of_step = tiling.step_seconds(target) / (tiling.problem.loop.phases if loop.schedule == STEPPED else 1)
    last_slot = 0
    yield run(_begin(loop, 0, min(loop.chunk_steps, projection.chunk_steps, steps), 0), 0), None
    for first, last in chunks(0, steps, projection.chunk_steps):
        yield project(first, last), tiling.projection_seconds(target, last - first)
        for piece in _of_steps(loop, first, last, last_slot):
            yield run(piece, first), (piece.last_step - piece.first_step) * of_step if piece.in_loop else 0.0
        last_slot = piece.last_step - piece.first_step
    end = run(_end(loop, piece.first_step, piece.last_step), 0)
    if end.writes:
        yield end, None


def _dispatches(tiling: GpuTiling, sizes: dict[str, int]) -> Callable[[_Piece, int], Dispatch]:
    """A dispatch of a piece, for the step that the projection starts with."""
    problem = tiling.problem
    constants = loop_constants(tiling)
    # What comes before and after the loop is the same for all of its tiles, and compiled once
    beside = constants | {"WORKGROUP": _WORKGROUP, "ROWS": 1, "PART_UNITS": 1}
    outputs = given(problem, "OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
    buffers = {"State": STATE, "Meeting": MEETING, "Gates": GATES, "HiddenWeights": PACKED_HIDDEN, **outputs,
               **given(problem, "SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor")}

    def run(piece: _Piece, gates_step: int) -> Dispatch:
        push = sizes | {"first_step": piece.first_step, "last_step": piece.last_step, "phase": piece.phase,
                        "last_slot": piece.last_slot, "gates_step": gates_step}
        written = [outputs[block] for block in piece.outputs if block in outputs]
        return Dispatch(piece.kernel, constants if piece.in_loop else beside,
                        {block: buffers[block] for block in piece.blocks if block in buffers},
                        (*piece.written, *written), piece.groups, push,
                        subgroup_size=tiling.loop.subgroup_size if piece.in_loop else 0)

    return run


def _begin(loop: GpuLoop, first: int, last: int, last_slot: int) -> _Piece:
    """The piece before the steps from first to last."""
    problem = loop.problem
    vecs = max(problem.directions * problem.batch * loop.vector_bytes // 16, problem.directions * loop.tiles)
    slots = problem.loop.phases * (last - first if loop.meeting == FLOW else 1)
    return _Piece("gpu/begin", first, last, (_groups(vecs), min(slots, _MOST_SLOT_GROUPS), 1), _BEGIN_BLOCKS,
                 written=(STATE, MEETING), last_slot=last_slot)


def _of_steps(loop: GpuLoop, first: int, last: int, last_slot: int) -> Iterator[_Piece]:
    """The pieces that one projection is for. Before the very first of them, `_begin` has run."""
    problem = loop.problem
    groups = (loop.tiles, problem.directions, loop.parts)
    for start in range(first, last, loop.chunk_steps):
        stop = min(start + loop.chunk_steps, last)
        if loop.schedule == PERSISTENT:
            if start > 0:
                yield _begin(loop, start, stop, last_slot)
            last_slot = stop - start
            yield _Piece(loop.meeting_kernel, start, stop, groups, (*_STEP_BLOCKS, "Meeting"), (STATE, MEETING),
                        ("OutputSequence",))
        else:
            for phase in range(problem.loop.phases):
                yield _Piece(f"{loop.kernel}_stepped", start, stop, groups, _STEP_BLOCKS, (STATE,), ("OutputSequence",), phase)


def _end(loop: GpuLoop, first: int, last: int) -> _Piece:
    """The piece after all steps. first, last: of the last dispatch of the loop."""
    problem = loop.problem
    units = problem.directions * problem.batch * problem.hidden
    return _Piece("gpu/end", first, last, (_groups(units), 1, 1), _END_BLOCKS,
                 outputs=("OutputSingle", "OutputCellSingle"))


def _groups(invocations: int) -> int:
    return min(ceil_div(invocations, _WORKGROUP), WORKGROUPS_EVERYWHERE)
