"""The time loop on GPUs: how problems are cut, and what runs in which order."""

from dataclasses import replace
from itertools import product

import pytest

from vkdml.engine.trust.tuner import likely
from vkdml.operators import cells, element_types
from vkdml.planning.families.gpu_loop import column_groups, loops_of, packed_units, registers, resident_workgroups
from vkdml.planning.loop_dispatches import time_loop
from vkdml.planning.options import SCHEDULES, Options
from vkdml.planning.plan import best, ranked, tilings
from vkdml.planning.profiles import gpu_rates
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import DEVICES, GPU, GPUS, SMALLEST, make_problem
from vkdml_lab.suite.support import CELLS

ALL_DEVICES = {"smallest": SMALLEST, "gpu": GPU, **GPUS}
SIZES = (1, 7, 64, 100, 260, 512, 1024, 3000)
ELEMENTS = (element_types.FLOAT32, element_types.FLOAT16)
UNLIKE = ("smallest", "gpu", "RX 7900 XTX", "RTX 3090", "A770")
KINDS = ((cells.GRU, element_types.FLOAT32), (cells.LSTM, element_types.FLOAT16), (cells.RNN, element_types.FLOAT32))


def all_loops(problem, info, options=Options()):
    """Of one time step's dispatches, with every schedule, each asked for."""
    return [loop for schedule in SCHEDULES
            for loop in loops_of(Target(problem, info, replace(options, schedule=schedule)), schedule)]


def of_sizes(hiddens, batches):
    """A device's limits with its loops of every kind of problem, for a few devices that differ most."""
    for name, (cell, element), hidden, batch in product(UNLIKE, KINDS, hiddens, batches):
        problem = make_problem(100, batch, 64, hidden, cell=cell, element=element)
        yield ALL_DEVICES[name], all_loops(problem, ALL_DEVICES[name])


# Column groups and packed weights

def test_column_groups_depend_on_h_and_the_limit_of_invocations_alone():
    """So that no tiling, batch or length changes the order of sums."""
    for hidden, most in product(SIZES, (128, 256, 1024)):
        groups = {column_groups(make_problem(steps, batch, inputs, hidden, cell=cell, element=element),
                                replace(info, max_workgroup_invocations=most))
                  for info in (SMALLEST, GPUS["RX 7900 XTX"], GPUS["A770"]) for cell in CELLS for element in ELEMENTS
                  for steps, batch, inputs in ((1, 1, 3), (500, 70, 300))}
        assert len(groups) == 1


@pytest.mark.parametrize(("hidden", "groups"), [(1, 1), (31, 1), (32, 2), (63, 2), (64, 4), (256, 16), (511, 16), (512, 32), (5000, 32)])
def test_column_groups(hidden, groups):
    problem = make_problem(10, 1, 8, hidden)
    assert column_groups(problem, GPUS["RTX 3090"]) == groups
    assert column_groups(problem, SMALLEST) == min(groups, 16)  # 8 units have to fit a workgroup of 128


def test_all_tilings_of_a_problem_share_packed_weights():
    for name, (cell, element), hidden in product(UNLIKE, KINDS, (7, 260)):
        problem = make_problem(100, 9, 33, hidden, cell=cell, element=element)
        tilings = [tiling for schedule in SCHEDULES
                   for tiling in ranked(Target(problem, ALL_DEVICES[name], Options(schedule=schedule)))]
        assert len({tiling.loop.schedule for tiling in tilings}) == 3
        assert len({(tiling.loop.hidden, tiling.input, tiling.loop.units, tiling.loop.column_groups) for tiling in tilings}) == 1
        loop = tilings[0].loop
        assert loop.units == packed_units(problem) >= hidden
        assert loop.units % loop.hidden.together == 0
        assert loop.hidden.loads % loop.column_groups == 0
        assert loop.hidden.columns >= hidden


# Tilings

