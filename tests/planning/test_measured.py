"""What was measured takes the place of what the model expects."""

import json
from dataclasses import replace
from itertools import product

import pytest

from vkdml.operators import cells, element_types
from vkdml.planning.options import Options
from vkdml.planning.plan import Measured, as_measured, best, described, tilings
from vkdml.planning.size_classes import representative, resized
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import DEVICES, GPUS, make_problem
from vkdml_lab.suite.devices import GPU as SMALL

GPU = replace(SMALL, vendor=0x10DE, compute_units=82, max_shared_memory=49152)
SIZES = (250, 1, 64, 512)  # T, B, I and H: a representative


def target_with(number, step_seconds, *sizes, schedule=None):
    """Of a problem in whose size class the tiling of this rank was measured."""
    options = Options(schedule=schedule)
    tiling = tilings(Target(resized(make_problem(*sizes)), GPU, options))[number]
    return as_measured(Target(make_problem(*sizes), GPU, options), Measured(described(tiling), step_seconds)), tiling


@pytest.mark.parametrize("info", DEVICES.values(), ids=list(DEVICES))
@pytest.mark.parametrize("element", [element_types.FLOAT32, element_types.FLOAT64], ids=lambda element: element.name)
def test_tilings_are_told_apart_by_what_is_kept_of_them(info, element):
    found = [described(tiling) for tiling in tilings(Target(make_problem(50, 9, 100, 200, element=element), info))]
    kept = [json.dumps(each) for each in found]
    assert len(set(kept)) == len(found)
    assert [json.loads(text) for text in kept] == found


@pytest.mark.parametrize("number", range(3))
def test_the_one_that_was_the_fastest_is_chosen(number):
    target, tiling = target_with(number, 1e-5, *SIZES)
    assert described(best(target)) == described(tiling)
    assert best(target).problem.steps == SIZES[0]


def test_what_is_no_tiling_any_more_changes_nothing():
    problem = make_problem(*SIZES)
    target = Target(problem, GPU)
    assert as_measured(target, Measured({"loop": "of old"}, 1.0)) is as_measured(target, None) is target


def test_a_larger_batch_of_the_class_takes_as_many_times_longer_as_the_model_says():
    (few, _), (many, _) = (target_with(0, 0.01, 50, batch, 64, 512, schedule="sequence") for batch in (129, 1024))
    assert best(many).step_seconds(many) > 1.5 * best(few).step_seconds(few)


@pytest.mark.parametrize("cell", cells.BY_DESC.values(), ids=lambda cell: cell.name)
@pytest.mark.parametrize("element", [element_types.FLOAT16, element_types.FLOAT64], ids=lambda element: element.name)
def test_the_representative_is_a_problem_of_its_sizes(cell, element):
    for steps, batch in ((1, 1), (3, 7), (17, 1), (1000, 33)):
        others = (5, 7, 2)
        made = resized(make_problem(steps, batch, *others, cell=cell, element=element))
        assert made == make_problem(*representative(steps, batch), *others, cell=cell, element=element)
        assert resized(made) == made


@pytest.mark.parametrize("info", GPUS.values(), ids=list(GPUS))
def test_steps_of_four_times_the_models_time_are_waited_for(info):
    """However many there are, as each wait is counted alone: ten of them would be."""
    for cell, sizes in product(cells.BY_DESC.values(), ((1_000_000, 1), (10_000, 100))):
        target = Target(make_problem(*sizes, 64, 512, cell=cell), info, Options(schedule="persistent"))
        for tiling in tilings(target):
            loop, looks = tiling.loop, 4 * tiling.step_seconds(target) / target.gpu.latency
            if tiling.fits_side_by_side(target):
                assert looks < 0.1 * loop.spins
                assert not loop.counted_together


def test_meetings_that_failed_are_not_chosen_but_may_be_forced():
    problem = make_problem(*SIZES)
    assert not [t for t in tilings(Target(problem, GPU, may_wait=False)) if t.loop.schedule == "persistent"]
    assert best(Target(problem, GPU, Options(schedule="persistent"), may_wait=False)).loop.schedule == "persistent"
