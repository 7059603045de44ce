"""tools/gpu_report: the whole report in its quick form on this machine's driver; parts that fail, crash or hang; what is judged wrong."""

import json

import numpy as np
import pytest

from bench.trials import arrays
from tools.gpu_report import bits, candidates, estimates, outcome, worker
from tools.gpu_report import running as gpu_report
from tools.gpu_report.outcome import FAILED, PASSED, SKIPPED, Job, Outcome
from tools.gpu_report.parts import PARTS, Part
from tools.gpu_report.problems import BITS, CANDIDATES, ESTIMATES, QUICK_BITS, WAYS
from vkdml import cli
from vkdml.engine.trust.trial import Run
from vkdml.errors import DriverError
from vkdml.planning.candidates import Planner
from vkdml.planning.options import Options
from vkdml.planning.profiles import gpu_rates

FILES = {
    "devices": {"devices.json", "devices.md"}, "conformance": {"conformance.json", "conformance.md"}, "validation": set(),
    "bits": {"bits.json", "bits.md"}, "ceilings": {"ceilings.json", "ceilings.md"}, "candidates": {"candidates.json", "candidates.md"},
    "peers": {"results.jsonl", "libraries.json", "peers.md"}, "estimates": {"estimates.json", "estimates.md"},
}


@pytest.mark.device
@pytest.mark.thorough
def test_the_whole_report(tmp_path, monkeypatch, capsys):
    """All parts run, without a layer; what they write is there, and the report leads to it."""
    monkeypatch.setenv("VKDML_LAYER_PATH", str(tmp_path / "no layers"))
    folder = tmp_path / "report"
    assert cli.main(["gpu-report", "--quick", "--output", str(folder)]) == 0, (folder / "report.md").read_text()
    assert str(folder / "report.md") in capsys.readouterr().out
    text = (folder / "report.md").read_text()
    outcomes = {part.name: Outcome.read(folder / part.name) for part in PARTS}
    assert {name: found.status for name, found in outcomes.items()} == {
        part.name: SKIPPED if part.name == "validation" else PASSED for part in PARTS}
    assert "no validation layer" in outcomes["validation"].line
    for part in PARTS:
        assert {path.name for path in (folder / part.name).iterdir()} >= {"output.txt", *FILES[part.name]}
        assert all(f"({part.name}/{name})" in text for name in FILES[part.name])

    (rows,) = json.loads((folder / "bits" / "bits.json").read_text()).values()
    assert [(row["problem"], row["way"]) for row in rows] == [(case.name, way) for case in QUICK_BITS for way in WAYS]
    assert {row["runs"] for row in rows} == {bits.QUICK_RUNS}
    ceilings = json.loads((folder / "ceilings" / "ceilings.json").read_text())
    assert ceilings["gflops"] > 0
    written = json.loads((folder / "estimates" / "estimates.json").read_text())
    assert written["Rates"][0]["measured"] == ceilings["gflops"]
    assert all(row["times"] for row in written["Steps"] if row["way"] in ("stepped", "sequence"))
    choices = json.loads((folder / "candidates" / "candidates.json").read_text())["Choices"]
    assert {word for row in choices for word in row["choice"].split(" and ")} == {"model", "tuner"}
    assert list((folder / "candidates" / "tuning").glob("*/*.json"))


