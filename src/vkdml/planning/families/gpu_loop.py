"""The time loop on a GPU: how its kernels (shaders/gpu/) cut a problem, and which cuts a device can run.

In a workgroup, `column_groups` invocations compute each unit. That number depends on H alone, and sums have one order in all of
these kernels: so for a problem all their tilings give the same bits, and share one packing of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...operators.checks import ceil_div, round_up
from ...operators.problem import Problem
from ..device_info import DeviceInfo
from ..gpus import GpuRates
from ..options import PERSISTENT, SEQUENCE, STEPPED
from ..profiles import MOST_ITERATIONS
from ..tiling import GAVE_UP, STATE, LoopTiling, Packing, Target, even_rows

TOGETHER = 8         # units that are interleaved in packed weights; a workgroup computes at least as many
_PACKED_UNITS = 64   # packed weights have a multiple of so many units
_COLUMNS_FOR_A_GROUP, _MOST_GROUPS = 16, 32
_WORKGROUPS = (64, 128, 256, 512)
_ROWS = (1, 2, 4, 8)
_UNDER_WAY = 8  # how many loads of streamed weights an invocation should wait for at once
_UNUSED_SHARED_BYTES = 48
_NARROW = 32  # a subgroup size that may be faster than a compiler's wider one, as an instruction takes half as long
_REGISTERS_MARGIN = 1.15  # compilers take so many times the registers if a workgroup has room for them
_NARROW_MARGIN = 1.25     # compilers take so many times the registers in narrow subgroups


@dataclass(frozen=True, kw_only=True)
class GpuLoop(LoopTiling):
    """One way to run the time loop on a GPU. Parts share the units of all rows; each group of workgroups has its own rows.

    column_groups: invocations that share a unit's columns. register_loads, shared_loads: how many of an invocation's loads for
    a gate stay in registers, and in shared memory, for a whole dispatch. stream_loads: how many of the others it loads at once.
    most_groups: the most groups of rows. in_place: whether sums overwrite the multiplied tile in shared memory. spins: the
    profile's, for persistent parts. counted_together: whether spins bounds all waits of a dispatch together, as for drivers
    that end long loops.
    """

    column_groups: int
    register_loads: int = 0
    shared_loads: int = 0
    stream_loads: int = 1
    most_groups: int = 1
    in_place: bool = False
    spins: int = 0
    counted_together: bool = False

    @property
    def tiles(self) -> int:
        """How many workgroups share the rows. In sequence, each has one tile."""
        tiles = ceil_div(self.problem.batch, self.rows)
        return tiles if self.schedule == SEQUENCE else ceil_div(tiles, ceil_div(tiles, self.most_groups))

    @property
    def tiles_of_group(self) -> int:
        """How many tiles one workgroup processes in turn."""
        return ceil_div(self.problem.batch, self.rows * self.tiles)

    @property
    def turn_units(self) -> int:
        return self.workgroup // self.column_groups

    @property
    def turns(self) -> int:
        """How many turns a workgroup takes for the units of a phase."""
        return ceil_div(self.problem.hidden, self.turn_units * self.parts)

    @property
    def part_units(self) -> int:
        return self.turns * self.turn_units

    @property
    def group_loads(self) -> int:
        """How many loads of weights an invocation needs for a gate."""
        return self.hidden.loads // self.column_groups

    @property
    def streamed_loads(self) -> int:
        return self.group_loads - self.register_loads - self.shared_loads

    @property
    def weight_registers(self) -> int:
        """How many registers an invocation has for the weights that stay."""
        return self.register_loads * self.problem.loop.products * 4

    @property
    def sum_registers(self) -> int:
        return self.rows * self.problem.loop.products

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
        gates = self.problem.loop.products
        sums = self.rows * self.workgroup * (16 if gates > 1 else 4)
        weights = self.shared_loads * gates * self.workgroup * 16
        lengths = 4 * self.rows if self.schedule == SEQUENCE else 0
        tile = self.tile_bytes if self.shared_state else 0
        return weights + lengths + (max(sums, tile) if self.in_place else sums + tile)

    @property
    def slots_in_buffer(self) -> int:
        """How many vectors of the state each row has in the buffer."""
        loop = self.problem.loop
        if self.schedule == SEQUENCE:
            return loop.slots
        own = loop.slots - 2
        return own + 1 + loop.phases * (self.chunk_steps if self.schedule == PERSISTENT else 1)

    @property
    def states_bytes(self) -> int:
        rows = self.tiles * self.rows if self.schedule == SEQUENCE else self.problem.batch
        return self.slots_in_buffer * self.problem.directions * rows * self.vector_bytes

    @property
    def buffers(self) -> dict[str, int]:
        """Bytes of the time loop's buffers, by name. Parts that exchange h also have a word that is set once one gave up."""
        return {STATE: self.states_bytes, **({} if self.schedule == SEQUENCE else {GAVE_UP: 4})}

    @property
    def dispatches(self) -> int:
        """How many dispatches there are, without those of single steps, which the estimate of a step includes."""
        if self.schedule == SEQUENCE:
            return self.chunks
        return 2 if self.schedule == STEPPED else 2 * self.chunks + 1  # each chunk has a gpu/begin

    @property
    def constants(self) -> dict[str, int]:
        tile_vecs = self.tile_bytes // 16 if self.shared_state else 0
        return {
            "COLUMN_GROUPS": self.column_groups, "REGISTER_LOADS": self.register_loads, "SHARED_LOADS": self.shared_loads,
            "STREAM_LOADS": self.stream_loads, "SPLIT_BIAS": self.problem.loop.split_bias, "SPINS": self.spins,
            "IS_PERSISTENT": int(self.schedule == PERSISTENT), "COUNTED_TOGETHER": int(self.counted_together),
            "TILE_VECS": tile_vecs, "FIRST_SUM": 0 if self.in_place else tile_vecs,
        }


