"""The test of meetings sees what would go wrong if workgroups that wait for each other did not meet."""

from dataclasses import replace
from itertools import product
from math import prod
from types import SimpleNamespace

import pytest

import vkdml
from tests.planning.devices import GPU, GPUS
from vkdml.engine.trust import trial
from vkdml.engine.trust.trial import workgroups_meet
from vkdml.operators.cells import GRU, LSTM
from vkdml.planning.candidates import Planner
from vkdml.planning.options import Options

pytestmark = pytest.mark.device


@pytest.fixture
def small(tuned, monkeypatch):
    """What a CPU driver runs in a moment."""
    monkeypatch.setattr(trial, "_SIZES", ((1, 64), (2, 96)))
    monkeypatch.setattr(trial, "_LONG", (40, 32))
    return tuned.gpu


@pytest.fixture
def without_waiting(small, monkeypatch):
    """In one workgroup: whether several meet is a matter of what else the machine does."""
    plans = []

    def in_sequence(gpu, problem, waits_by):
        plans.append(waits_by)
        return trial._plan(gpu, problem, "sequence")

    monkeypatch.setattr(trial, "_most_workgroups", in_sequence)
    return plans


@pytest.mark.parametrize("cell", [GRU, LSTM], ids=lambda cell: cell.name)
def test_what_agrees_passes(small, without_waiting, cell):
    assert workgroups_meet(small, "flow", cell)
    assert without_waiting == ["flow", "flow", "flow"]


@pytest.mark.parametrize("after", [1, 9, 13, 17])  # executions
def test_another_result_is_seen(small, without_waiting, monkeypatch, after):
    executions = []

    class Wrong(trial.Run):
        def execute(self):
            super().execute()
            executions.append(self)

    def outputs(trial):
        results = real(trial)
        if len(executions) >= after:
            results["OutputSequenceTensor"][len(executions)] ^= 1
        return results

    real = trial.Trial.outputs
    monkeypatch.setattr(trial, "Run", Wrong)
    monkeypatch.setattr(trial.Trial, "outputs", outputs)
    assert not workgroups_meet(small, "barrier", GRU)


def test_giving_up_fails(small, without_waiting, monkeypatch):
    monkeypatch.setattr(trial.Run, "timed_out", True)
    assert not workgroups_meet(small, "barrier", GRU)


def test_a_driver_that_fails_fails(small, without_waiting, monkeypatch):
    def fail(*_):
        raise vkdml.DriverError("lost")

    monkeypatch.setattr(trial.Run, "execute", fail)
    assert not workgroups_meet(small, "barrier", GRU)


def test_as_many_workgroups_as_may_be_chosen():
    gpu, problem = SimpleNamespace(info=GPU), trial._problem(GRU, 24, 12, 128)
    planner = Planner(problem, GPU, Options(schedule="persistent"))
    counts = {tiling.loop.workgroups for tiling in planner.tilings() if tiling.fits_side_by_side(planner.machine)}
    planned = trial._most_workgroups(gpu, problem, "barrier")
    assert planned.fallback
    assert max(prod(dispatch.groups) for dispatch in planned.execute if "gru" in dispatch.kernel) == max(counts) > min(counts)


def test_where_nothing_may_wait_nothing_is_tried(small, monkeypatch):
    alone = replace(small.info, max_workgroup_invocations=1)
    monkeypatch.setattr(small, "info", alone)
    assert trial._most_workgroups(small, trial._problem(GRU, 24, 1, 64), "no such meeting") is None
    monkeypatch.setattr(trial, "_most_workgroups", lambda *_: None)
    assert workgroups_meet(small, "no such meeting", GRU)


@pytest.mark.parametrize("name", sorted(GPUS.keys() - {"UHD 630", "Adreno 740"}))  # which have no room for several tiles
@pytest.mark.parametrize("cell", [GRU, LSTM], ids=lambda cell: cell.name)
def test_gpus_run_many_steps_and_several_tiles(monkeypatch, name, cell):
    info, tried = GPUS[name], []
    monkeypatch.setattr(trial, "_agree", lambda gpu, waits_by, problem, runs: tried.append(problem) or True)
    assert workgroups_meet(SimpleNamespace(info=info), "flow", cell)
    assert all(problem.cell is cell for problem in tried)
    assert max(problem.steps for problem in tried) >= 5000
    chosen = []
    monkeypatch.setattr(trial, "plan_of", lambda planner, tiling: chosen.append(tiling.loop))
    for problem, meeting in product(tried, ("flow", "barrier")):
        trial._most_workgroups(SimpleNamespace(info=info), problem, meeting)
    assert any(loop.tiles_of_group > 1 for loop in chosen)
