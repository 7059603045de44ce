"""The model ranks what it should: it need do no more."""

from dataclasses import replace

import pytest

from vkdml.planning.candidates import Planner
from vkdml.planning.costs import Costs
from vkdml.planning.options import Options
from vkdml_lab.suite.devices import CPU, DEVICES, GPU, GPUS, make_problem


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
        {"resident": False}, {"resident": True})]
    plain, resident = (tiling.compile_seconds(costs.machine) for tiling in tilings)
    assert plain < resident
    assert all(costs.seconds(tiling) == costs.run_seconds(tiling) + tiling.compile_seconds(costs.machine) for tiling in tilings)


def test_a_long_sequence_is_not_stepped():
    """Each phase of a step is a dispatch that waits."""
    tilings = [best(make_problem(500, 1, 64, 64), GPU, schedule=name) for name in ("sequence", "stepped")]
    sequence, stepped = map(Costs(GPU).seconds, tilings)
    assert stepped > sequence + 2 * 499 * Costs(GPU).rates.dispatch


def test_cores_share_tiles():
    """Two tiles take as long as one where there are two cores."""
    tiling = best(make_problem(50, 32, 64, 128), CPU, schedule="sequence", rows=16, lanes=True, resident=False)
    one, two, four = (Costs(replace(CPU, cores=cores)).step_seconds(tiling) for cores in (1, 2, 4))
    assert (two, four) == (one / 2, one / 2)


def test_a_gpus_units_share_workgroups():
    """Where weights stay: as many units as workgroups are as good as more, and fewer take longer."""
    info = GPUS["RTX 3090"]
    tiling = best(make_problem(50, 64, 64, 64), info, schedule="sequence", rows=1)
    assert (tiling.loop.workgroups, tiling.loop.streamed_loads) == (64, 0)
    seconds = [Costs(replace(info, compute_units=units)).step_seconds(tiling) for units in (128, 64, 32, 16)]
    assert seconds[0] == seconds[1] < seconds[2] < seconds[3]


def test_a_gpu_with_one_row_meets_in_flow():
    """A barrier waits for arrivals and for who counts them, and a dispatch for the one before: and all have the same work."""
    info, problem = GPUS["RTX 3090"], make_problem(250, 1, 64, 512)
    tilings = [best(problem, info, workgroup=512, **forced)
               for forced in ({"meeting": "flow"}, {"meeting": "barrier"}, {"schedule": "stepped"})]
    flow, barrier, stepped = map(Costs(info).step_seconds, tilings)
    assert flow < barrier < stepped
