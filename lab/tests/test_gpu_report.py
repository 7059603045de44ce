"""Tests `vkdml gpu-report`: its parts run in steps, and may fail, crash, hang or be late. A turn is one run of a part."""

import itertools
import json
import time
import zipfile

import numpy as np
import pytest

from vkdml import InvalidArgumentError, cli
from vkdml.engine.trust.trial import Run
from vkdml.engine.vulkan.gpu import KP_VERSION
from vkdml.errors import DriverError
from vkdml.planning.options import Options
from vkdml.planning.profiles import gpu_rates
from vkdml_lab.gpu_report import ceilings, conformance, devices, machine, schedules, sending
from vkdml_lab.gpu_report import running as gpu_report
from vkdml_lab.gpu_report.found import FAILED, NOT_CHECKED, PASSED, SO_FAR, Found
from vkdml_lab.gpu_report.parts import SCHEDULES, TURNS, Part, Turn
from vkdml_lab.gpu_report.problems import QUICK, WAYS
from vkdml_lab.gpu_report.steps import LOG, RESULTS, Job, Log, Step, lines, run
from vkdml_lab.processes import Ended
from vkdml_lab.reports import append
from vkdml_lab.suite.devices import GPUS

STEPS_MADE_UP = {
    "good": "yield {'right': True, 'problem': 'one'}",
    "wrong": "yield {'right': False, 'problem': 'one', 'failed': '2 are | wrong'}",
    "raising": "raise ValueError('a step raised')\n    yield",
    "missing": "import no_such_package\n    yield",
    "unavailable": "raise UnavailableError('no such layer')\n    yield",
    "crashing": "print('about to crash', flush=True)\n    os.kill(os.getpid(), signal.SIGSEGV)\n    yield",
    "hanging": "print('about to hang', flush=True)\n    subprocess.run(['sleep', '100'])\n    yield",
}
MODULE = """import os, signal, subprocess
from vkdml_lab.gpu_report.steps import Step
from vkdml_lab.processes import UnavailableError
NOTES = "Made up."


def step():
    {body}


def last():
    yield {{'right': True, 'problem': 'last', 'path': os.path.abspath('a.py')}}


def steps(job):
    return [Step('first step', step, first=True), Step('last step', last)]


def summary(found):
    return f"{{len(found)}} rows"
"""


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """Make turns of made-up parts, by name. Each has two steps, of which the second succeeds, unless it cannot be imported."""
    package = tmp_path / "package" / "made_up"
    package.mkdir(parents=True)
    for name, body in STEPS_MADE_UP.items():
        (package / f"{name}.py").write_text(MODULE.format(body=body))
    (package / "broken.py").write_text("import vkdml.no_such_module\n")
    (package / "absent.py").write_text("import no_such_package\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=":")
    monkeypatch.syspath_prepend(str(package.parent))
    return {name: Turn(Part(name, f"A {name} part", 8 if name == "hanging" else 60, room="made_up"), 60)
            for name in [*STEPS_MADE_UP, "broken", "absent"]}


@pytest.mark.thorough
@pytest.mark.device
def test_what_failed_is_told_first(made_up, tmp_path):
    """The report lists failures first. After a failure, later steps and parts still run. The exit code is 1."""
    folder = tmp_path / "report"
    assert gpu_report.main(folder, turns=list(made_up.values())) == 1
    found = {name: Found.read(turn.part, folder) for name, turn in made_up.items()}
    assert {name: one.status for name, one in found.items()} == {
        "good": PASSED, "wrong": FAILED, "raising": FAILED, "missing": PASSED, "unavailable": PASSED, "crashing": FAILED,
        "hanging": FAILED, "broken": FAILED, "absent": NOT_CHECKED}
    assert {name: one.done for name, one in found.items()} == {**dict.fromkeys(STEPS_MADE_UP, 2), "broken": 0, "absent": 0}
    sections = dict(section.split("\n", 1) for section in (folder / "report.md").read_text().split("\n## ")[1:])
    assert sections["Failed"].strip().splitlines() == [
        "- wrong: one: 2 are | wrong", "- raising: first step: ValueError: a step raised",
        "- crashing: first step: crashed: SIGSEGV: about to crash", "- hanging: first step: hung: no progress in 8 s: about to hang",
        "- broken: crashed: exit code 1: ModuleNotFoundError: No module named 'vkdml.no_such_module'"]
    assert [line.partition(" (")[0] for line in next(text for name, text in sections.items() if name.startswith("Not")).strip().splitlines()] == [
        "- missing: first step: No module named 'no_such_package'",
        "- unavailable: first step: no such layer", "- absent: No module named 'no_such_package'"]
    assert [line.split("|")[1].strip() for line in sections["Parts"].splitlines() if "](" in line][:1] == ["[A wrong part](wrong/wrong.md)"]
    assert "Traceback" in (folder / "raising" / "output-1.txt").read_text()


@pytest.mark.thorough
@pytest.mark.device
def test_a_second_call_goes_on(made_up, tmp_path, monkeypatch):
    """A second call with the same folder runs only the steps that are left, and none that finished or crashed."""
    good, crashing = made_up["good"], made_up["crashing"]
    folder = tmp_path / "report"
    first = Turn(good.part, 60, first=True)
    assert gpu_report.main(folder, turns=[first]) == 0
    assert Found.read(good.part, folder).status == SO_FAR
    assert "1 of 2 steps are left" in (folder / "report.md").read_text()
    before = lines(folder / "good" / RESULTS)
    assert gpu_report.main(folder, turns=[first, good, crashing]) == 1
    after = lines(folder / "good" / RESULTS)
    assert (after[:1], [row["problem"] for row in after]) == (before, ["one", "last"])
    assert gpu_report.main(folder, turns=[first, good, crashing]) == 1
    assert lines(folder / "good" / RESULTS) == after
    assert len(list((folder / "crashing").glob("output-*.txt"))) == 2  # one more process after the crash


def test_a_report_of_something_else_is_not_mixed_up(tmp_path):
    folder, info = tmp_path / "report", GPUS["RX 7900 XTX"]
    gpu_report.begin(folder, folder, info, True)
    gpu_report.begin(folder, folder, info, True)
    with pytest.raises(InvalidArgumentError, match="--output: found .* which has a report of .*'quick': True.*expected another folder"):
        gpu_report.begin(folder, folder, info, False)


def test_a_step_without_enough_time_is_skipped(tmp_path, monkeypatch):
    """A step is skipped if the last step with the same `like` took longer than the time left. Shorter steps after it run."""
    ran = []

    class Module:
        __name__ = "made_up.part"
        NOTES = ""

        @staticmethod
        def steps(job):
            return [Step(name, lambda name=name: step(name), name[0], 50) for name in ("a1", "a2", "b1", "c1")]

    def step(name):
        ran.append(name)
        yield {"problem": name}

    append(tmp_path / LOG, {"begun": "a1", "like": "a"}, {"ended": "a1", "like": "a", "seconds": 1000.0}, {"begun": "c1", "like": "c"})
    append(tmp_path / RESULTS, {"problem": "a1"})
    run(Module, Job(tmp_path, until=time.time() + 100))
    assert ran == ["b1", "c1"]
    assert (Log(tmp_path).total, set(Log(tmp_path).ended), Log(tmp_path).running) == (4, {"a1", "b1", "c1"}, None)
    assert [row["problem"] for row in lines(tmp_path / RESULTS)] == ["a1", "b1", "c1"]
    run(Module, Job(tmp_path))
    assert ran == ["b1", "c1", "a2"]


@pytest.mark.parametrize("minutes", [3, 30])
def test_every_turn_has_time(tmp_path, monkeypatch, minutes):
    """Each turn gets time. Turns of the most important steps get a larger share of the time they need than the last turn."""
    turns, given, now = [], [], [time.time()]
    monkeypatch.setattr(gpu_report.time, "time", lambda: now[0])

    def take(turn, folder, info, quick, until):
        turns.append(turn)
        given.append(until - now[0])
        now[0] += given[-1]

    monkeypatch.setattr(gpu_report, "run_turn", take)
    monkeypatch.setattr(gpu_report, "select_device", lambda _: GPUS["RTX 3090"])
    gpu_report.main(tmp_path / "report", minutes=minutes)
    assert turns == TURNS
    needed = [seconds / turn.seconds for turn, seconds in zip(turns, given)]
    assert min(share for share, turn in zip(needed, turns) if turn.first) > needed[-1] > 0


def test_a_turn_may_overrun_and_a_step_that_was_cut_off_is_not_repeated(tmp_path, monkeypatch):
    """A turn may take a quarter longer. A step interrupted then runs again only if it can resume, or has more time left."""
    given, began = [], time.time()

    def hangs(command, *_, seconds, **__):
        given.append((float(command[5]), seconds))
        append(tmp_path / "schedules" / LOG, {"begun": "a", "like": "a"})
        monkeypatch.setattr(gpu_report.time, "time", lambda: began + seconds)
        return Ended(None, "hung", "")

    monkeypatch.setattr(gpu_report.time, "time", lambda: began)
    monkeypatch.setattr(gpu_report, "supervise", hangs)
    gpu_report.run_turn(Turn(SCHEDULES, 75), tmp_path, GPUS["RTX 3090"], False, began + 60)
    ((until, seconds),) = given
    assert (until - began, seconds) == (pytest.approx(60), pytest.approx(75))
    log = Log(tmp_path / "schedules")
    assert (log.running, log.ended) == (None, {})
    assert [log.may_begin(Step("a", list, resumes=resumes), 70, is_first=True) for resumes in (False, True)] == [False, True]
    assert log.may_begin(Step("a", list), 76, is_first=False)
    assert [log.may_begin(Step("b", list, seconds=200), 100, is_first) for is_first in (False, True)] == [False, True]


def test_how_long_it_takes_is_said_before(tmp_path):
    assert gpu_report.forecast(tmp_path, TURNS, 8, False).startswith("this takes 8 minutes, what matters most first; all of it would take about ")
    assert gpu_report.forecast(tmp_path, TURNS[:1], 8, False) == "this takes about 1 minutes: devices"
    assert gpu_report.forecast(tmp_path, TURNS, 8, True).startswith("this takes a minute or two")


@pytest.mark.device
def test_nothing_private_is_sent(made_up, tmp_path, monkeypatch):
    """Absolute paths, user and host names are replaced in all files. Keys of JSON stay; truncated lines are dropped."""
    monkeypatch.setattr(sending, "user", lambda: "problem")
    monkeypatch.setattr(sending.platform, "node", lambda: "workstation7.example.org")
    folder = tmp_path / "report"
    gpu_report.main(folder, turns=[made_up["good"]])
    (folder / "good" / "notes.txt").write_text("on workstation7, by problem: /home/problem/a/b.py:7 and https://example.org/a/b")
    (folder / "good" / "odd.jsonl").write_text('{"problem": "/opt/x/y.so of problem"}\ncut sho')
    sending.clean(folder)
    with zipfile.ZipFile(sending.pack(folder)) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {"report/report.md", "report/good/results.jsonl", "report/good/notes.txt"} <= set(texts)
    for name, text in texts.items():
        for private in (str(tmp_path), str(gpu_report.ROOT), "workstation7", "/home", "/opt", "by problem"):
            assert private not in text, f"{private} is in {name}"
    assert texts["report/good/notes.txt"] == "on (private), by (private): .../b.py:7 and https://example.org/a/b"
    assert texts["report/good/odd.jsonl"] == '{"problem": ".../y.so of (private)"}'


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "soon"])
def test_minutes_that_are_none(minutes, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["gpu-report", "--minutes", minutes])
    assert "is not a number of minutes above 0" in capsys.readouterr().err


