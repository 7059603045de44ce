"""The grid-sync test sees what would go wrong if workgroups that wait for each other did not run at once, or see each other's stores."""

from dataclasses import replace
from itertools import count
from math import prod
from types import SimpleNamespace

import pytest

from vkdml.engine.trust import trial
from vkdml.engine.trust.self_test import pipelines
from vkdml.engine.trust.trial import (
    CHANGING_BITS,
    GAVE_UP,
    NONE_MAY_WAIT,
    OTHER_BITS,
    SAME_BITS,
    GridSync,
    grid_sync_test,
    plans_of_test,
)
from vkdml.operators.cells import GRU, LSTM
from vkdml.planning.options import Options
from vkdml.planning.plan import Measured, described, tilings
from vkdml.planning.size_classes import Sizes
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import GPU, GPUS
from vkdml_lab.suite.support import CELLS

RUNS = 7


@pytest.fixture
def small(tuned, monkeypatch):
    """What a CPU driver runs in a moment."""
    monkeypatch.setattr(trial, "_HIDDEN", (64,))
    sizes = Sizes(9, 1), Sizes(5, 20), Sizes(30, 1)
    monkeypatch.setattr(trial, "_RUNS", dict(zip(sizes, trial._RUNS.values())))
    return tuned.gpu


@pytest.fixture
def without_waiting(small, monkeypatch):
    """In one workgroup: whether several run at once is a matter of what else the machine does."""
    asked = []

    def in_sequence(info, problem, sync, measured=None):
        asked.append((problem.cell.name, problem.steps, problem.batch, measured and measured.step_seconds > 0))
        return trial._alone(info, problem)

    monkeypatch.setattr(trial, "_persistent", in_sequence)
    return asked


@pytest.mark.parametrize("cell", [GRU, LSTM], ids=lambda cell: cell.name)
def test_what_agrees_passes(small, without_waiting, cell):
    assert grid_sync_test(small, GridSync(cell)) == SAME_BITS
    assert without_waiting[3:] == [(cell.name, 9, 1, None), (cell.name, 5, 20, True), (cell.name, 30, 1, True)]


@pytest.fixture
def with_results(monkeypatch):
    """with_results(change): change(bytes of h, number of the run) is done to all that is compared with single workgroups'."""
    def make(change):
        made, numbers = [], count()

        class Changed(trial.Trial):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                self.is_alone = len(made) % 2 == 0
                made.append(self)

            def outputs(self):
                results = super().outputs()
                if not self.is_alone:
                    change(results["OutputSequenceTensor"], next(numbers))
                return results

        monkeypatch.setattr(trial, "Trial", Changed)
    return make


LOWEST, EXPONENT = 0, 3  # bytes of the first number


@pytest.mark.parametrize("first", [0, 1, RUNS, 2 * RUNS])
def test_wrong_numbers_are_seen(small, without_waiting, with_results, first):
    def change(result, number):
        if number >= first:
            result[EXPONENT] ^= 1

    with_results(change)
    verdict = grid_sync_test(small, GridSync(GRU))
    assert not verdict.passed
    assert verdict.found.startswith("wrong numbers: OutputSequenceTensor: ")


@pytest.mark.parametrize("cell", [GRU, LSTM], ids=lambda cell: cell.name)
def test_another_rounding_in_all_runs_passes(small, without_waiting, with_results, cell):
    def change(result, number):
        result[LOWEST] ^= 1

    with_results(change)
    assert grid_sync_test(small, GridSync(cell)) == OTHER_BITS


@pytest.mark.parametrize("others", [range(1), range(1, 2), range(RUNS, 3 * RUNS), range(2 * RUNS, 3 * RUNS), range(2 * RUNS)],
                         ids=str)
def test_another_rounding_in_some_runs_is_seen(small, without_waiting, with_results, others):
    def change(result, number):
        result[LOWEST] ^= number in others

    with_results(change)
    assert grid_sync_test(small, GridSync(GRU)) == CHANGING_BITS


def test_giving_up_fails(small, without_waiting, monkeypatch):
    monkeypatch.setattr(trial.Run, "timeouts", 1)
    assert grid_sync_test(small, GridSync(GRU)) == GAVE_UP


@pytest.mark.family("each device with each cell")
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_what_is_run_has_all_that_may_go_wrong(gpu, cell):
    """As many workgroups as may be chosen, several tiles in each, and a long run; and few pipelines, which take long to make."""
    few, _, tiles, _, long, _ = plans_of_test(GPUS[gpu], GridSync(cell))
    target = Target(tiles.tiling.problem, GPUS[gpu], Options(schedule="persistent", rows=1))
    counts = {tiling.loop.workgroups for tiling in tilings(target) if tiling.fits_side_by_side(target)}
    assert max(prod(dispatch.groups) for dispatch in tiles.execute if "persistent" in dispatch.kernel) == max(counts)
    assert tiles.tiling.loop.tiles_of_group > 1
    assert few.tiling.loop.tiles_of_group == 1 < few.tiling.loop.parts
    assert long.tiling.problem.steps >= long.tiling.loop.chunk_steps >= 5000
    of_all = [pipelines(plan) for plan in plans_of_test(GPUS[gpu], GridSync(cell))]
    assert len(set().union(*of_all)) <= 13


def test_a_long_run_has_shorter_dispatches_where_short_ones_took_long():
    (few, *_, long, _), info = plans_of_test(GPU, GridSync(GRU)), GPU
    slow = Measured(described(few.tiling), 1e-4)
    assert trial._persistent(info, long.tiling.problem, GridSync(GRU), slow).tiling.loop.chunk_steps == pytest.approx(500, rel=0.1)


def test_where_nothing_may_wait_nothing_is_tried(small, monkeypatch):
    alone = replace(small.info, max_workgroup_invocations=1)
    monkeypatch.setattr(trial, "Run", None)
    assert grid_sync_test(SimpleNamespace(info=alone, compile=list), GridSync(GRU)) == NONE_MAY_WAIT
    assert all(list(plans_of_test(alone, GridSync(cell))) == [] for cell in CELLS)