@pytest.mark.family("sizes", first=3)
@pytest.mark.parametrize("hidden", [100, 512, 3000, *(size for size in SIZES if size not in (100, 512, 3000))])
def test_loops_add_up_and_are_within_the_devices_limits(hidden):
    for info, loops in of_sizes([hidden], (1, 4, 9, 70)):
        for loop in loops:
            assert loop.workgroup % (8 * loop.column_groups) == 0
            assert loop.turn_units * loop.column_groups == loop.workgroup <= info.max_workgroup_invocations
            assert loop.parts * loop.part_units >= loop.problem.hidden > (loop.parts - 1) * loop.part_units
            assert loop.register_loads + loop.shared_loads + loop.streamed_loads == loop.group_loads
            assert min(loop.register_loads, loop.shared_loads, loop.streamed_loads) >= 0
            assert loop.streamed_loads % loop.stream_loads == 0
            assert loop.group_loads * loop.column_groups == loop.hidden.loads
            assert loop.turns == 1 or (loop.schedule, loop.register_loads, loop.shared_loads) == ("sequence", 0, 0)
            assert loop.shared_bytes + 48 <= info.max_shared_memory  # with arrays of one vec4 that are never used
            assert loop.constants["TILE_VECS"] * 16 == (loop.tile_bytes if loop.shared_state else 0)
            if loop.register_loads:
                assert registers(loop, gpu_rates(info)) <= gpu_rates(info).invocation_registers
                assert loop.weight_registers <= gpu_rates(info).most_weights


@pytest.mark.parametrize("shared_loads", [1, 8, 1000])
def test_forced_shared_memory_is_within_the_devices_limits(shared_loads):
    """And holds the weights of one turn alone."""
    in_turns = []
    for info, hidden in product((SMALLEST, *GPUS.values()), (64, 512, 3000)):
        loops = all_loops(make_problem(100, 9, 64, hidden), info, Options(shared_loads=shared_loads, register_loads=0))
        assert all(loop.shared_bytes + 48 <= info.max_shared_memory for loop in loops)
        in_turns += [loop.shared_loads for loop in loops if loop.turns > 1]
    assert set(in_turns) == {0}


@pytest.mark.family("each device with each cell")
@pytest.mark.parametrize("name", ALL_DEVICES)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_every_device_can_step_any_h(name, cell):
    """With vectors in the buffer where shared memory has no room for them."""
    for hidden, element in product((1, 1000, 5000, 10_000), ELEMENTS):
        problem, info = make_problem(2, 3, 10, hidden, cell=cell, element=element), ALL_DEVICES[name]
        loops = list(loops_of(Target(problem, info, Options(schedule="stepped")), "stepped"))
        assert loops
        assert all(loop.rows == 1 for loop in loops if not loop.shared_state)
        assert best(Target(problem, info, Options(schedule="stepped")))


# A group for each tile would be more workgroups than run side by side, so rows of other batches go through one after the other
@pytest.mark.parametrize("batch", [1, 2, 9, 33, 64, 65, 100, 257, 1000])
def test_rows_of_any_batch_of_a_class_have_their_place(batch):
    for name in UNLIKE:
        for schedule in ("stepped", "persistent"):
            for tiling in tilings(Target(make_problem(50, batch, 64, 256), ALL_DEVICES[name], Options(schedule=schedule)))[:5]:
                loop = tiling.loop
                assert loop.tiles <= loop.most_groups
                assert loop.tiles * loop.tiles_of_group * loop.rows >= batch > (loop.tiles - 1) * loop.tiles_of_group * loop.rows
                assert loop.states_bytes == (loop.slots_in_buffer * batch * loop.vector_bytes)


@pytest.mark.family("each GPU with each cell")
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", GPUS)
def test_parts_that_wait_and_were_not_asked_for_run_side_by_side(name, cell):
    info, waits = GPUS[name], 0
    for sizes in ((250, 1, 64, 128), (250, 1, 64, 512), (250, 1, 64, 1024, 2), (50, 200, 64, 256)):
        target = Target(make_problem(*sizes, cell=cell), info)
        for tiling in tilings(target):
            if tiling.loop.schedule == "persistent":
                waits += 1
                assert tiling.loop.workgroups <= resident_workgroups(tiling.loop, target)
                assert tiling.loop.parts > 1
    assert waits


