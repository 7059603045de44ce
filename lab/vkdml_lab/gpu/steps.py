"""Computes what only the source in shaders/gpu/ tells about a dispatch: how often loops run and workgroups wait in a step."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import NamedTuple

from vkdml_lab.gpu.assembly import FINISHING, SUMMING
from vkdml_lab.internals import CELLS, Dispatch, ceil_div

_CELLS = {cell.kernel for cell in CELLS.values()}
_SCHEDULES = ("", "stepped", "persistent", "persistent_coherent")  # what a kernel's name ends with
_SPLIT = 4  # most invocations that add up the sums of a row and unit


class Share(NamedTuple):
    """The shares of a workgroup (0 to 1) that run an instruction: of its subgroups, and of its lanes."""

    subgroups: float
    lanes: float


@dataclass(frozen=True)
class LoopStep:
    """A step: an iteration of a kernel's outermost loop, over time steps or, in the projection, blocks of columns.

    is_loop: the kernel has that loop; if not, all its code is a step. trips: iterations of the inner loops with multiply-adds,
    the outermost first. dispatches: how many a step takes, each after the one before; 0 in a loop. exchanges: how often a
    step's workgroups wait for each other's h. passes: how often a step goes through the weights. own_loads: an invocation's
    loads of 16 bytes in a pass, without those of weights. streams: whether some weights are loaded in each step. weights: bytes
    of weights that all workgroups load in a step. loaded: the same, but streamed weights count for each tile of rows. summing,
    finishing: shares of a workgroup's invocations that add up partial sums, and that finish elements.
    """

    is_loop: bool
    trips: tuple[int, ...]
    dispatches: int = 0
    exchanges: int = 0
    passes: int = 1
    own_loads: int = 0
    streams: bool = True
    weights: int = 0
    loaded: int = 0
    summing: float = 1.0
    finishing: float = 1.0

    def shares(self, workgroup: int, width: int) -> dict[str, Share]:
        """Return, by an instruction's role, which shares of a workgroup run it. workgroup: its size. width: a subgroup's."""
        lanes, subgroups = {"": 1.0, SUMMING: self.summing, FINISHING: self.finishing}, ceil_div(workgroup, width)
        return {role: Share(ceil(share * workgroup / width) / subgroups, share) for role, share in lanes.items()}


def step_of(dispatch: Dispatch) -> LoopStep | None:
    """Return facts about a step of the kernel. None unless it is a projection or a forward time loop of shaders/gpu/."""
    *_, room, name = f"/{dispatch.kernel}".split("/")
    cell, _, schedule = name.partition("_")
    if room != "gpu":
        return None
    if name == "projection":
        return LoopStep(True, ())
    return _time_loop(dispatch, schedule) if cell in _CELLS and schedule in _SCHEDULES else None


def _time_loop(dispatch: Dispatch, schedule: str) -> LoopStep:
    """Return facts about a step of a time loop. schedule: the kernel's name after the cell, such as "stepped", or ""."""
    constants, phases = dispatch.constants, dispatch.constants["PHASES"]
    is_stepped, is_persistent = schedule == "stepped", schedule.startswith("persistent")
    groups, rows = constants["COLUMN_GROUPS"], constants["ROWS"]
    of_group = constants["HIDDEN_LOADS"] // constants["COLUMN_GROUPS"]
    kept = constants["REGISTER_LOADS"] + constants["SHARED_LOADS"]
    streamed = of_group - kept
    # The last block is outside of the loop. A loop that runs once is compiled without a loop
    blocks = streamed // constants["STREAM_LOADS"] - 1 if streamed else 0
    _, directions, parts = dispatch.groups
    of_load = directions * parts * constants["WORKGROUP"] * constants["GATES"] * 16
    if schedule:
        tiles = ceil_div(dispatch.push["batch"], dispatch.push["tiles"] * constants["ROWS"])
        outer = [tiles]
    else:
        turn_units = constants["WORKGROUP"] // constants["COLUMN_GROUPS"]
        outer = [turns for turns in [ceil_div(constants["HIDDEN"], turn_units)] if turns > 1]
        tiles, of_load = 1, of_load * prod(outer)
    once = kept * of_load if is_stepped else 0
    trips = (*outer, *(count for count in [blocks] if count > 1))
    return LoopStep(not is_stepped, trips, phases * is_stepped, phases * is_persistent, passes=phases * prod(outer),
                    own_loads=ceil_div(constants["ROWS"], constants["COLUMN_GROUPS"]), streams=streamed > 0,
                    weights=once + streamed * of_load, loaded=once + tiles * streamed * of_load,
                    summing=min(1.0, rows * _SPLIT / groups), finishing=min(1.0, rows / groups))