PARTS_MADE_UP = {
    "good": "(job.folder / 'good.md').write_text('here')\n    return Outcome('passed', 'all is well')",
    "wrong": "return judged('2 are wrong', ['the first | is', 'and the second'])",
    "raising": "raise ValueError('a part raised')",
    "missing": "import no_such_package",
    "ours": "import vkdml.no_such_module",
    "crashing": "print('about to crash', flush=True)\n    os.kill(os.getpid(), signal.SIGSEGV)",
    "leaving": "print('about to leave')\n    raise SystemExit('no more')",
    "hanging": "print('about to hang', flush=True)\n    subprocess.run(['sleep', '100'])",
}


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """Parts of a package of their own, by name."""
    package = tmp_path / "package" / "made_up"
    package.mkdir(parents=True)
    for name, body in PARTS_MADE_UP.items():
        (package / f"{name}.py").write_text("import os, signal, subprocess\nfrom tools.gpu_report.outcome import Outcome, judged\n\n\n"
                                            f"def run(job):\n    {body}\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=":")
    return {name: Part(name, f"A {name} part", 5 if name == "hanging" else 60, room="made_up") for name in PARTS_MADE_UP}


@pytest.mark.device
def test_what_failed_comes_first(made_up, tmp_path):
    """The others run nevertheless, and the exit status is 1."""
    assert gpu_report.main(tmp_path, parts=list(made_up.values())) == 1
    found = {name: gpu_report.Outcome.read(tmp_path / name) for name in made_up}
    assert {name: outcome and outcome.status for name, outcome in found.items()} == {
        "good": PASSED, "wrong": FAILED, "raising": FAILED, "missing": SKIPPED, "ours": FAILED, "crashing": None, "leaving": None,
        "hanging": None}
    text = (tmp_path / "report.md").read_text()
    sections = text.split("\n## ")
    assert [section.splitlines()[0] for section in sections[1:]] == [
        *(f"Failed: A {name} part" for name in ("wrong", "raising", "ours", "crashing", "leaving", "hanging")), "Parts"]
    for section, sentences in zip(sections[1:], [
            ["2 are wrong", "the first | is", "and the second"], ["ended by an error", "ValueError: a part raised"],
            ["ended by an error", "ModuleNotFoundError: No module named 'vkdml.no_such_module'"],
            ["crashed: SIGSEGV", "about to crash"], ["crashed: exit code 1", "about to leave", "no more"],
            ["hung: not done in 5 s", "about to hang"]]):
        lines = section.splitlines()
        assert all(f"- {sentence}" in lines for sentence in sentences), section
    assert "No module named 'no_such_package'" in sections[-1]
    assert "(good/good.md)" in sections[-1]
    assert "Traceback" in (tmp_path / "raising" / "output.txt").read_text()


@pytest.mark.device
def test_what_was_there_before_goes(made_up, tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "old.md").touch()
    (tmp_path / "mine.md").touch()
    assert gpu_report.main(tmp_path, parts=[made_up["good"]]) == 0
    assert not (tmp_path / "good" / "old.md").exists()
    assert (tmp_path / "mine.md").exists()


def test_no_such_device(monkeypatch, tmp_path, capsys):
    def refuse(device):
        raise DriverError(f"no Vulkan device {device!r}")

    monkeypatch.setattr(gpu_report, "select_device", refuse)
    assert cli.main(["gpu-report", "--device", "none such", "--output", str(tmp_path)]) == 1
    assert "vkdml: no Vulkan device 'none such'" in capsys.readouterr().err


def test_many_failures_are_counted():
    many = Outcome(FAILED, "all are wrong", [f"number {number}" for number in range(gpu_report.MOST_FAILURES + 7)])
    assert gpu_report.failures(gpu_report.Finished(PARTS[0], many, [])).splitlines()[-1] == "- and 7 more"


def test_every_part_has_a_module(tmp_path):
    assert {part.name for part in PARTS} == set(FILES)
    for part in PARTS:
        assert callable(worker.importlib.import_module(part.module).run)


# Bits

@pytest.fixture
def checked(device):
    return bits.Checked(device.gpu, QUICK_BITS[0], 3)


def only(checked, monkeypatch, *ways):
    """The rows of some schedules."""
    for way in set(WAYS) - set(ways):
        monkeypatch.delitem(WAYS, way)
    return checked.rows()


def test_one_run_with_another_bit(checked, monkeypatch):
    """Of the second schedule's three runs the second one, in the last bit of one number."""
    outputs, count = bits.Trial.outputs, iter(range(100))

    def spoiled(trial):
        found = outputs(trial)
        found["OutputSingleTensor"][0] ^= next(count) == 4
        return found

    monkeypatch.setattr(bits.Trial, "outputs", spoiled)
    good, bad = only(checked, monkeypatch, "stepped", "sequence")
    assert (good["other bits"], bad["other bits"], bad["wrong"]) == (0, 1, "")
    assert bits.broken(good) == []
    assert bits.broken(bad) == [f"{QUICK_BITS[0].name} sequence: 1 of 3 runs gave other bits than stepped"]


def test_what_is_not_written_is_seen(checked, monkeypatch):
    """Even after a run that wrote it."""
    execute, count = Run.execute, iter(range(100))
    monkeypatch.setattr(Run, "execute", lambda run: None if next(count) == 2 else execute(run))
    (row,) = only(checked, monkeypatch, "stepped")
    assert row["other bits"] == 1
    assert row["wrong"] == "OutputSequenceTensor OutputSingleTensor"


def test_what_gives_up_is_counted(checked, monkeypatch):
    """The fallback's bits are the same, so that it is no failure."""
    execute = Run.execute

    def give_up(run):
        execute(run)
        run._attempts.timeouts += 1

    monkeypatch.setattr(Run, "execute", give_up)
    (row,) = only(checked, monkeypatch, "stepped")
    assert (row["runs"], row["gave up"]) == (3, 3)
    assert not bits.broken(row)
    assert bits.summary([row]) == ("1 schedules of problems, 3 runs, of which 3 gave up; in 1 all runs gave up, so that only their "
                                   "fallback is checked")
    assert bits.summary([row | {"gave up": 1}]) == "1 schedules of problems, 3 runs, of which 1 gave up"
    assert bits.summary([row | {"gave up": 0}, row | {"runs": 0, "gave up": 0}]) == "1 schedules of problems, 3 runs"


def test_what_is_refused_and_what_fails(checked, monkeypatch):
    def fail(run):
        raise DriverError("the device is lost")

    monkeypatch.setitem(WAYS, "refused", Options(schedule="stepped", meeting="flow", lanes=False))
    monkeypatch.setattr(Run, "execute", fail)
    failed, refused = only(checked, monkeypatch, "stepped", "refused")
    assert bits.broken(failed) == [f"{QUICK_BITS[0].name} stepped: the device is lost"]
    assert "options.meeting" in refused["refused"]
    assert not bits.broken(refused)


@pytest.mark.parametrize("cases", [BITS, CANDIDATES, ESTIMATES], ids=["bits", "candidates", "estimates"])
def test_problems_are_different(cases):
    """And what is drawn for them has their types."""
    assert len({case.name for case in cases}) == len(cases)
    for case in cases[:2] + cases[-1:]:
        assert all(np.isfinite(array.astype(float)).all() for array in arrays(case.problem).values())


# The others

def test_rates_without_ceilings(device, tmp_path):
    rows = estimates.rates(device.info, tmp_path / "none.json")
    assert {row["measured"] for row in rows} == {None}
    assert all(row["estimated"] > 0 for row in rows)


def test_rates_beside_ceilings(device, tmp_path):
    found = {"gflops": 100.0, "read_gb_s": {"1": 80.0, "2": 90.0, "3": 10.0}, "barrier_us": {"2": 1.0, "8": 3.0, "32": None},
             "submission_us": 30.0, "dispatch_us": 6.0}
    (tmp_path / "ceilings.json").write_text(json.dumps(found))
    rows = estimates.rates(device.info, tmp_path / "ceilings.json")
    assert [row["measured"] for row in rows] == [100.0, 90.0, 10.0, 3.0, 30.0, 6.0]
    assert rows[3]["times"] == pytest.approx(3e-6 / gpu_rates(device.info).meeting)


def test_the_best_of_each_schedule_is_tried(device):
    planner = Planner(CANDIDATES[1].problem, device.info)
    tried = candidates.worth_trying(planner, 1)
    assert tried[0] == planner.best()
    assert {tiling.loop.schedule for tiling in tried} == {tiling.loop.schedule for tiling in planner.tilings()}


def test_tables(tmp_path):
    outcome.write(tmp_path, "name", "Title", "Notes.", {"One": [{"a": 1.23456, "b": None}], "None": []})
    assert (tmp_path / "name.md").read_text().startswith("# Title\n\nNotes.\n\n## One\n\n|     a | b   |\n")
    assert json.loads((tmp_path / "name.json").read_text()) == {"One": [{"a": 1.23456, "b": None}], "None": []}
    assert Job(tmp_path / "part", True).others == tmp_path
