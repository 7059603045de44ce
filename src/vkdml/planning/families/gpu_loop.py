"""The time loop on a GPU: how its kernels (shaders/gpu/) cut a problem, and which cuts a device can run.

A workgroup computes some units at once, each by `column_groups` invocations. That number depends on H alone, and sums have one
order in all of these kernels: so for a problem all their tilings give the same bits, and share one packing of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...operators.problem import Problem
from ...operators.whole_numbers import ceil_div, round_up
from ..device_info import DeviceInfo
from ..gpus import GpuRates
from ..options import BARRIER, FLOW, PERSISTENT, SEQUENCE, STEPPED
from ..profiles import MOST_ITERATIONS
from ..tiling import MEETING, STATE, LoopTiling, Packing, Target, even_rows

TOGETHER = 8         # units that lie together in packed weights, and that a workgroup computes at least
_PACKED_UNITS = 64   # packed weights have a multiple of these
_COLUMNS_FOR_A_GROUP, _MOST_GROUPS = 16, 32
MEETING_WORDS = 16   # from one counter of arrivals to the next: a line of the cache each
_WORKGROUPS = (64, 128, 256, 512)
_ROWS = (1, 2, 4, 8)
_UNDER_WAY = 8  # loads of streamed weights that are worth waiting for together
_UNUSED_SHARED_BYTES = 48
_NARROW = 32  # a size of subgroups that may be faster than a wider one that a compiler takes: an instruction takes half as long
_REGISTERS_MARGIN = 1.15  # compilers take more where a workgroup has room for them
_NARROW_MARGIN = 1.25     # and in narrow subgroups
_MOST_FLOW_BYTES = 64 * 2**20  # of the words of one chunk


@dataclass(frozen=True, kw_only=True)
class GpuLoop(LoopTiling):
    """One way to run the time loop on a GPU. parts share the units of all rows; each group of workgroups has rows of its own.

    column_groups: invocations that share a unit's columns. register_loads, shared_loads: of the loads of weights of an
    invocation and gate, those that stay in registers and in shared memory for a whole dispatch. stream_loads: of the others,
    those that it loads at once. most_groups: groups of rows, at most. in_place: sums take the place of what was multiplied, in
    shared memory. spins, coherent_flow: of persistent parts, as their profile says. counted_together: whether spins are of all
    waits of a dispatch, where a driver bounds its loops.
    """

    column_groups: int
    register_loads: int = 0
    shared_loads: int = 0
    stream_loads: int = 1
    most_groups: int = 1
    in_place: bool = False
    spins: int = 0
    counted_together: bool = False
    coherent_flow: bool = False

    @property
    def tiles(self) -> int:
        """Workgroups that share the rows: in sequence, each has one tile."""
        tiles = ceil_div(self.problem.batch, self.rows)
        return tiles if self.schedule == SEQUENCE else ceil_div(tiles, ceil_div(tiles, self.most_groups))

    @property
    def tiles_of_group(self) -> int:
        """Number of tiles that one workgroup processes in turn."""
        return ceil_div(self.problem.batch, self.rows * self.tiles)

    @property
    def turn_units(self) -> int:
        return self.workgroup // self.column_groups

    @property
    def turns(self) -> int:
        """Number of turns of a phase."""
        return ceil_div(self.problem.hidden, self.turn_units * self.parts)

    @property
    def part_units(self) -> int:
        return self.turns * self.turn_units

    @property
    def group_loads(self) -> int:
        """Loads of an invocation for a gate."""
        return self.hidden.loads // self.column_groups

    @property
    def streamed_loads(self) -> int:
        return self.group_loads - self.register_loads - self.shared_loads

    @property
    def weight_registers(self) -> int:
        """Registers of an invocation for the weights that stay."""
        return self.register_loads * len(self.problem.cell.gates) * 4

    @property
    def sum_registers(self) -> int:
        return self.rows * len(self.problem.cell.gates)

    @property
    def tile_bytes(self) -> int:
        return self.rows * self.vector_bytes * (self.problem.loop.slots if self.schedule == SEQUENCE else 1)

    @property
    def vector_bytes(self) -> int:
        """Bytes of h of one row, with its padding."""
        return self.hidden.loads * self.problem.element.vecs_per_load * 16

    @property
    def shared_bytes(self) -> int:
        """Bytes of a workgroup's shared memory."""
        gates = len(self.problem.cell.gates)
        sums = self.rows * self.workgroup * (16 if gates > 1 else 4)
        weights = self.shared_loads * gates * self.workgroup * 16
        lengths = 4 * self.rows if self.schedule == SEQUENCE else 0
        tile = self.tile_bytes if self.shared_state else 0
        return weights + lengths + (max(sums, tile) if self.in_place else sums + tile)

    @property
    def slots_in_buffer(self) -> int:
        """Number of vectors of each row."""
        loop = self.problem.loop
        if self.schedule == SEQUENCE:
            return loop.slots
        own = loop.slots - 2
        return own + 1 + loop.phases * (self.chunk_steps if self.meeting == FLOW else 1)

    @property
    def states_bytes(self) -> int:
        rows = self.tiles * self.rows if self.schedule == SEQUENCE else self.problem.batch
        return self.slots_in_buffer * self.problem.directions * rows * self.vector_bytes

    @property
    def buffers(self) -> dict[str, int]:
        """Parts have one more, with the word that says that they did not meet, and the counters of their arrivals."""
        if self.schedule == SEQUENCE:
            return {STATE: self.states_bytes}
        return {STATE: self.states_bytes, MEETING: (1 + self.problem.directions * self.tiles) * MEETING_WORDS * 4}

    @property
    def dispatches(self) -> int:
        if self.schedule == SEQUENCE:
            return self.chunks
        if self.schedule == STEPPED:
            return self.problem.steps * self.problem.loop.phases + 2
        return 2 * self.chunks + 1  # each begins anew

    @property
    def meeting_kernel(self) -> str:
        """The kernel of parts that wait for each other."""
        return f"{self.kernel}_{self.meeting}{'_coherent' if self.coherent_flow else ''}"

    @property
    def most_flow_steps(self) -> int:
        """Most steps of a chunk in flow."""
        of_step = self.problem.loop.phases * self.problem.directions * self.problem.batch * self.vector_bytes
        return max(1, _MOST_FLOW_BYTES // of_step)

    @property
    def constants(self) -> dict[str, int]:
        tile_vecs = self.tile_bytes // 16 if self.shared_state else 0
        return {
            "COLUMN_GROUPS": self.column_groups, "REGISTER_LOADS": self.register_loads, "SHARED_LOADS": self.shared_loads,
            "STREAM_LOADS": self.stream_loads, "SPLIT_BIAS": self.problem.loop.split_bias, "IN_FLOW": int(self.meeting == FLOW),
            "MEETING_WORDS": MEETING_WORDS, "SPINS": self.spins, "COUNTED_TOGETHER": int(self.counted_together),
            "TILE_VECS": tile_vecs, "FIRST_SUM": 0 if self.in_place else tile_vecs,
        }


def packed_units(problem: Problem) -> int:
    return round_up(problem.hidden, _PACKED_UNITS)


def column_groups(problem: Problem, info: DeviceInfo) -> int:
    """A power of two. Workgroups have room for as many invocations of each unit."""
    most = min(_MOST_GROUPS, max(1, info.max_workgroup_invocations // TOGETHER))
    groups = 1
    while 2 * groups <= most and 2 * groups * _COLUMNS_FOR_A_GROUP <= problem.hidden:
        groups *= 2
    return groups


def registers(loop: GpuLoop, rates: GpuRates) -> int:
    """Registers of an invocation, about. A block of streamed weights that is loaded while another is multiplied has its own.

    With several rows so have the places of such blocks, half a load of 16-bit weights as float32, and, by some compilers, two
    loads from shared memory.
    """
    gates, several = len(loop.problem.cell.gates), loop.rows > 1
    of_load = 4 * gates
    blocks = loop.streamed_loads // loop.stream_loads
    streamed = (2 if blocks > 1 else 0 if rates.sinks_loads and not several else blocks) * loop.stream_loads * of_load
    of_shared = of_load * (2 if rates.sinks_loads and several else 1) if loop.shared_loads else 0
    places = 2 if several and blocks > 1 else 0
    unpacked = 2 * gates if several and loop.problem.element.vecs_per_load > 1 else 0
    weights = loop.weight_registers + streamed + of_shared + places + unpacked
    return rates.other_registers + weights + loop.sum_registers + loop.rows - 1


def _held(loop: GpuLoop, rates: GpuRates) -> int:
    """Invocations that a workgroup's registers are for: whole subgroups."""
    return round_up(loop.workgroup, rates.subgroup_width)


def resident_workgroups(loop: GpuLoop, target: Target) -> int:
    """Number of workgroups that surely run side by side."""
    if target.info.is_cpu:
        return target.info.cores
    rates = target.gpu
    held = _held(loop, rates)
    margin = _NARROW_MARGIN if loop.subgroup_size else _REGISTERS_MARGIN
    likely = min(int(margin * registers(loop, rates)), rates.invocation_registers, rates.registers // held)
    of_unit = min(rates.registers // (likely * held), rates.most_invocations // loop.workgroup,
                  rates.unit_shared_bytes // loop.shared_bytes)
    return rates.units * of_unit


# All cuts of a problem that a device's kernels allow

def whole_units(target: Target) -> int:
    """Invocations that a workgroup has a multiple of."""
    return TOGETHER * column_groups(target.problem, target.info)


def loops_of(target: Target, schedule: str) -> Iterator[GpuLoop]:
    """All loops of a schedule that the device can run: one for each way to meet, and size of subgroups."""
    info, options = target.info, target.options
    meetings = [None] if schedule != PERSISTENT else [options.meeting] if options.meeting else [BARRIER, FLOW]
    for rows in [options.rows] if options.rows else even_rows(target.problem.batch, _ROWS):
        for workgroup in _workgroups(target, schedule):
            units = workgroup // column_groups(target.problem, info)
            parts = 1 if schedule == SEQUENCE else ceil_div(target.problem.hidden, units)
            for meeting in meetings if _may_be(target, schedule, parts) else ():
                loop = _loop(target, schedule, rows, workgroup, parts, meeting)
                if loop is not None:
                    yield loop
                if loop is not None and info.subgroup_size > _NARROW and info.has_subgroups_of(_NARROW, workgroup):
                    yield replace(loop, subgroup_size=_NARROW)


def _shared_room(target: Target) -> int:
    """Shared memory of a workgroup; drivers may not see that arrays of one vec4 are never used."""
    return target.info.max_shared_memory - _UNUSED_SHARED_BYTES


def _workgroups(target: Target, schedule: str) -> list[int]:
    """Invocations of a workgroup: whole TOGETHER units each, and no more than a part needs."""
    options, hidden, of_units = target.options, target.problem.hidden, whole_units(target)
    most = target.info.max_workgroup_invocations
    if options.workgroup:
        return [options.workgroup] if options.workgroup % of_units == 0 else []
    whole = ceil_div(hidden, TOGETHER) * of_units
    if options.parts and schedule != SEQUENCE:
        workgroup = ceil_div(ceil_div(hidden, options.parts), TOGETHER) * of_units
        return [workgroup] if workgroup <= most else []
    sizes = {min(size, whole) for size in (*_WORKGROUPS, of_units)}
    if schedule == SEQUENCE:  # all units at once, so that weights can stay
        sizes.add(whole)
    most = min(most, max(target.profile.most_workgroup, of_units))  # compilers spill in larger ones
    return sorted(size for size in sizes if size <= most and size % of_units == 0)


def _may_be(target: Target, schedule: str, parts: int) -> bool:
    """Whether there is something to share. Where plans are not timed, persistent parts have to be asked for."""
    if target.options.parts not in (None, parts):
        return False
    is_choice = schedule == STEPPED or target.profile.tuned
    return schedule == SEQUENCE or target.options.schedule == schedule or (parts > 1 and is_choice)


def _loop(target: Target, schedule: str, rows: int, workgroup: int, parts: int, meeting: str | None) -> GpuLoop | None:
    problem, groups, room = target.problem, column_groups(target.problem, target.info), _shared_room(target)
    loads = round_up(ceil_div(problem.hidden, problem.element.columns_per_load), groups)
    bare = GpuLoop(
        problem=problem, kernel=f"gpu/{problem.cell.kernel}", rows=rows, workgroup=workgroup, units=packed_units(problem),
        schedule=schedule, parts=parts, hidden=Packing(problem.element, loads, TOGETHER), shared_state=True,
        column_groups=groups, meeting=meeting, spins=target.profile.spins if meeting else 0,
        counted_together=bool(meeting) and target.profile.most_iterations < MOST_ITERATIONS,
        coherent_flow=meeting == FLOW and target.profile.coherent_flow)
    if bare.shared_bytes > room and schedule != SEQUENCE and len(problem.cell.gates) > 1:
        bare = replace(bare, in_place=True)
    if bare.shared_bytes > room:
        bare = replace(bare, shared_state=False, in_place=False)
        if schedule != STEPPED or bare.shared_bytes > room or rows > 1:
            return None
    return _on_device(target, bare)


def _on_device(target: Target, bare: GpuLoop) -> GpuLoop | None:
    """The loop with the weights that stay, and with as many groups of rows as run side by side.

    Persistent parts of a group have to, all of them, unless that schedule is forced.
    """
    of_group = bare.parts * target.problem.directions
    is_persistent = bare.schedule == PERSISTENT
    kept = _with_weights(target, bare, ceil_div(of_group, target.gpu.units) if is_persistent else 1)
    groups = resident_workgroups(kept, target) // of_group
    has_room = groups > 0 or not is_persistent or target.options.schedule == PERSISTENT
    if kept.shared_bytes > _shared_room(target) or not has_room:  # the first with forced loads
        return None
    return replace(kept, most_groups=max(1, groups))


def _with_weights(target: Target, bare: GpuLoop, of_unit: int) -> GpuLoop:
    """The loop with the most weights that stay where so many workgroups are on a unit."""
    rates, forced = target.gpu, target.options.register_loads
    most = min(rates.invocation_registers, rates.registers // (of_unit * _held(bare, rates)))
    is_bound = of_unit == 1 or most == rates.invocation_registers  # the compiler cannot take more
    margin = 1 if is_bound else _REGISTERS_MARGIN
    most_loads = bare.group_loads if bare.turns == 1 else 0  # other units' weights have no room beside these
    room = min(_shared_room(target), rates.unit_shared_bytes // of_unit) - bare.shared_bytes
    for register_loads in range(most_loads, -1, -1) if forced is None else [min(forced, most_loads)]:
        left = most_loads - register_loads
        loop = replace(bare, register_loads=register_loads, shared_loads=_shared_loads(target, bare, left, room))
        for count in _stream_counts(target.problem):
            loop = replace(loop, stream_loads=count)
            has_registers = margin * registers(loop, rates) <= most and loop.weight_registers <= rates.most_weights
            if has_registers and loop.streamed_loads % count == 0:
                return loop
    return loop


def _stream_counts(problem: Problem) -> list[int]:
    """Loads of a gate that are streamed at once, the preferred first."""
    enough = ceil_div(_UNDER_WAY, len(problem.cell.gates))
    return [*range(enough, 2 * enough + 1), *range(enough - 1, 0, -1)]


def _shared_loads(target: Target, bare: GpuLoop, left: int, room: int) -> int:
    """Loads of a gate that stay in shared memory, of those that are left. room: bytes of it beside what a unit has to have."""
    forced, of_load = target.options.shared_loads, 16 * len(target.problem.cell.gates) * bare.workgroup
    if forced is not None:
        return min(left, forced, (_shared_room(target) - bare.shared_bytes) // of_load)
    return min(left, max(0, room) // of_load) if bare.schedule == PERSISTENT else 0