# Schedules

@pytest.fixture
def checked(device):
    return schedules.Checked(device.gpu, QUICK[0], 3, 2)


def only(checked, monkeypatch, *ways, **others):
    monkeypatch.setattr(schedules, "WAYS", {way: WAYS[way] for way in ways} | others)
    return list(checked.rows())


def test_one_run_with_another_bit(checked, monkeypatch):
    """A schedule fails if one of its three runs differs in a single bit."""
    outputs, count = schedules.Trial.outputs, itertools.count()

    def spoiled(trial):
        found = outputs(trial)
        found["OutputSingleTensor"][0] ^= next(count) == 4
        return found

    monkeypatch.setattr(schedules.Trial, "outputs", spoiled)
    good, bad = only(checked, monkeypatch, "stepped", "sequence")
    assert (good["other bits"], bad["other bits"], bad["wrong"]) == (0, 1, "")
    assert good["right"]
    assert "failed" not in good
    assert (bad["right"], bad["failed"]) == (False, "1 of 3 runs gave other bits than stepped")
    assert good["seconds"] > 0 < good["estimate"]


def test_what_is_not_written_is_seen(checked, monkeypatch):
    """An element that a run does not write is found, even if an earlier run wrote it."""
    execute, count = Run.execute, itertools.count()
    monkeypatch.setattr(Run, "execute", lambda run: None if next(count) == 2 else execute(run))
    (row,) = only(checked, monkeypatch, "stepped")
    assert row["other bits"] == 1
    assert row["wrong"] == "OutputSequenceTensor OutputSingleTensor"
    assert not row["right"]


