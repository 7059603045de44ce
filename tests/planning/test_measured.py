"""What was measured takes the place of what the model expects."""

import json
from dataclasses import replace
from itertools import product

import pytest

from vkdml.operators import cells, element_types
from vkdml.planning.candidates import Planner
from vkdml.planning.costs import Measured, described
from vkdml.planning.options import Options
from vkdml.planning.plan import plan_of
from vkdml.planning.size_classes import of_representative, representative
from vkdml_lab.suite.devices import DEVICES, GPUS, make_problem
from vkdml_lab.suite.devices import GPU as SMALL

GPU = replace(SMALL, vendor=0x10DE, compute_units=82, max_shared_memory=49152)
SIZES = (250, 1, 64, 512)  # T, B, I and H: a representative


def planner_with(number, step_seconds, *sizes, schedule=None):
    """Of a problem in whose size class the tiling of this rank was measured."""
    options = Options(schedule=schedule)
    tiling = Planner(of_representative(make_problem(*sizes)), GPU, options).tilings()[number]
    return Planner(make_problem(*sizes), GPU, options, Measured(described(tiling), step_seconds)), tiling


@pytest.mark.parametrize("info", DEVICES.values(), ids=list(DEVICES))
@pytest.mark.parametrize("element", [element_types.FLOAT32, element_types.FLOAT64], ids=lambda element: element.name)
def test_tilings_are_told_apart_by_what_is_kept_of_them(info, element):
    found = [described(tiling) for tiling in Planner(make_problem(50, 9, 100, 200, element=element), info).tilings()]
    kept = [json.dumps(each) for each in found]
    assert len(set(kept)) == len(found)
    assert [json.loads(text) for text in kept] == found


@pytest.mark.parametrize("number", range(3))
def test_the_one_that_was_the_fastest_is_chosen(number):
    planner, tiling = planner_with(number, 1e-5, *SIZES)
    assert described(planner.best()) == described(tiling)
    assert planner.best().problem.steps == SIZES[0]


def test_what_is_no_tiling_any_more_changes_nothing():
    problem = make_problem(*SIZES)
    assert Planner(problem, GPU, measured=Measured({"loop": "of old"}, 1.0)).best() == Planner(problem, GPU).best()


def test_a_submission_takes_no_seconds_by_what_was_measured():
    planner, tiling = planner_with(0, 0.01, *SIZES, schedule="sequence")
    assert tiling.projection
    best, costs = planner.best(), planner.costs
    assert (SIZES[0] * costs.step_seconds(best) + costs.projection_seconds(best, SIZES[0])
            == pytest.approx(SIZES[0] * 0.01, rel=1e-6))
    submissions = [0.0]
    for dispatch in plan_of(planner, best).execute:
        steps = dispatch.push["last_step"] - dispatch.push["first_step"]
        if dispatch.starts_submission:
            submissions.append(0.0)
        submissions[-1] += (costs.projection_seconds(best, steps) if "projection" in dispatch.kernel
                            else steps * costs.step_seconds(best))
    assert max(submissions) <= planner.profile.submission_seconds * (1 + 1e-9)
    assert sum(submissions) == pytest.approx(SIZES[0] * 0.01, rel=0.1)


def test_a_larger_batch_of_the_class_takes_as_many_times_longer_as_the_model_says():
    (few, _), (many, _) = (planner_with(0, 0.01, 50, batch, 64, 512, schedule="sequence") for batch in (129, 1024))
    assert many.costs.step_seconds(many.best()) > 1.5 * few.costs.step_seconds(few.best())


@pytest.mark.parametrize("cell", cells.BY_DESC.values(), ids=lambda cell: cell.name)
@pytest.mark.parametrize("element", [element_types.FLOAT16, element_types.FLOAT64], ids=lambda element: element.name)
def test_the_representative_is_a_problem_of_its_sizes(cell, element):
    for steps, batch in ((1, 1), (3, 7), (17, 1), (1000, 33)):
        others = (5, 7, 2)
        made = of_representative(make_problem(steps, batch, *others, cell=cell, element=element))
        assert made == make_problem(*representative(steps, batch), *others, cell=cell, element=element)
        assert of_representative(made) == made


def test_waiting_is_chosen_where_there_is_room_for_all_workgroups():
    few = replace(GPU, compute_units=4)
    for problem in (make_problem(*SIZES), make_problem(50, 200, 64, 512)):
        for info in (GPU, few):
            planner, forced = Planner(problem, info), Planner(problem, info, Options(schedule="persistent"))
            waits = [t for t in planner.tilings() if t.loop.schedule == "persistent"]
            assert all(t.fits_side_by_side(planner.machine) for t in waits)
            assert not all(t.fits_side_by_side(forced.machine) for t in forced.tilings()) or info is GPU
    assert [t for t in Planner(make_problem(*SIZES), GPU).tilings() if t.loop.schedule == "persistent"]


@pytest.mark.parametrize("info", GPUS.values(), ids=list(GPUS))
def test_steps_of_four_times_the_models_time_are_waited_for(info):
    """However many there are, as each wait is counted anew: ten of them would be."""
    for cell, sizes in product(cells.BY_DESC.values(), ((1_000_000, 1), (10_000, 100))):
        planner = Planner(make_problem(*sizes, 64, 512, cell=cell), info, Options(schedule="persistent"))
        for tiling in planner.tilings():
            loop, looks = tiling.loop, 4 * planner.costs.step_seconds(tiling) / planner.machine.gpu.latency
            if tiling.fits_side_by_side(planner.machine):
                assert looks < 0.1 * loop.spins
                assert not loop.counted_together


def test_meetings_that_failed_are_not_chosen_but_may_be_forced():
    problem, failed = make_problem(*SIZES), frozenset(["barrier", "flow"])
    assert not [t for t in Planner(problem, GPU, without=failed).tilings() if t.loop.schedule == "persistent"]
    assert Planner(problem, GPU, Options(schedule="persistent"), without=failed).best().loop.schedule == "persistent"
