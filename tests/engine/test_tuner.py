"""What is timed, what is chosen, and what is kept of it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import vkdml
from tests.engine.ready import as_ours
from vkdml.engine.trust import choices, tuner
from vkdml.engine.trust.trial import GAVE_UP, Run, Trial
from vkdml.engine.trust.tuner import Tuner, likely
from vkdml.operators import element_types, reference
from vkdml.planning import profiles
from vkdml.planning.plan import plan as make_plan
from vkdml.planning.plan import plan_of
from vkdml.planning.size_classes import resized
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import make_problem
from vkdml_lab.suite.support import CELLS, check, drawn_case, make_desc, run_on_device

PROBLEM, NOTHING = make_problem(12, 1, 16, 64), vkdml.Options()


def schedule_of(plan):
    """Persistent plans alone have a fallback, and dispatches of stepped ones run a step at most."""
    if plan.fallback:
        return "persistent"
    steps = [each.push["last_step"] - each.push["first_step"] for each in plan.execute if "projection" not in each.kernel]
    return "stepped" if max(steps) == 1 else "sequence"


@pytest.fixture
def timed(monkeypatch):
    """Made-up times instead of measured ones: which place was the fastest, and how often it was asked for."""
    made_up = {"fastest": 0, "times": 0}

    def seconds(self, problem, plans):
        made_up["times"] += 1
        return {place: 0.25 if place == made_up["fastest"] else 0.5 for place in range(len(plans))}

    monkeypatch.setattr(Tuner, "_timed", seconds)
    return made_up


def schedules(device, problem=PROBLEM):
    """Of what is timed, in order."""
    return [tiling.loop.schedule for tiling in likely(Target(resized(problem), device.info))]


@pytest.mark.parametrize("schedule", ["sequence", "persistent"])
def test_the_fastest_is_chosen_and_kept(tuned, trusted, timed, schedule):
    timed["fastest"] = schedules(tuned).index(schedule)
    chosen = Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "on")
    assert schedule_of(chosen) == schedule
    for mode in ("on", "read"):
        later = Tuner(tuned.gpu)  # as in another process
        assert later.plan(PROBLEM, NOTHING, mode) == chosen
        assert schedule_of(later.plan(make_problem(99, 1, 16, 64), NOTHING, mode)) == schedule
    assert timed["times"] == 1
    assert len(trusted["asked"]) == len(set(trusted["asked"])) > 0  # the answers are kept too


def test_what_was_measured_bounds_submissions(tuned, trusted, timed):
    timed["fastest"] = schedules(tuned).index("sequence")
    steps = 10_000  # 250 of them take a quarter of a second
    planned = Tuner(tuned.gpu).plan(make_problem(steps, 1, 16, 64), NOTHING, "on")
    assert sum(dispatch.starts_submission for dispatch in planned.execute) >= 0.9 * steps / 250 * 0.25 / 0.5


def test_what_may_change_the_choice_is_timed_by_itself(tuned, trusted, timed):
    one = Tuner(tuned.gpu)
    for problem in (PROBLEM, make_problem(12, 2, 16, 64), make_problem(12, 1, 17, 64), make_problem(12, 1, 16, 65),
                    make_problem(12, 1, 16, 64, LinearBeforeReset=True), make_problem(12, 1, 16, 64, cell=CELLS[1]),
                    make_problem(12, 1, 16, 64, element=element_types.FLOAT16),
                    make_problem(12, 1, 16, 64, SequenceLengthsTensor=None), make_problem(12, 1, 16, 64, 2)):
        for _ in range(2):
            one.plan(problem, NOTHING, "on")
    one.plan(PROBLEM, vkdml.Options(workspace_bytes=10_000), "on")
    assert timed["times"] == choices.count() - len(set(trusted["asked"])) == 10  # the other files are of the grid-sync test


@pytest.mark.parametrize("options", [vkdml.Options(schedule="sequence"), vkdml.Options(rows=1)])
def test_what_is_forced_is_not_timed(tuned, trusted, timed, options):
    Tuner(tuned.gpu).plan(PROBLEM, options, "on")
    assert timed["times"] == 0


@pytest.mark.parametrize("mode", ["read", "off"])
def test_without_tuning_the_model_chooses_and_nothing_is_written(tuned, trusted, timed, mode):
    assert Tuner(tuned.gpu).plan(PROBLEM, NOTHING, mode) == make_plan(PROBLEM, tuned.info)
    assert (timed["times"], choices.count()) == (0, 0)


def test_a_mode_that_there_is_not_is_refused(device, monkeypatch, case):
    monkeypatch.setenv("VKDML_TUNING", "of")
    with pytest.raises(vkdml.InvalidArgumentError, match="VKDML_TUNING: found 'of'; expected one of on, read, off"):
        device.compile_operator(device.create_operator(case.desc))


@pytest.mark.parametrize("change", [{"tiling": {"loop": "of old"}}, {"tiling": 1}, {"step seconds": float("nan")},
                                    {"step seconds": -1.0}, {"step seconds": 0.0}, {"step seconds": None}])
def test_what_cannot_have_been_measured_changes_nothing(tuned, trusted, timed, change):
    timed["fastest"] = 1
    Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "on")
    for path in choices.folder().rglob("*.json"):
        content = json.loads(path.read_text())
        if "cell" in content["key"]:
            path.write_text(json.dumps({**content, "value": {**content["value"], **change}}))
    assert Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "read") == make_plan(PROBLEM, tuned.info)


def test_where_the_grid_sync_test_failed_nothing_waits(tuned, trusted, timed):
    trusted["passing"] = ()
    assert schedules(tuned)[0] == "persistent"
    for mode in ("on", "read", "off"):
        assert schedule_of(Tuner(tuned.gpu).plan(PROBLEM, NOTHING, mode)) != "persistent"
    asked = len(trusted["asked"])
    assert asked == 2 * len(set(trusted["asked"])) > 0  # off reads nothing
    forced = Tuner(tuned.gpu).plan(PROBLEM, vkdml.Options(schedule="persistent"), "on")
    assert schedule_of(forced) == "persistent"
    assert len(trusted["asked"]) == asked


def test_each_cell_has_its_own_grid_sync_test(tuned, trusted, timed):
    one = Tuner(tuned.gpu)
    for cell in CELLS:
        one.plan(make_problem(12, 1, 16, 64, cell=cell), NOTHING, "on")
    assert set(trusted["asked"]) == {(cell.name, "volatile") for cell in CELLS}


@pytest.mark.parametrize("passing", [("volatile",), ("coherent",), ("volatile", "coherent")], ids=" and ".join)
def test_where_volatile_loads_failed_coherent_ones_are_chosen(tuned, trusted, timed, passing):
    trusted["passing"], timed["fastest"] = passing, schedules(tuned).index("persistent")
    for mode in ("on", "read", "off"):
        plan = Tuner(tuned.gpu).plan(PROBLEM, NOTHING, mode)
        suffix = "persistent" if "volatile" in passing else "persistent_coherent"
        assert [each.kernel for each in plan.execute if "persistent" in each.kernel] == [f"gpu/gru_{suffix}"]
    assert timed["times"] == 1


def test_operators_of_a_class_learn_that_one_gave_up(tuned):
    one, longer = Tuner(tuned.gpu), make_problem(13, 1, 16, 64)
    attempts = one.attempts(PROBLEM, NOTHING, "on")
    assert one.attempts(longer, NOTHING, "on") is attempts
    attempts.gave_up()
    assert not attempts.is_worthwhile
    forced = one.attempts(PROBLEM, vkdml.Options(schedule="persistent"), "on")
    forced.gave_up()
    for other in (forced, one.attempts(make_problem(12, 1, 16, 65), NOTHING, "on")):
        assert other.is_worthwhile


@pytest.mark.parametrize(("gave_up_in", "times", "mode", "is_worthwhile"), [
    ("on", 3, "on", False), ("on", 3, "read", False), ("on", 2, "on", True), ("on", 3, "off", True), ("read", 3, "on", True),
    ("off", 3, "on", True)])
def test_later_processes_learn_that_three_gave_up(tuned, gave_up_in, times, mode, is_worthwhile):
    for _ in range(times):
        Tuner(tuned.gpu).attempts(PROBLEM, NOTHING, gave_up_in).gave_up()
    assert choices.count() == (gave_up_in == "on")
    later = Tuner(tuned.gpu)
    assert later.attempts(make_problem(99, 1, 16, 64), NOTHING, mode).is_worthwhile == is_worthwhile
    for problem, options in ((make_problem(12, 1, 16, 65), NOTHING), (PROBLEM, vkdml.Options(workspace_bytes=10_000)),
                             (PROBLEM, vkdml.Options(schedule="persistent"))):
        assert later.attempts(problem, options, mode).is_worthwhile


def kept():
    """What is on disk, by kind of key."""
    found = [json.loads(path.read_text()) for path in choices.folder().rglob("*.json")]
    return [("choice" if "steps" in each["key"] else "grid-sync test", each["value"]) for each in found]


def test_no_verdict_of_a_driver_that_fails_is_kept(tuned, timed, monkeypatch):
    """Another process finds out for itself."""
    make, calls = tuned.gpu.make_tensor, []

    @as_ours
    def failing(*arguments):
        calls.append(arguments)
        if 8 <= len(calls) <= 12:
            raise vkdml.DriverError("made up")
        return make(*arguments)

    with monkeypatch.context() as disturbed:
        disturbed.setattr(tuned.gpu, "make_tensor", failing)
        assert Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "on")
    assert len(calls) >= 8
    assert not any(kind == "choice" or value.get("passed") is False for kind, value in kept())


def test_a_grid_sync_test_that_gives_up_is_believed_the_third_time(tuned, timed, monkeypatch):
    asked = []
    monkeypatch.setattr(tuner, "grid_sync_test", lambda gpu, sync: (asked.append(str(sync.facts)), GAVE_UP)[1])
    for _ in range(3):
        assert schedule_of(Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "on")) != "persistent"
    assert len(asked) == 3 * len(set(asked)) > 0
    assert {kind for kind, value in kept() if "passed" not in value} == {"choice", "grid-sync test"}
    assert schedule_of(Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "on")) != "persistent"
    assert len(asked) == 3 * len(set(asked))


# Times that are measured

class MadeUpRun:
    """In the place of a run: what its executions take, or raise."""

    timeouts = 0

    def __init__(self, trial, plan):
        self.schedule = schedule_of(plan)
        self.executions = 0
        MadeUpRun.made.append(self)

    @as_ours
    def execute(self):
        self.executions += 1
        if self.schedule == self.fails and self.executions >= self.fails_at:
            raise vkdml.DriverError("lost")
        type(self).clock += self.seconds[self.schedule]
        return self.seconds[self.schedule]


@pytest.fixture
def runs(monkeypatch):
    for name, value in {"seconds": {"persistent": 0.001, "sequence": 0.002, "stepped": 0.003}, "made": [], "clock": 0.0,
                        "fails": "", "fails_at": 1, "timeouts": 0}.items():
        monkeypatch.setattr(MadeUpRun, name, value, raising=False)
    monkeypatch.setattr(tuner, "Run", MadeUpRun)
    monkeypatch.setattr(tuner, "time", SimpleNamespace(perf_counter=lambda: MadeUpRun.clock))
    return MadeUpRun


@pytest.mark.parametrize("fails_at", [1, 2, 4])
def test_what_fails_is_left_out(tuned, trusted, runs, monkeypatch, fails_at):
    monkeypatch.setattr(runs, "fails", "persistent")
    monkeypatch.setattr(runs, "fails_at", fails_at)
    assert schedule_of(Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "on")) == "sequence"
    assert [run.executions for run in runs.made] == [fails_at if run.schedule == "persistent" else 6 for run in runs.made]


@pytest.mark.parametrize("after", [1, 4])  # executions
def test_what_gives_up_is_left_out(tuned, trusted, runs, monkeypatch, after):
    monkeypatch.setattr(runs, "timeouts", property(lambda run: run.schedule == "persistent" and run.executions >= after))
    assert schedule_of(Tuner(tuned.gpu).plan(PROBLEM, NOTHING, "on")) == "sequence"


def test_where_everything_fails_the_model_chooses(tuned, trusted, monkeypatch):
    @as_ours
    def fail(*_):
        raise vkdml.DriverError("no memory")

    monkeypatch.setattr(tuner, "Trial", fail)
    one = Tuner(tuned.gpu)
    assert one.plan(PROBLEM, NOTHING, "on") == make_plan(PROBLEM, tuned.info)
    assert choices.count() == len(trusted["asked"]) > 0  # of the grid-sync test
    assert one.knows(PROBLEM, NOTHING, "on")  # it is not tried again


def test_what_takes_long_is_timed_less_often(tuned, trusted, runs, monkeypatch):
    monkeypatch.setattr(runs, "seconds", dict.fromkeys(runs.seconds, 1.25))
    Tuner(tuned.gpu).plan(make_problem(12, 1, 16, 256), NOTHING, "on")
    assert [run.executions for run in runs.made] == [2] * len(runs.made)
    runs.made.clear()
    monkeypatch.setattr(runs, "seconds", dict.fromkeys(runs.seconds, 3.5))
    Tuner(tuned.gpu).plan(make_problem(12, 1, 16, 512), NOTHING, "on")
    assert len(runs.made) == 1  # nothing else was begun


# Results

@pytest.mark.family("all cells in all types: kernels that compile soonest first", first=2)
@pytest.mark.parametrize("element", [element_types.FLOAT32, element_types.FLOAT64, element_types.FLOAT16, element_types.BFLOAT16],
                         ids=lambda element: element.name)
@pytest.mark.parametrize("cell", CELLS[::-1], ids=lambda cell: cell.name)
def test_all_that_is_chosen_from_gives_the_same_bits(tuned, monkeypatch, cell, element):
    monkeypatch.setattr(tuner, "_WITHIN", 100)  # all schedules, however slow the model thinks them
    batch = 1 if element.pairs else 3  # a tile of float64 has one row, and few parts fit beside many tiles
    case = drawn_case(make_desc(cell, 9, batch, 20, 70, data_type=element.data_type), element=element)
    trial = Trial(tuned.gpu, case.problem, case.arrays)
    target = Target(case.problem, tuned.info)
    results = []
    for tiling in likely(target):
        Run(trial, plan_of(target, tiling)).execute()
        results.append([array.tobytes() for array in trial.outputs().values()])
    assert len(results) > 1
    assert results == results[:1] * len(results)


@pytest.mark.parametrize("mode", ["on", "read", "off"])
def test_an_operator_that_is_tuned_computes_what_it_should(tuned, trusted, monkeypatch, mode):
    monkeypatch.setenv("VKDML_TUNING", mode)
    check(case := drawn_case(make_desc(CELLS[0], 9, 3, 20, 70)), run_on_device(tuned, case))
    assert choices.count() >= (mode == "on")


def test_an_operator_waits_in_vain_only_once(tuned, trusted, monkeypatch):
    monkeypatch.setenv("VKDML_TUNING", "off")
    name, row = next((name, row) for name, row in profiles.PROFILES.items() if row.fits(tuned.info))
    monkeypatch.setitem(profiles.PROFILES, name, replace(row, spins=1))  # parts that are not there at once are given up
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(shape).astype(np.float32) * 0.2 for shape in ((30, 1, 20), (1, 384, 20), (1, 384, 128)))
    layer = vkdml.GRU(w, r)
    for steps in (30, 30, 29, 28):
        np.testing.assert_allclose(layer(x[:steps])[0], reference.gru(x[:steps], w, r)[0], atol=1e-5)
    (attempts,) = tuner.tuner(tuned.gpu)._attempts.values()
    assert attempts.timeouts <= 1


def test_functions_are_tuned_when_they_are_first_called(tuned, trusted, timed):
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(shape).astype(np.float32) * 0.2 for shape in ((9, 3, 20), (1, 210, 20), (1, 210, 70)))
    for steps in (9, 10, 9):
        inputs = np.resize(x, (steps, 3, 20))
        np.testing.assert_allclose(vkdml.gru(inputs, w, r)[0], reference.gru(inputs, w, r)[0], atol=1e-5)
    assert timed["times"] == 1


def test_cpu_drivers_are_not_tuned(device, monkeypatch):
    if not device.info.is_cpu:
        pytest.skip("the device is a GPU")
    monkeypatch.setattr(tuner, "Tuner", lambda gpu: pytest.fail("tuned"))
    tuner.tuner.cache_clear()
    compiled = device.compile_operator(device.create_operator(make_desc(CELLS[0])))
    assert compiled.plan.execute