def test_what_always_gives_up_is_not_checked(checked, monkeypatch):
    """A schedule whose runs all give up waiting neither fails nor passes, as only its fallback was tested."""
    execute = Run.execute

    def give_up(run):
        execute(run)
        run._attempts.timeouts += 1

    monkeypatch.setattr(Run, "execute", give_up)
    (row,) = only(checked, monkeypatch, "stepped")
    assert (row["runs"], row["gave up"], row["not checked"]) == (3, 3, "all runs gave up, so that only the fallback ran")
    assert "right" not in row
    assert "failed" not in row


def test_a_step_that_takes_sixty_times_the_estimate_has_not_passed(checked, monkeypatch):
    late = {"step us": 600.0, "step estimate us": 10.0}
    monkeypatch.setattr(schedules, "timed", lambda *_: late)
    assert only(checked, monkeypatch, "stepped")[0]["right"]  # a processor is slower than the model of GPUs
    monkeypatch.setattr(type(checked._gpu.info), "is_cpu", False)
    (row,) = only(checked, monkeypatch, "stepped")
    assert (row["right"], row["failed"]) == (False, "a step takes 60 times as long as the model says")
    late["step us"] = 599.0
    assert only(checked, monkeypatch, "stepped")[0]["right"]


def test_what_is_refused_and_what_fails(checked, monkeypatch):
    def fail(run):
        raise DriverError("the device is lost")

    monkeypatch.setattr(Run, "execute", fail)
    failed, refused = only(checked, monkeypatch, "stepped", refused=Options(schedule="stepped", resident=True, lanes=False))
    assert (failed["right"], failed["failed"]) == (False, "the device is lost")
    assert "options.resident" in refused["not checked"]
    assert "right" not in refused


