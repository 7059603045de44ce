"""What is chosen, and what runs instead."""

from dataclasses import replace

import pytest

from tests.planning.devices import CPU, GPU, make_problem
from vkdml.planning import profiles
from vkdml.planning.candidates import Planner
from vkdml.planning.options import Options
from vkdml.spec import cells, element_types


def test_a_gpu_gets_no_shuffles_and_shared_state():
    loop = Planner(make_problem(10, 4, 64, 128), GPU, Options(schedule="sequence", fused=False)).best().loop
    assert (loop.kernel, loop.lanes, loop.shared_state) == (profiles.GPU, 1, True)


def test_a_gpu_gets_wide_workgroups_and_loads_in_blocks():
    options = [Options(schedule=name, fused=False) for name in ("sequence", "stepped")]
    tilings = [Planner(make_problem(10, 1, 64, 512), GPU, forced).best() for forced in options]
    assert [(tiling.projection.workgroup, tiling.loop.workgroup) for tiling in tilings] == [(64, 512), (32, 32)]
    assert all(cut.block_loads == 4 for tiling in tilings for cut in (tiling.loop, tiling.projection))


@pytest.mark.parametrize("info", [CPU, GPU])
def test_float64_has_kernels_of_its_own(info):
    problem = make_problem(10, 4, 64, 128, element=element_types.FLOAT64)
    for tiling in Planner(problem, info).tilings():
        for cut in filter(None, (tiling.loop, tiling.projection)):
            assert (cut.kernel, cut.rows, cut.units_at_once) == (profiles.FLOAT64, 1, 1)


def test_parts_leave_every_core_its_own():
    found = [Planner(make_problem(1, 1, 64, 512, d), replace(CPU, cores=8), Options(schedule="stepped")).best().loop.parts for d in (1, 2)]
    assert found == [8, 4]


@pytest.mark.parametrize("info", [replace(CPU, cores=2), GPU])
@pytest.mark.parametrize("options", [Options(), Options(resident=True, parts=2), Options(fused=True), Options(row_lanes=True)])
def test_a_fallback_has_the_same_weights_and_room(info, options):
    if info is GPU:
        options = replace(options, resident=None, row_lanes=None)
    planner = Planner(make_problem(100, 9, 256, 256, cell=cells.LSTM), info, replace(options, schedule="persistent"))
    for tiling in planner.tilings():
        for other in planner.fallbacks(tiling):
            assert other.loop.schedule != "persistent"
            assert other.loop.spins == 0
            assert (other.input, other.loop.hidden, other.projection) == (tiling.input, tiling.loop.hidden, tiling.projection)
            assert other.loop.units == tiling.loop.units
            assert other.loop.states_bytes <= tiling.loop.states_bytes
            assert other.loop.workgroup <= info.max_workgroup_invocations


def test_a_fallback_shares_out_the_rows():
    """Unlike the parts that it stands in for, as those share out the units."""
    planner = Planner(make_problem(100, 4, 256, 256), replace(CPU, cores=2), Options(schedule="persistent", resident=True))
    best = planner.best()
    fallback = planner.fallbacks(best)[0]
    assert (best.loop.tiles, best.loop.parts) == (1, 2)
    assert (fallback.loop.tiles, fallback.loop.parts) == (2, 1)


def test_chunks_are_bounded_by_the_options():
    best = Planner(make_problem(100, 4, 64, 64), CPU, Options(schedule="sequence", fused=False, chunk_steps=7, workspace_bytes=50_000)).best()
    assert best.loop.chunk_steps == 7
    assert best.projection.chunk_steps == 50_000 // best.projection.step_bytes < 100


def test_a_submission_takes_no_seconds():
    planner = Planner(make_problem(100_000, 1, 64, 1024), GPU, Options(schedule="sequence"))
    best = planner.best()
    assert 0.4 < best.loop.chunk_steps * planner.costs.step_seconds(best) <= 0.5


def test_steps_that_would_be_too_many_to_record_are_no_choice():
    schedules = [{tiling.loop.schedule for tiling in Planner(make_problem(steps, 1, 64, 512), GPU).tilings()} for steps in (1000, 1001)]
    assert schedules == [{"sequence", "stepped"}, {"sequence"}]  # a step of a GRU has two phases
