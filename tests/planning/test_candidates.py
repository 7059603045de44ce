"""What is chosen, and what runs instead."""

from dataclasses import replace

import pytest

from vkdml.operators import cells, element_types
from vkdml.planning.candidates import Planner
from vkdml.planning.options import Options
from vkdml_lab.suite.devices import CPU, GPU, GPUS, make_problem


def test_a_gpu_gets_no_shuffles_and_shared_state():
    for schedule in ("sequence", "stepped", "persistent"):
        best = Planner(make_problem(10, 4, 64, 128), GPU, Options(schedule=schedule)).best()
        assert (best.loop.kernel, best.loop.lanes, best.loop.shared_state) == ("gpu/gru", 1, True)
        assert best.projection.kernel == "gpu/projection"


def test_a_gpu_gets_wide_workgroups_and_loads_in_blocks():
    """In sequence: wider than parts, which are many, and with more than one load of streamed weights under way at once."""
    sequence, stepped = (Planner(make_problem(10, 1, 64, 512), GPUS["RTX 3090"], Options(schedule=name)).best().loop
                         for name in ("sequence", "stepped"))
    assert sequence.workgroup == 512 > stepped.workgroup
    assert stepped.parts > 16
    assert 1 < sequence.stream_loads <= sequence.streamed_loads


@pytest.mark.parametrize("info", [CPU, GPU])
def test_float64_has_kernels_of_its_own(info):
    problem = make_problem(10, 4, 64, 128, element=element_types.FLOAT64)
    for tiling in Planner(problem, info).tilings():
        for cut in filter(None, (tiling.loop, tiling.projection)):
            assert (cut.kernel.partition("/")[0], cut.rows, cut.units_at_once) == ("float64", 1, 1)


def test_parts_leave_every_core_its_own():
    found = [Planner(make_problem(1, 1, 64, 512, d), replace(CPU, cores=8), Options(schedule="stepped")).best().loop.parts for d in (1, 2)]
    assert found == [8, 4]


@pytest.mark.parametrize(("info", "options"), [
    *((info, options) for info in (replace(CPU, cores=2), GPU, GPUS["RTX 3090"]) for options in (
        Options(), Options(meeting="barrier"), Options(meeting="flow", rows=4), Options(register_loads=0, shared_loads=1))),
], ids=str)
def test_a_fallback_has_the_same_weights_and_room(info, options):
    planner = Planner(make_problem(100, 9, 256, 256, cell=cells.LSTM), info, replace(options, schedule="persistent"))
    for tiling in planner.tilings():
        for other in planner.fallbacks(tiling):
            assert (other.loop.schedule, other.loop.meeting) in (("sequence", None), ("stepped", None))
            assert other.loop.spins == 0
            assert (other.input, other.loop.hidden, other.projection) == (tiling.input, tiling.loop.hidden, tiling.projection)
            assert other.loop.units == tiling.loop.units
            assert other.loop.states_bytes <= tiling.loop.states_bytes
            assert other.loop.workgroup <= info.max_workgroup_invocations


def test_chunks_are_bounded_by_the_options():
    best = Planner(make_problem(100, 4, 64, 64), CPU, Options(schedule="sequence", fused=False, chunk_steps=7, workspace_bytes=50_000)).best()
    assert best.loop.chunk_steps == 7
    assert best.projection.chunk_steps == 50_000 // best.projection.step_bytes < 100


def test_a_submission_takes_no_seconds():
    planner = Planner(make_problem(100_000, 1, 64, 1024), GPUS["RTX 3090"], Options(schedule="sequence"))
    best = planner.best()
    assert 0.04 < best.loop.chunk_steps * planner.costs.step_seconds(best) <= 0.05


def test_steps_that_would_be_too_many_to_record_are_no_choice():
    schedules = [{tiling.loop.schedule for tiling in Planner(make_problem(steps, 1, 64, 512), GPUS["RTX 3090"]).tilings()}
                 for steps in (1000, 1001)]
    assert schedules == [{"sequence", "stepped", "persistent"}, {"sequence", "persistent"}]  # a step of a GRU has two phases
