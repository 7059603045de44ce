"""The model ranks what it should: it need do no more."""

from dataclasses import replace

import pytest

from vkdml.planning.options import Options
from vkdml.planning.plan import best
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import CPU, DEVICES, GPU, GPUS, make_problem


def chosen(problem, info, **forced):
    return best(Target(problem, info, Options(**forced)))


def step_seconds(tiling, info):
    return tiling.step_seconds(Target(tiling.problem, info))


@pytest.mark.parametrize("info", DEVICES.values(), ids=list(DEVICES))
def test_more_takes_longer(info):
    sizes = [(10, 1, 64, 64), (20, 1, 64, 64), (20, 64, 64, 64), (20, 64, 64, 300), (20, 64, 512, 300)]
    targets = [Target(make_problem(*size), info) for size in sizes]
    seconds = [best(target).run_seconds(target) for target in targets]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)


def test_compiling_is_counted_apart():
    target = Target(make_problem(20, 32, 64, 64), CPU)
    both = [chosen(target.problem, CPU, schedule="sequence", resident=resident) for resident in (False, True)]
    plain, resident = (tiling.compile_seconds(target) for tiling in both)
    assert plain < resident


def test_a_long_sequence_is_not_stepped():
    """Each phase of a step is a dispatch that waits."""
    target = Target(make_problem(500, 1, 64, 64), GPU)
    sequence, stepped = (chosen(target.problem, GPU, schedule=name).seconds(target) for name in ("sequence", "stepped"))
    assert stepped > sequence + 2 * 499 * target.profile.rates.dispatch


def test_cores_share_tiles():
    """Two tiles take as long as one where there are two cores."""
    tiling = chosen(make_problem(50, 32, 64, 128), CPU, schedule="sequence", rows=16, lanes=True, resident=False)
    one, two, four = (step_seconds(tiling, replace(CPU, cores=cores)) for cores in (1, 2, 4))
    assert (two, four) == (one / 2, one / 2)


def test_a_gpus_units_share_workgroups():
    """Where weights stay: as many units as workgroups are as good as more, and fewer take longer."""
    info = GPUS["RTX 3090"]
    tiling = chosen(make_problem(50, 64, 64, 64), info, schedule="sequence", rows=1)
    assert (tiling.loop.workgroups, tiling.loop.streamed_loads) == (64, 0)
    seconds = [step_seconds(tiling, replace(info, compute_units=units)) for units in (128, 64, 32, 16)]
    assert seconds[0] == seconds[1] < seconds[2] < seconds[3]


def test_a_gpu_with_one_row_meets_in_flow():
    """A barrier waits for arrivals and for who counts them, and a dispatch for the one before: and all have the same work."""
    info, problem = GPUS["RTX 3090"], make_problem(250, 1, 64, 512)
    flow, barrier, stepped = (step_seconds(chosen(problem, info, workgroup=512, **forced), info)
                              for forced in ({"meeting": "flow"}, {"meeting": "barrier"}, {"schedule": "stepped"}))
    assert flow < barrier < stepped