def test_a_cpu_driver_runs_as_many_parts_as_it_has_cores():
    info = replace(DEVICES["llvmpipe"], cores=3)
    target = Target(make_problem(9, 4, 8, 64), info, Options(lanes=False, schedule="persistent"))
    assert resident_workgroups(best(target).loop, target) == 3


# Dispatches

def test_beginnings_and_ends_have_an_invocation_for_all():
    for cell, element, batch in product(CELLS, ELEMENTS, (1, 9, 300)):
        target = Target(make_problem(20, batch, 10, 45, 2, cell=cell, element=element), GPU, Options(schedule="persistent"))
        tiling = best(target)
        begin, *_, end = time_loop(target, tiling)
        loop, workgroup = tiling.loop, begin.constants["WORKGROUP"]
        assert begin.groups[0] * workgroup >= 2 * batch * loop.vector_bytes // 16
        assert end.groups[0] * workgroup >= 2 * batch * 45


def test_persistent_chunks_bound_the_buffer():
    for cell, batch in product(CELLS, (1, 50)):
        loop = best(Target(make_problem(20_000, batch, 64, 1024, cell=cell), GPUS["RTX 3090"], Options(schedule="persistent"))).loop
        words = loop.problem.loop.phases * loop.chunk_steps * batch * loop.vector_bytes
        assert words <= 64 * 2**20
        assert loop.states_bytes <= words + 4 * batch * loop.vector_bytes
        assert loop.chunk_steps < 20_000


def test_beginnings_are_within_llvmpipes_limit():
    """An invocation makes some of the slots."""
    target = Target(make_problem(1_000_000, 1, 8, 64), DEVICES["llvmpipe"], Options(lanes=False, schedule="persistent"))
    tiling = best(target)
    dispatches = time_loop(target, tiling)
    begin = max((dispatch for dispatch in dispatches if dispatch.kernel == "gpu/begin"), key=lambda one: one.push["last_step"] - one.push["first_step"])
    steps = begin.push["last_step"] - begin.push["first_step"]
    slots = -(-tiling.problem.loop.phases * steps // begin.groups[1])
    assert steps > 100
    assert slots + 8 <= tiling.iterations(steps) <= target.profile.most_iterations


# The size of subgroups

def test_narrow_subgroups_are_tried_where_a_driver_takes_wider_ones_and_can_be_told():
    for name, info in {**DEVICES, **GPUS}.items():
        problem = make_problem(100, 16, 64, 512)
        every = all_loops(problem, replace(info, subgroup_size_control=True, max_workgroup_subgroups=8))
        as_driver = [loop for loop in every if loop.subgroup_size == 0]
        assert all_loops(problem, info) == as_driver
        is_wide = 0 < info.min_subgroup_size <= 32 < info.subgroup_size
        assert ([loop for loop in every if loop.subgroup_size]
                == [replace(loop, subgroup_size=32) for loop in as_driver if is_wide and loop.workgroup <= 256]), name
    assert any(info.min_subgroup_size == 32 < info.subgroup_size for info in GPUS.values())


def test_the_time_loop_alone_asks_for_a_size_of_subgroups():
    """The best is timed in both."""
    info = replace(GPUS["RX 7900 XTX"], subgroup_size_control=True, max_workgroup_subgroups=32)
    for schedule, hidden in product((None, "sequence"), (256, 1024)):
        target = Target(make_problem(100, 1, 64, hidden), info, Options(schedule=schedule))
        timed = likely(target)
        assert all(replace(timed[0].loop, subgroup_size=size) in [tiling.loop for tiling in timed] for size in (0, 32))
        for tiling in timed:
            for dispatch in time_loop(target, tiling):
                assert dispatch.subgroup_size == ("gru" in dispatch.kernel) * tiling.loop.subgroup_size
