"""The test of meetings sees what would go wrong if workgroups that wait for each other did not meet."""

from dataclasses import replace
from itertools import product
from math import prod
from types import SimpleNamespace

import pytest

import vkdml
from tests.planning.devices import GPU, GPUS
from tests.support import CELLS
from vkdml.engine.trust import trial
from vkdml.engine.trust.self_test import pipelines
from vkdml.engine.trust.trial import Meeting, plans_of_test, workgroups_meet
from vkdml.operators.cells import GRU, LSTM
from vkdml.planning.candidates import Planner
from vkdml.planning.costs import Measured, described
from vkdml.planning.options import Options
from vkdml.planning.size_classes import Sizes

RUNS = 7


@pytest.fixture
def small(tuned, monkeypatch):
    """What a CPU driver runs in a moment."""
    monkeypatch.setattr(trial, "_HIDDEN", (64,))
    sizes = Sizes(9, 1), Sizes(5, 20), Sizes(30, 1)
    monkeypatch.setattr(trial, "_TESTS", tuple(replace(test, sizes=its) for test, its in zip(trial._TESTS, sizes)))
    return tuned.gpu


@pytest.fixture
def without_waiting(small, monkeypatch):
    """In one workgroup: whether several meet is a matter of what else the machine does."""
    asked = []

    def in_sequence(info, problem, meeting, measured=None):
        asked.append((problem.cell.name, problem.steps, problem.batch, meeting.waits_by, measured and measured.step_seconds > 0))
        return trial._alone(info, problem)

    monkeypatch.setattr(trial, "_persistent", in_sequence)
    return asked


@pytest.mark.device
@pytest.mark.parametrize("cell", [GRU, LSTM], ids=lambda cell: cell.name)
def test_what_agrees_passes(small, without_waiting, cell):
    assert workgroups_meet(small, Meeting(cell, "flow"))
    assert without_waiting[3:] == [(cell.name, 9, 1, "flow", None), (cell.name, 5, 20, "flow", True), (cell.name, 30, 1, "flow", True)]


@pytest.mark.device
@pytest.mark.parametrize("after", [1, RUNS + 2, 2 * RUNS + 1])  # executions
def test_another_result_is_seen(small, without_waiting, monkeypatch, after):
    executions = []

    class Wrong(trial.Run):
        def execute(self):
            super().execute()
            executions.append(self)

    def outputs(of_trial):
        results = real(of_trial)
        if len(executions) - 1 - (len(executions) > RUNS + 1) - (len(executions) > 2 * RUNS + 2) >= after:  # but for those alone
            results["OutputSequenceTensor"][len(executions)] ^= 1
        return results

    real = trial.Trial.outputs
    monkeypatch.setattr(trial, "Run", Wrong)
    monkeypatch.setattr(trial.Trial, "outputs", outputs)
    assert not workgroups_meet(small, Meeting(GRU, "barrier"))


@pytest.mark.device
def test_giving_up_fails(small, without_waiting, monkeypatch):
    monkeypatch.setattr(trial.Run, "timed_out", True)
    assert not workgroups_meet(small, Meeting(GRU, "barrier"))


@pytest.mark.device
def test_a_driver_that_fails_fails(small, without_waiting, monkeypatch):
    def fail(*_):
        raise vkdml.DriverError("lost")

    monkeypatch.setattr(trial.Run, "execute", fail)
    assert not workgroups_meet(small, Meeting(GRU, "barrier"))


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_what_is_run_has_all_that_may_go_wrong(gpu, cell):
    """As many workgroups as may be chosen, several tiles in each, and a long run; and few pipelines, which take long to make."""
    few, _, tiles, _, long, _ = plans_of_test(GPUS[gpu], Meeting(cell, "flow"))
    planner = Planner(tiles.tiling.problem, GPUS[gpu], Options(schedule="persistent", meeting="flow", rows=1))
    counts = {tiling.loop.workgroups for tiling in planner.tilings() if tiling.fits_side_by_side(planner.machine)}
    assert max(prod(dispatch.groups) for dispatch in tiles.execute if "flow" in dispatch.kernel) == max(counts)
    assert tiles.tiling.loop.tiles_of_group > 1
    assert few.tiling.loop.tiles_of_group == 1 < few.tiling.loop.parts
    assert long.tiling.problem.steps >= long.tiling.loop.chunk_steps >= 5000
    of_both = [pipelines(plan) for meeting in ("barrier", "flow") for plan in plans_of_test(GPUS[gpu], Meeting(cell, meeting))]
    assert len(set().union(*of_both)) <= 13


def test_a_long_run_has_shorter_dispatches_where_short_ones_took_long():
    (few, *_, long, _), info = plans_of_test(GPU, Meeting(GRU, "flow")), GPU
    slow = Measured(described(few.tiling), 1e-4)
    assert trial._persistent(info, long.tiling.problem, Meeting(GRU, "flow"), slow).tiling.loop.chunk_steps == pytest.approx(500, rel=0.1)


@pytest.mark.device
def test_where_nothing_may_wait_nothing_is_tried(small, monkeypatch):
    alone = replace(small.info, max_workgroup_invocations=1)
    monkeypatch.setattr(trial, "Run", None)
    assert not workgroups_meet(SimpleNamespace(info=alone), Meeting(GRU, "flow"))
    assert all(plans_of_test(alone, Meeting(cell, meeting)) == [] for cell, meeting in product(CELLS, ("barrier", "flow")))