def test_a_slow_device_has_fewer_runs(device, monkeypatch):
    monkeypatch.setattr(schedules, "SECONDS", 0.0)
    assert [row["runs"] for row in only(schedules.Checked(device.gpu, QUICK[0], 50, 50), monkeypatch, "stepped")] == [3]


def test_a_test_that_tests_nothing_has_not_passed(device):
    """The grid-sync test reports "not checked" on a CPU driver, whose plans have no workgroups that wait for each other."""
    assert all("passed" not in row and row["not checked"] for step in schedules.grid_sync_tests(device.gpu) for row in step.run())


# Other parts

def test_rates_beside_ceilings(device):
    found = {"gflops": 100.0, "read_gb_s": {"1": 80.0, "2": 90.0, "3": 10.0}, "submission_us": 30.0, "dispatch_us": 6.0}
    rows = ceilings.rates(device.info, found)
    assert [row["measured"] for row in rows] == [100.0, 90.0, 10.0, 30.0, 6.0]
    assert rows[2]["times"] == pytest.approx(10e9 / gpu_rates(device.info).memory_rate)


def test_all_of_the_conformance_suite_is_run():
    """The report's part "conformance" has a step for each file of the suite."""
    names = [step.name for step in conformance.steps(Job(None))]
    assert names[0] == conformance.FIRST
    assert set(names[1:]) == {path.stem for path in conformance.FOLDER.glob("test_*.py")}


def test_facts_of_the_machine(tmp_path, monkeypatch):
    for path, text in (("BAT0/type", "Battery"), ("BAT0/status", "Discharging"), ("AC/type", "Mains"), ("AC/online", "0")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    assert machine.power(tmp_path) == "mains off, battery discharging"
    assert machine.power(tmp_path / "none") == machine.UNKNOWN
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Some CPU 7\n")
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setenv("RADV_DEBUG", "nocache")
    monkeypatch.setenv("SECRET_OF_MINE", "1")
    assert machine.facts()["processor"] == "Some CPU 7"
    assert machine.variables()["RADV_DEBUG"] == "nocache"
    assert "SECRET_OF_MINE" not in machine.variables()
    assert machine.packages()["numpy"] == np.__version__
    assert machine.packages()["kp"] == KP_VERSION


@pytest.mark.device
def test_facts_of_the_device():
    rows, tables = devices.facts(), {}
    for row in rows:
        tables.setdefault(row["table"], {})[row["fact"]] = row["value"]
    assert tables[devices.PLANNED]["figures of"] == devices.UNKNOWN  # a processor has no row in the table
    assert {"float16", "16-bit storage", "integer dot product", "subgroup-size control", devices.MATRICES, "driver UUID"} <= set(
        tables[devices.FEATURES])
    assert any("(taken for" in one for one in tables[devices.FEATURES]["memory"])
    assert sum("(taken)" in one for one in tables[devices.FEATURES]["queues"]) == 1
    assert devices.summary(rows).endswith(f"with {tables['Device']['cores']} cores")
    json.dumps(tables)