def packed_units(problem: Problem) -> int:
    return round_up(problem.hidden, _PACKED_UNITS)


def column_groups(problem: Problem, info: DeviceInfo) -> int:
    """Choose how many invocations compute a unit: a power of two for which workgroups have room."""
    most = min(_MOST_GROUPS, max(1, info.max_workgroup_invocations // TOGETHER))
    groups = 1
    while 2 * groups <= most and 2 * groups * _COLUMNS_FOR_A_GROUP <= problem.columns:
        groups *= 2
    return groups


def registers(loop: GpuLoop, rates: GpuRates) -> int:
    """Estimate an invocation's registers. A block of streamed weights that is loaded while another is multiplied has its own.

    With several rows, so have the addresses of such blocks, half a load of 16-bit weights as float32 and, with some compilers,
    two loads from shared memory and what stays during a wait: the input's part, and 3 if rows have lengths.
    """
    gates, several = loop.problem.loop.products, loop.rows > 1
    of_load = 4 * gates
    blocks = loop.streamed_loads // loop.stream_loads
    streamed = (2 if blocks > 1 else 0 if rates.sinks_loads and not several else blocks) * loop.stream_loads * of_load
    of_shared = of_load * (2 if rates.sinks_loads and several else 1) if loop.shared_loads else 0
    places = 2 if several and blocks > 1 else 0
    unpacked = 2 * gates if several and loop.problem.element.vecs_per_load > 1 else 0
    waiting = len(loop.problem.cell.gates) + 3 * loop.problem.has("SequenceLengthsTensor")
    of_input = waiting if rates.sinks_loads and several and loop.schedule == PERSISTENT else 0
    weights = loop.weight_registers + streamed + of_shared + places + unpacked + of_input
    return rates.other_registers + weights + loop.sum_registers + rates.row_registers * (loop.rows - 1)


def _held(loop: GpuLoop, rates: GpuRates) -> int:
    """Return for how many invocations a workgroup takes registers: whole subgroups."""
    return round_up(loop.workgroup, rates.subgroup_width)


def resident_workgroups(loop: GpuLoop, target: Target) -> int:
    """Return how many workgroups surely run at once."""
    if target.info.is_cpu:
        return target.info.cores
    rates = target.gpu
    held = _held(loop, rates)
    margin = _NARROW_MARGIN if loop.subgroup_size else _REGISTERS_MARGIN
    likely = min(int(margin * registers(loop, rates)), rates.invocation_registers, rates.registers // held)
    of_unit = min(rates.registers // (likely * held), rates.most_invocations // loop.workgroup,
                  rates.unit_shared_bytes // loop.shared_bytes)
    return rates.units * of_unit


# All time loops that a device can run

def whole_units(target: Target) -> int:
    """Return a number of which the invocations of a workgroup are a multiple."""
    return TOGETHER * column_groups(target.problem, target.info)


def loops_of(target: Target, schedule: str) -> Iterator[GpuLoop]:
    """Yield all time loops of a schedule that the device can run: one for each size of subgroups."""
    info, options = target.info, target.options
    for rows in [options.rows] if options.rows else even_rows(target.problem.batch, _ROWS):
        for workgroup in _workgroups(target, schedule):
            units = workgroup // column_groups(target.problem, info)
            parts = 1 if schedule == SEQUENCE else ceil_div(target.problem.hidden, units)
            loop = _loop(target, schedule, rows, workgroup, parts) if _may_be(target, schedule, rows, parts) else None
            if loop is not None:
                yield loop
            if loop is not None and info.subgroup_size > _NARROW and info.has_subgroups_of(_NARROW, workgroup):
                yield replace(loop, subgroup_size=_NARROW)


def _shared_room(target: Target) -> int:
    """Return the bytes of shared memory for a workgroup, without unused arrays of one vec4, which drivers may count."""
    return target.info.max_shared_memory - _UNUSED_SHARED_BYTES


def _workgroups(target: Target, schedule: str) -> list[int]:
    """List sizes of workgroups, which compute multiples of TOGETHER units, and no more than a part needs."""
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
    most = min(most, max(target.profile.most_workgroup, of_units))  # compilers spill in larger workgroups
    return sorted(size for size in sizes if size <= most and size % of_units == 0)


def _may_be(target: Target, schedule: str, rows: int, parts: int) -> bool:
    """Whether so many parts and rows may be tried: units to share, persistent parts timed or forced, unrolled rows compiled."""
    if target.options.parts not in (None, parts) or rows > (target.profile.most_unrolled or rows):
        return False
    is_choice = schedule == STEPPED or target.profile.tuned
    return schedule == SEQUENCE or target.options.schedule == schedule or (parts > 1 and is_choice)


def _loop(target: Target, schedule: str, rows: int, workgroup: int, parts: int) -> GpuLoop | None:
    problem, groups, room = target.problem, column_groups(target.problem, target.info), _shared_room(target)
    waits, profile = schedule == PERSISTENT, target.profile
    loads = round_up(ceil_div(problem.columns, problem.element.columns_per_load), groups)
    bare = GpuLoop(
        problem=problem, kernel=f"gpu/{problem.cell.kernel}", rows=rows, workgroup=workgroup, units=packed_units(problem),
        schedule=schedule, parts=parts, hidden=Packing(problem.element, loads, TOGETHER), shared_state=True,
        column_groups=groups, spins=profile.spins if waits else 0,
        counted_together=waits and profile.most_iterations < MOST_ITERATIONS, coherent_polls=waits and profile.coherent_polls)
    if bare.shared_bytes > room and schedule != SEQUENCE and problem.loop.products > 1:
        bare = replace(bare, in_place=True)
    if bare.shared_bytes > room:
        bare = replace(bare, shared_state=False, in_place=False)
        if schedule != STEPPED or bare.shared_bytes > room or rows > 1:
            return None
    return _on_device(target, bare)


def _on_device(target: Target, bare: GpuLoop) -> GpuLoop | None:
    """Add the weights that stay to a loop, and as many groups of rows as run at once.

    Returns None if shared memory is too small, or if not even one group of persistent parts runs at once and is not forced.
    """
    of_group = bare.parts * target.problem.directions
    is_persistent = bare.schedule == PERSISTENT
    kept = _with_weights(target, bare, ceil_div(of_group, target.gpu.units) if is_persistent else 1)
    groups = resident_workgroups(kept, target) // of_group
    has_room = groups > 0 or not is_persistent or target.options.schedule == PERSISTENT
    if kept.shared_bytes > _shared_room(target) or not has_room:  # forced loads may need too much memory
        return None
    return replace(kept, most_groups=max(1, groups))


def _with_weights(target: Target, bare: GpuLoop, of_unit: int) -> GpuLoop:
    """Let as many weights stay as possible with this many workgroups on a unit."""
    rates, forced = target.gpu, target.options.register_loads
    most = min(rates.invocation_registers, rates.registers // (of_unit * _held(bare, rates)))
    is_bound = of_unit == 1 or most == rates.invocation_registers  # the compiler cannot take more
    margin = 1 if is_bound else _REGISTERS_MARGIN
    most_loads = bare.group_loads if bare.turns == 1 else 0  # with several turns, the weights of all units have no room
    enough = ceil_div(_UNDER_WAY, target.problem.loop.products)
    room = min(_shared_room(target), rates.unit_shared_bytes // of_unit) - bare.shared_bytes
    for register_loads in range(most_loads, -1, -1) if forced is None else [min(forced, most_loads)]:
        left = most_loads - register_loads
        loop = replace(bare, register_loads=register_loads, shared_loads=_shared_loads(target, bare, left, room))
        for count in (*range(enough, 2 * enough + 1), *range(enough - 1, 0, -1)):  # loads of a gate that are streamed at once
            loop = replace(loop, stream_loads=count)
            has_registers = margin * registers(loop, rates) <= most and loop.weight_registers <= rates.most_weights
            if has_registers and loop.streamed_loads % count == 0:
                return loop
    return loop


def _shared_loads(target: Target, bare: GpuLoop, left: int, room: int) -> int:
    """Choose how many of the loads left for a gate stay in shared memory. room: the bytes of it that a unit has free."""
    forced, of_load = target.options.shared_loads, 16 * target.problem.loop.products * bare.workgroup
    if forced is not None:
        return min(left, forced, (_shared_room(target) - bare.shared_bytes) // of_load)
    return min(left, max(0, room) // of_load) if bare.schedule == PERSISTENT else 0
