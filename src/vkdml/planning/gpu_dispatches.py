"""What runs, in order, for a time loop whose parts exchange h on a GPU.

Its steps, or chunks of steps, stand between the beginning of the state and its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..operators.whole_numbers import ceil_div
from .gpu_loop import GpuLoop
from .options import FLOW, PERSISTENT
from .tiling import MEETING, STATE

WORKGROUP = 64  # of what comes before and after the loop
_MOST_SLOT_GROUPS = 64  # workgroups that share the slots of flow
_MOST_GROUPS = 65_535  # what Vulkan promises; more work is shared among them
_BEGIN_BLOCKS = ("HiddenInit", "State", "CellMemInit", "Meeting")
_STEP_BLOCKS = ("Gates", "HiddenWeights", "SequenceLengths", "OutputSequence", "State")
_END_BLOCKS = ("SequenceLengths", "OutputSingle", "State", "OutputCellSingle", "Meeting")


@dataclass(frozen=True)
class Piece:
    """A dispatch.

    kernel: its name in shaders/gpu/. last_slot: in flow, where the chunk before left its last h. blocks: of the buffers that
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


def begin(loop: GpuLoop, first: int, last: int, last_slot: int) -> Piece:
    """Before the steps from first to last."""
    problem = loop.problem
    vecs = max(problem.directions * problem.batch * loop.vector_bytes // 16, problem.directions * loop.tiles)
    slots = problem.loop.phases * (last - first if loop.meeting == FLOW else 1)
    return Piece("begin", first, last, (_groups(vecs), min(slots, _MOST_SLOT_GROUPS), 1), _BEGIN_BLOCKS,
                 written=(STATE, MEETING), last_slot=last_slot)


def of_steps(loop: GpuLoop, first: int, last: int, last_slot: int) -> Iterator[Piece]:
    """Those that one projection is for. Before the very first of them, `begin` has run."""
    problem = loop.problem
    cell, groups = problem.cell.kernel, (loop.tiles, problem.directions, loop.parts)
    for start in range(first, last, loop.chunk_steps):
        stop = min(start + loop.chunk_steps, last)
        if loop.schedule == PERSISTENT:
            if start > 0:
                yield begin(loop, start, stop, last_slot)
            last_slot = stop - start
            yield Piece(f"{cell}_{loop.meeting}", start, stop, groups, (*_STEP_BLOCKS, "Meeting"), (STATE, MEETING),
                        ("OutputSequence",))
        else:
            for phase in range(problem.loop.phases):
                yield Piece(f"{cell}_stepped", start, stop, groups, _STEP_BLOCKS, (STATE,), ("OutputSequence",), phase)


def end(loop: GpuLoop, first: int, last: int) -> Piece:
    """After all steps. first, last: of the last dispatch of the loop."""
    problem = loop.problem
    units = problem.directions * problem.batch * problem.hidden
    return Piece("end", first, last, (_groups(units), 1, 1), _END_BLOCKS,
                 outputs=("OutputSingle", "OutputCellSingle"))


def _groups(invocations: int) -> int:
    return min(ceil_div(invocations, WORKGROUP), _MOST_GROUPS)
