"""The model ranks what it should: it need do no more."""


import pytest

from vkdml.planning.options import Options
from vkdml.planning.plan import best
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import DEVICES, GPU, GPUS, make_problem


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


def test_a_long_sequence_is_not_stepped():
    """Each phase of a step is a dispatch that waits."""
    target = Target(make_problem(500, 1, 64, 64), GPU)
    sequence, stepped = (chosen(target.problem, GPU, schedule=name).seconds(target) for name in ("sequence", "stepped"))
    assert stepped > sequence + 2 * 499 * target.profile.rates.dispatch


def test_a_gpu_with_one_row_meets_in_flow():
    """A barrier waits for arrivals and for who counts them, and a dispatch for the one before: and all have the same work."""
    info, problem = GPUS["RTX 3090"], make_problem(250, 1, 64, 512)
    flow, barrier, stepped = (step_seconds(chosen(problem, info, workgroup=512, **forced), info)
                              for forced in ({"meeting": "flow"}, {"meeting": "barrier"}, {"schedule": "stepped"}))
    assert flow < barrier < stepped
