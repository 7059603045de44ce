"""The benchmark: what it writes, and what it does about workers that crash, hang, are wrong or missing. No times are asserted."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

import vkdml
from bench import __main__ as bench
from bench import bounds, candidates, ceilings, measure
from bench.adapters.ours import make_desc
from bench.cases import CASES, GROWTH, Case
from bench.peers import OURS, Peer, devices, peers
from bench.processes import Process
from bench.runner import Runner, UnavailableError, zero_arrays
from vkdml.planning import schedule
from vkdml.spec.problem import from_desc

TINY = Case("gru", 3, 2, 4, 8)
KINDS = [TINY, Case("lstm", 3, 2, 4, 8), Case("gru", 3, 2, 4, 8, directions=2), Case("gru", 5, 3, 4, 8, ragged=True),
         Case("gru", 1, 1, 8, 8, streaming=True), Case("gru", 3, 2, 4, 8, linear_before_reset=False)]


class Library:
    """What a worker of these tests imports: it misbehaves as it is told to, at three time steps only."""

    def __init__(self, behaviour):
        self.description = {"version": "1", "device": "none"}
        if behaviour == "unavailable":
            raise UnavailableError("no such device")
        self.result = np.nan if behaviour == "wrong" else 0
        self.behave = {"crash": os.abort, "hang": lambda: time.sleep(60), "wrong": lambda: None, "refuse": self.refuse}[behaviour]

    def refuse(self):
        raise ValueError("three steps\nare too many")

    def prepare(self, case):
        if case.steps == 3:
            self.behave()
        outputs = [np.full(shape, self.result, np.float32) for shape in case.output_shapes]
        return {"host": Runner(case, lambda *states: outputs, lambda: zero_arrays(case), list)}


def misbehaving(behaviour):
    return Peer(behaviour, "tests.bench.test_bench", {"behaviour": behaviour}, tolerance=1)


def table():
    return {peer.name: peer for peer in peers(*devices())}


def run(tmp_path, wanted, cases=(TINY,)):
    chosen = bench.parse(["--output", str(tmp_path), "--samples", "2", "--no-growth", "--no-ceilings", "--no-first-result"])
    bench.run(cases, wanted, devices()[0], chosen)
    return json.loads((tmp_path / "results.json").read_text()), (tmp_path / "report.md").read_text()


def test_a_report(tmp_path):
    results, text = run(tmp_path, [table()[OURS], table()["onnxruntime-cpu"]])
    assert [(row["case"], row["worker"], row["way"]) for row in results["results"]] == [
        ("gru-3x2x4x8", "vkdml", "host"), ("gru-3x2x4x8", "vkdml", "device"), ("gru-3x2x4x8", "onnxruntime-cpu", "host")]
    for row in results["results"]:
        assert not row["error"]
        assert row["n"] == len(row["seconds"]) == 2
        assert row["flops"] == 2 * 3 * 2 * 3 * 8 * (4 + 8)
        assert row["ms"] > 0
        assert row["gflops"] > 0
        assert row["spread"] >= 0
        assert row["difference"] < 1e-5
    assert results["results"][2]["baseline"] == "vkdml"
    assert results["results"][2]["times"] > 0
    assert [worker["name"] for worker in results["workers"]] == ["vkdml", "onnxruntime-cpu"]
    assert "validation layers off" in text
    assert "| gru-3x2x4x8 | onnxruntime-cpu |" in text


def test_a_worker_that_crashes_is_reported_and_started_again(tmp_path):
    other = Case("gru", 2, 2, 4, 8)
    results, text = run(tmp_path, [misbehaving("crash"), misbehaving("refuse"), table()["onnxruntime-cpu"]], [TINY, other])
    errors = {(row["case"], row["worker"]): row["error"] for row in results["results"]}
    assert "crashed (SIGABRT)" in errors[TINY.name, "crash"]
    assert errors[TINY.name, "refuse"] == "ValueError: three steps\nare too many"
    assert "ValueError: three steps are too many" in text
    assert errors[other.name, "crash"] == errors[other.name, "refuse"] == ""
    assert errors[TINY.name, "onnxruntime-cpu"] == errors[other.name, "onnxruntime-cpu"] == ""


def test_a_worker_that_hangs_is_ended():
    process = Process(misbehaving("hang"))
    process.open()
    process._patience = 0.2
    [result] = measure.measure(TINY, [process], 2)
    process.close()
    assert "hung: no answer to prepare" in result.error


def test_a_wrong_result_has_no_time():
    process = Process(misbehaving("wrong"))
    [result] = measure.measure(TINY, [process], 2)
    process.close()
    assert result.error.startswith("wrong: nan")
    assert result.seconds == []


def test_what_is_missing_is_said_to_be(tmp_path):
    absent = Peer("absent", "bench.adapters.absent", install="pip install absent")
    results, text = run(tmp_path, [absent, misbehaving("unavailable"), table()["onnxruntime-cpu"]])
    assert [(row["name"], row["reason"]) for row in results["missing"]] == [
        ("absent", "No module named 'bench.adapters.absent'"), ("unavailable", "no such device")]
    assert "pip install absent" in text
    assert [row["worker"] for row in results["results"]] == ["onnxruntime-cpu"]


@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name + "-lbr0" * (not case.linear_before_reset))
def test_ours_and_onnx_runtime_compute_every_kind_of_case(case):
    from bench.adapters import ort, ours

    for runner in [*ours.Library().prepare(case).values(), *ort.Library().prepare(case).values()]:
        assert_right(case, runner)


@pytest.mark.parametrize("case", KINDS[:5], ids=lambda case: case.name)
def test_weights_of_torch(case):
    pytest.importorskip("torch")
    from bench.adapters import torch_nn

    assert_right(case, torch_nn.Library().prepare(case)["host"])


def assert_right(case, runner):
    for _ in range(2):  # again from a zero state
        runner.reset()
        for _ in range(case.checked_calls):
            runner.run()
        assert measure.difference(case, runner.outputs()) < 1e-5


def test_cases():
    everything = [*CASES, *(case for growing in GROWTH.values() for case in growing)]
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(everything) > len(CASES)
    ragged = next(case for case in CASES if case.ragged)
    assert ragged.lengths.max() == ragged.steps
    assert abs(ragged.lengths.mean() - ragged.steps / 2) < 1
    assert Case("lstm", 2, 3, 4, 5, directions=2).flops == 2 * 2 * 3 * 2 * 4 * 5 * (4 + 5)


def test_slow_workers_take_fewer_samples():
    assert measure.plan(TINY, 0.001, 9) == (20, 9)
    assert measure.plan(TINY, 2.5, 9) == (1, 4)
    assert measure.plan(TINY, 60.0, 9) == (1, 1)
    assert measure.plan(Case("gru", 1, 1, 8, 8, streaming=True), 0.0001, 9) == (1000, 9)


def test_names_that_are_not_there(capsys):
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--cases", "gru"])
    assert "no gru; there are gru-1x1x64x64" in capsys.readouterr().err


def test_bounds():
    measured = {"gflops": 100.0, "read_gb_s": {"1000": 10.0, "2000000": 5.0}, "submission_us": 50.0}
    assert bounds.read_rate(measured, 1000) == 10
    assert bounds.read_rate(measured, 1001) == bounds.read_rate(measured, 3000000) == 5
    assert bounds.bound(TINY, measured) == ("submission", 50e-6)
    assert bounds.bound(Case("gru", 10, 1, 1, 100), measured) == ("reads", pytest.approx(10 * 3 * 100 * 100 * 4 / 5e9))
    assert bounds.bound(Case("gru", 10, 100, 1, 100), measured)[0] == "arithmetic"


def test_ceilings_are_of_loops_that_ran():
    library = ceilings.Library(devices()[0].index)
    assert library._fma(2, 8, 1) > 0
    assert library._read_rate(2**12, [2]) > 0
    assert library._call_costs()["submission_us"] > 0


def test_a_very_slow_first_call_is_the_only_one(monkeypatch):
    monkeypatch.setattr(measure, "TOO_SLOW_SECONDS", 0.0)
    process = Process(table()[OURS])
    [result] = measure.measure(TINY, [process], 2)
    process.close()
    assert result.seconds == [result.first_call]
    assert result.way == "host"


def test_a_worker_runs_only_while_it_is_asked():
    process = Process(table()["onnxruntime-cpu"])
    process.open()
    status = Path(f"/proc/{process._process.pid}/status")
    for _ in range(100):
        if "State:\tT (stopped)" in status.read_text():
            break
        time.sleep(0.01)
    else:
        raise AssertionError("it still runs")
    assert process.ask("prepare", TINY) == ["host"]
    process.close()


def test_candidates_are_forced_as_they_are():
    """The options made for each candidate leave no other, and the model's choice comes first."""
    device = vkdml.Device()
    case = Case("gru", 3, 2, 8, 64)
    problem = from_desc(make_desc(case, "float32"))
    tried = candidates.candidates(case, device)
    assert len({tiling.schedule for tiling, _ in tried}) > 1
    for tiling, _ in tried:
        assert schedule.tilings(problem, device.info, candidates.forced(tiling)) == [tiling]
    rows = candidates.measure(case, device, samples=1)
    assert [row["schedule"] for row in rows] == [tiling.schedule for tiling, _ in tried]
    assert min(seconds for _, seconds in tried) == tried[0][1]
