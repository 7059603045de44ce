"""Tests the soak, which makes random calls for a long time: a short run, planted leaks, and calls or processes that fail."""

import json
import subprocess
import sys

import numpy as np
import pytest

from vkdml_lab.fuzz import running
from vkdml_lab.fuzz.calls import Call
from vkdml_lab.soak import __main__ as soak
from vkdml_lab.soak import report, worker
from vkdml_lab.soak.growth import ALLOWED, growth
from vkdml_lab.soak.worker import Life


def samples(**series):
    """Make 60 samples of a process's resources, 50 calls apart. series: 60 values of a resource, by name; others stay 100."""
    made = {what: np.full(60, 100.0) for what in ALLOWED} | {key.replace("_", " "): values for key, values in series.items()}
    return [{"calls": 50 * (1 + i), **{what: values[i] for what, values in made.items()}} for i in range(60)]


NOISE = np.random.default_rng(0).normal(0, 3, 60)
ROUNDS = np.arange(60)


@pytest.mark.parametrize(("values", "grows"), [
    (300 + NOISE, False),
    (300 + NOISE + 100 * np.minimum(ROUNDS / 20, 1), False),  # caches are full after a third
    (300 + NOISE + np.where(ROUNDS == 50, 500, 0), False),
    (300 + NOISE + 0.4 * ROUNDS, True),  # 8 KiB a call
    (300 + NOISE - 0.4 * ROUNDS, False),
    (300 + NOISE + 100 * (ROUNDS > 35), True),
])
def test_growth_of_memory(values, grows):
    found = growth(samples(resident_memory=values), "resident memory")
    assert found.grows == grows, found
    assert found.calls == 39 * 50
    assert found.least_seen == pytest.approx(8 / 1950)


def test_growth_of_file_handles():
    """One more handle per thousand calls is reported as a leak. A single new handle is not."""
    assert growth(samples(file_handles=10 + ROUNDS // 20), "file handles").grows
    assert not growth(samples(file_handles=10 + (ROUNDS > 50)), "file handles").grows


def test_too_few_samples_say_nothing():
    assert growth(samples()[:4], "threads") is None


LEAKS = {"memory": "lost.append(np.ones(2**15))", "files": "lost.append(os.open(os.devnull, os.O_RDONLY))",
         "objects": "lost.extend([[] for _ in range(200)])", None: "None"}
LIFE = """
import os
import sys
from pathlib import Path

import numpy as np

from vkdml_lab.soak import worker

lost = []
worker.OPERATORS, worker.CALLS, worker.RECORDINGS = 1, 25, 3
worker.Life(Path(sys.argv[1]), seed=1, seconds=30, before=lambda call: %s).run()
"""


@pytest.mark.device
@pytest.mark.thorough
@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_seen(leak, tmp_path):
    """The report names the resource that a process leaks in each call, and none if it leaks nothing."""
    subprocess.run([sys.executable, "-c", LIFE % LEAKS[leak], tmp_path / "1.jsonl"], check=True)
    lived = report.read(tmp_path / "1.jsonl", 1, False, "")
    assert not lived.failures
    assert {found.what for found in lived.growths()} == set(ALLOWED), f"{len(lived.samples)} samples are too few"
    growing = {found.what for found in lived.growths() if found.grows}
    expected = {"memory": {"resident memory"}, "files": {"file handles"}, "objects": {"Python's objects"}, None: set()}[leak]
    assert growing == expected, [*lived.growths()]
    assert len(report.failed([lived])) == len(expected)


@pytest.mark.device
@pytest.mark.thorough
def test_a_short_soak(tmp_path, capsys):
    """A soak of two processes reports nothing wrong, although the driver of the second one fails at times."""
    code = soak.main(["--minutes", "0.01", "--seed", "3", "--output", str(tmp_path)])
    text = (tmp_path / report.MARKDOWN).read_text()
    assert code == 0, text
    assert "Nothing failed, and nothing grew." in text
    assert "| function " in text
    assert "| recording " in text
    lives = json.loads((tmp_path / report.DATA).read_text())
    assert [(life["seed"], life["has_faults"]) for life in lives] == [(3, False), (4, True)]
    assert sum(lives[1]["struck"].values()) == worker.STRIKES + worker.RECORDING_STRIKES
    assert not lives[0]["struck"]
    assert all(life["samples"][-1]["calls"] >= worker.CALLS for life in lives)
    assert str(report.MARKDOWN) in capsys.readouterr().out


@pytest.mark.parametrize(("code", "ended"), [
    ("import time; time.sleep(60)", "hung: no progress in 2 s"), ("raise SystemExit(3)", "crashed: exit code 3"),
    ("raise ValueError", "ended by an error")])
def test_a_process_that_ends_is_told_with_its_call(code, ended, tmp_path, monkeypatch):
    call = Call.from_json(REGRESSION)
    (tmp_path / "7.call").write_text(call.to_json())
    monkeypatch.setattr(soak, "SILENCE", 2)
    monkeypatch.setattr(soak, "COMMAND", ["-c", code])
    lived = soak.live_once(tmp_path, 7, 1, {})
    assert (lived.ended, lived.running) == (ended, call.to_json())
    (sentence,) = report.failed([lived])
    assert ended in sentence
    assert call.to_json() in sentence
    report.write([lived], tmp_path)
    assert "## Failed" in (tmp_path / report.MARKDOWN).read_text()


def test_calls_that_fail_are_reported(tmp_path, monkeypatch):
    """A failing call is shrunk, and reported in the form of regressions.json."""
    def run(call):
        assert call.batch < 3, "three rows"
        return True

    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(worker, "warm_up", lambda operators, **drawn: None)
    monkeypatch.setattr(worker, "drawn", lambda seed: {"steps": [1, 2, 3], "rows": [1, 2, 3, 4]})
    monkeypatch.setattr(Life, "_recordings", lambda life, seed: [])
    Life(tmp_path / "1.jsonl", 1, 0).run()
    lived = report.read(tmp_path / "1.jsonl", 1, False, "")
    (failure,) = lived.failures
    assert failure["error"].startswith("AssertionError: three rows")
    found = Call.from_json(failure["call"])
    assert (found.steps, found.batch) == (1, 3)
    assert failure["call"] in report.failed([lived])[0]


REGRESSION = """{"face": "function", "operator": {"cell": "RNN", "inputs": 3, "hidden": 5, "direction": "forward", "activations": [["TANH"]],
    "element": "float32", "flag": false, "clip": null, "given": []}, "steps": 3, "batch": 1, "layout": 0, "growth": 1.0, "special": null,
    "strided": false, "seed": 0, "breaks": []}"""
