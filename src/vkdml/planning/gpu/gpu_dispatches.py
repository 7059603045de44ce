"""What runs, in order, for a time loop whose parts exchange h on a GPU.

Its steps, or chunks of steps, stand between the beginning of the state and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...operators.whole_numbers import ceil_div
from ..cuts import GATES, MEETING, PACKED_HIDDEN, STATE
from ..dispatches import Dispatch, Submissions, given
from ..loop_dispatches import chunks, loop_constants, projected, push_constants
from ..options import FLOW, PERSISTENT, STEPPED
from ..tiling import Tiling
from .gpu_loop import GpuLoop

_WORKGROUP = 64  # of what comes before and after the loop
_MOST_SLOT_GROUPS = 64  # workgroups that share the slots of flow
_MOST_GROUPS = 65_535  # what Vulkan promises; more work is shared among them
_BEGIN_BLOCKS = ("HiddenInit", "State", "CellMemInit", "Meeting")
_STEP_BLOCKS = ("Gates", "HiddenWeights", "SequenceLengths", "OutputSequence", "State")
_END_BLOCKS = ("SequenceLengths", "OutputSingle", "State", "OutputCellSingle", "Meeting")


@dataclass(frozen=True)
class _Piece:
    """A dispatch.

    last_slot: in flow, where the chunk before left its last h. blocks: of the buffers that
    the kernel has; outputs: of the operator's outputs that it writes, and written: the names of other buffers.
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


def exchanging(tiling: Tiling, loop: GpuLoop, submissions: Submissions) -> tuple[Dispatch, ...]:
    """All of an execution."""
    projection, steps, push = tiling.projection, tiling.problem.steps, push_constants(tiling)
    assert projection
    project, run = projected(tiling, push), _dispatches(tiling, push)
    of_step = submissions.step_seconds / (tiling.problem.loop.phases if loop.schedule == STEPPED else 1)
    last_slot = 0
    dispatches = [run(_begin(loop, 0, min(loop.chunk_steps, projection.chunk_steps, steps), 0), 0, False)]
    for first, last in chunks(0, steps, projection.chunk_steps):
        dispatches.append(project(first, last, submissions.start(submissions.projection_seconds(last - first))))
        for piece in _of_steps(loop, first, last, last_slot):
            seconds = (piece.last_step - piece.first_step) * of_step if piece.in_loop else 0
            dispatches.append(run(piece, first, submissions.start(seconds)))
        last_slot = piece.last_step - piece.first_step
    end = run(_end(loop, piece.first_step, piece.last_step), 0, False)
    return (*dispatches, end) if end.writes else tuple(dispatches)


def _dispatches(tiling: Tiling, sizes: dict[str, int]) -> Callable[[_Piece, int, bool], Dispatch]:
    """A dispatch of a piece, for the step that the projection starts with, and whether it starts a submission."""
    problem = tiling.problem
    constants = loop_constants(tiling)
    # What comes before and after the loop is the same for all of its tiles, and compiled once
    beside = constants | {"WORKGROUP": _WORKGROUP, "ROWS": 1, "PART_UNITS": 1}
    outputs = given(problem, "OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
    buffers = {"State": STATE, "Meeting": MEETING, "Gates": GATES, "HiddenWeights": PACKED_HIDDEN, **outputs,
               **given(problem, "SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor")}

    def run(piece: _Piece, gates_step: int, starts: bool) -> Dispatch:
        push = sizes | {"first_step": piece.first_step, "last_step": piece.last_step, "phase": piece.phase,
                        "last_slot": piece.last_slot, "gates_step": gates_step}
        written = [outputs[block] for block in piece.outputs if block in outputs]
        return Dispatch(piece.kernel, constants if piece.in_loop else beside,
                        {block: buffers[block] for block in piece.blocks if block in buffers},
                        (*piece.written, *written), piece.groups, push, starts)

    return run


def _begin(loop: GpuLoop, first: int, last: int, last_slot: int) -> _Piece:
    """Before the steps from first to last."""
    problem = loop.problem
    vecs = max(problem.directions * problem.batch * loop.vector_bytes // 16, problem.directions * loop.tiles)
    slots = problem.loop.phases * (last - first if loop.meeting == FLOW else 1)
    return _Piece("gpu/begin", first, last, (_groups(vecs), min(slots, _MOST_SLOT_GROUPS), 1), _BEGIN_BLOCKS,
                 written=(STATE, MEETING), last_slot=last_slot)


def _of_steps(loop: GpuLoop, first: int, last: int, last_slot: int) -> Iterator[_Piece]:
    """Those that one projection is for. Before the very first of them, `_begin` has run."""
    problem = loop.problem
    groups = (loop.tiles, problem.directions, loop.parts)
    for start in range(first, last, loop.chunk_steps):
        stop = min(start + loop.chunk_steps, last)
        if loop.schedule == PERSISTENT:
            if start > 0:
                yield _begin(loop, start, stop, last_slot)
            last_slot = stop - start
            yield _Piece(f"{loop.kernel}_{loop.meeting}", start, stop, groups, (*_STEP_BLOCKS, "Meeting"), (STATE, MEETING),
                        ("OutputSequence",))
        else:
            for phase in range(problem.loop.phases):
                yield _Piece(f"{loop.kernel}_stepped", start, stop, groups, _STEP_BLOCKS, (STATE,), ("OutputSequence",), phase)


def _end(loop: GpuLoop, first: int, last: int) -> _Piece:
    """After all steps. first, last: of the last dispatch of the loop."""
    problem = loop.problem
    units = problem.directions * problem.batch * problem.hidden
    return _Piece("gpu/end", first, last, (_groups(units), 1, 1), _END_BLOCKS,
                 outputs=("OutputSingle", "OutputCellSingle"))


def _groups(invocations: int) -> int:
    return min(ceil_div(invocations, _WORKGROUP), _MOST_GROUPS)
