"""What is chosen, what runs instead, that the model ranks what it should, and that whatever a kernel reads or writes has its place."""

from dataclasses import replace
from random import Random

import pytest

from vkdml.operators import cells
from vkdml.planning.options import Options
from vkdml.planning.plan import best, fallbacks, tilings
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import CPU, DEVICES, GPU, GPUS, make_problem, random_problem


@pytest.mark.parametrize(("info", "options"), [
    *((info, options) for info in (replace(CPU, cores=2), GPU, GPUS["RTX 3090"]) for options in (
        Options(), Options(rows=4), Options(register_loads=0, shared_loads=1))),
], ids=str)
def test_a_fallback_has_the_same_weights_and_room(info, options):
    target = Target(make_problem(100, 9, 256, 256, cell=cells.LSTM), info, replace(options, schedule="persistent"))
    for tiling in tilings(target):
        for other in fallbacks(target, tiling):
            assert other.loop.schedule in ("sequence", "stepped")
            assert other.loop.spins == 0
            assert (other.input, other.loop.hidden, other.projection) == (tiling.input, tiling.loop.hidden, tiling.projection)
            assert other.loop.units == tiling.loop.units
            assert other.loop.states_bytes <= tiling.loop.states_bytes
            assert other.loop.workgroup <= info.max_workgroup_invocations


def test_steps_that_would_be_too_many_to_record_are_no_choice():
    schedules = [{tiling.loop.schedule for tiling in tilings(Target(make_problem(steps, 1, 64, 512), GPUS["RTX 3090"]))}
                 for steps in (1000, 1001)]
    assert schedules == [{"sequence", "stepped", "persistent"}, {"sequence", "persistent"}]  # a step of a GRU has two phases


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


def test_a_gpu_with_one_row_is_persistent():
    """Waiting for words is shorter than waiting for a dispatch, and both have the same work."""
    info, problem = GPUS["RTX 3090"], make_problem(250, 1, 64, 512)
    persistent, stepped = (step_seconds(chosen(problem, info, workgroup=512, schedule=schedule), info)
                           for schedule in ("persistent", "stepped"))
    assert persistent < stepped


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("info", DEVICES.values(), ids=list(DEVICES))
def test_every_row_unit_and_column_has_its_place(info, seed):
    problem = random_problem(Random(seed), info)
    for tiling in tilings(Target(problem, info)):
        loop, projection = tiling.loop, tiling.projection
        tiles_of_group = loop.tiles_of_group if loop.kernel.startswith("gpu/") else 1
        assert loop.tiles * tiles_of_group * loop.rows >= problem.batch
        assert loop.parts * loop.part_units >= problem.hidden
        assert loop.units >= problem.hidden
        if not loop.kernel.startswith("gpu/"):  # whose units past H have the weights of the last
            assert loop.parts * loop.part_units >= loop.units
        assert loop.hidden.columns >= problem.hidden
        assert tiling.input.columns >= problem.input_size
        for packing in (loop.hidden, tiling.input):
            assert loop.units % packing.together == 0
        if projection:
            assert projection.group_units * projection.groups_of_units >= loop.units
            assert projection.tiles(7) * projection.rows >= 7 * problem.batch
            assert projection.input is tiling.input
