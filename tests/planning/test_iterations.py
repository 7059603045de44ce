"""No dispatch has more loop iterations than its driver gives it, and none far fewer where there is more to do.

That the bound is not too small is shown on a device: lab/vkdml_lab/suite/test_reference.py::test_long_and_wide.
"""

from dataclasses import replace
from random import Random

import pytest

import vkdml
from vkdml.operators import element_types
from vkdml.planning.loop_dispatches import time_loop
from vkdml.planning.options import Options
from vkdml.planning.plan import best, fallbacks
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import CPU, DEVICES, make_problem, random_problem
from vkdml_lab.suite.support import CELLS, SCHEDULES, options_on

LIMIT = 65_535  # of llvmpipe
LLVMPIPES = [info for info in DEVICES.values() if info.driver == "llvmpipe"]


def bounds(target, tiling):
    """Of each dispatch."""
    found = []
    for dispatch in time_loop(target, tiling):
        if dispatch.kernel in ("gpu/begin", "gpu/end"):  # test_gpu_loop.py
            continue
        steps = dispatch.push["last_step"] - dispatch.push["first_step"]
        is_projection = "projection" in dispatch.kernel
        found.append(tiling.loops_of_projection() if is_projection else tiling.iterations(steps))
    return found


@pytest.mark.family("random problems", first=80)
@pytest.mark.parametrize("seed", range(200))
def test_every_dispatch_is_within_the_limit(seed):
    rng = Random(seed)
    info = rng.choice(LLVMPIPES)
    problem = random_problem(rng, info)
    target = Target(problem, info, options_on(info, rng.choice(list(SCHEDULES)), problem.element))
    try:
        chosen = best(target)
    except vkdml.InvalidArgumentError:
        chosen = best(Target(problem, info))
    found = [chosen, *fallbacks(target, chosen)] if chosen.loop.schedule == "persistent" else [chosen]
    assert all(bound <= LIMIT for tiling in found for bound in bounds(target, tiling))


@pytest.mark.parametrize("options", [Options(), Options(lanes=False), Options(resident=True)], ids=str)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_long_sequences_are_few_dispatches(cell, options):
    target = Target(make_problem(50_000, 1, 64, 128, cell=cell), CPU, replace(options, schedule="sequence"))
    tiling = best(target)
    steps = tiling.loop.chunk_steps
    assert tiling.iterations(steps) > 0.9 * target.profile.most_iterations or steps * tiling.step_seconds(target) > 0.4


def test_steps_are_as_many_as_fit():
    tiling = best(Target(make_problem(100, 4, 64, 128), CPU))
    for limit in (5_000, 60_000):
        steps = tiling.steps_within(limit)
        assert tiling.iterations(steps) <= limit < tiling.iterations(steps + 1)


@pytest.mark.parametrize("element", element_types.ALL, ids=lambda element: element.name)
def test_what_is_too_wide_is_not_chosen(element):
    """One row of x alone has more."""
    problem = make_problem(2, 1, 30_000_000, 1, element=element)
    with pytest.raises(vkdml.InvalidArgumentError, match="can loop over in one dispatch"):
        best(Target(problem, CPU))
