"""The model ranks what it should: it need do no more."""

from dataclasses import replace

import pytest

from tests.planning.devices import CPU, DEVICES, GPU, make_problem
from vkdml.planning.candidates import Planner
from vkdml.planning.costs import Costs
from vkdml.planning.options import Options


def best(problem, info, **forced):
    return Planner(problem, info, Options(**forced)).best()


@pytest.mark.parametrize("info", DEVICES.values(), ids=list(DEVICES))
def test_more_takes_longer(info):
    sizes = [(10, 1, 64, 64), (20, 1, 64, 64), (20, 64, 64, 64), (20, 64, 64, 300), (20, 64, 512, 300)]
    seconds = [Costs(info).run_seconds(best(make_problem(*size), info)) for size in sizes]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)


def test_compiling_is_counted_apart():
    costs, problem = Costs(CPU), make_problem(20, 32, 64, 64)
    tilings = [best(problem, CPU, schedule="sequence", **forced) for forced in (
        {"resident": False, "row_lanes": False, "projection_row_lanes": False}, {"resident": True}, {"row_lanes": True})]
    plain, resident, rows = map(costs.compile_seconds, tilings)
    assert plain < resident < rows
    assert all(costs.seconds(tiling) == costs.run_seconds(tiling) + costs.compile_seconds(tiling) for tiling in tilings)


def test_a_long_sequence_is_not_stepped():
    """Each phase of a step is a dispatch that waits."""
    tilings = [best(make_problem(500, 1, 64, 64), GPU, schedule=name) for name in ("sequence", "stepped")]
    sequence, stepped = map(Costs(GPU).seconds, tilings)
    assert stepped > sequence + 2 * 499 * Costs(GPU).rates.dispatch


def test_cores_share_tiles():
    """Two tiles take as long as one where there are two cores."""
    tiling = best(make_problem(50, 32, 64, 128), CPU, schedule="sequence", rows=16, lanes=True, row_lanes=False, resident=False)
    one, two, four = (Costs(replace(CPU, cores=cores)).step_seconds(tiling) for cores in (1, 2, 4))
    assert (two, four) == (one / 2, one / 2)


def test_a_gpu_runs_a_workgroup_on_one_core():
    """Four of its subgroups at a time, so that eight take twice as long."""
    problem = make_problem(50, 1, 64, 256)
    narrow, wide = (best(problem, GPU, schedule="sequence", workgroup=size) for size in (128, 256))
    assert narrow.loop.part_units == wide.loop.part_units
    assert Costs(GPU).step_seconds(narrow) == Costs(GPU).step_seconds(wide)
