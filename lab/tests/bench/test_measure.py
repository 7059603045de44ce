"""Tests bench/measure.py: wrong results, slow libraries, and processes of libraries, which are stopped between commands."""

import time
from pathlib import Path

import pytest

from lab.tests.bench.support import TINY, misbehaving, table
from vkdml_lab.bench import measure
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.peers import OURS
from vkdml_lab.bench.processes import Process


def test_a_wrong_result_has_no_time():
    process = Process(misbehaving("wrong"))
    [result] = measure.measure(TINY, [process], 2)
    process.close()
    assert result.error.startswith("wrong: nan")
    assert result.seconds == []


def test_slow_workers_take_fewer_samples():
    assert measure.plan(TINY, 0.001, 9) == (20, 9)
    assert measure.plan(TINY, 2.5, 9) == (1, 4)
    assert measure.plan(TINY, 60.0, 9) == (1, 1)
    assert measure.plan(Case("gru", 1, 1, 8, 8, streaming=True), 0.0001, 9) == (1000, 9)


@pytest.mark.device
def test_a_very_slow_first_call_is_the_only_one(monkeypatch):
    monkeypatch.setattr(measure, "TOO_SLOW_SECONDS", 0.0)
    process = Process(table()[OURS])
    [result] = measure.measure(TINY, [process], 2)
    process.close()
    assert result.seconds == [result.first_call]
    assert result.way == "host"


@pytest.mark.device
def test_a_worker_runs_only_while_it_is_asked():
    process = Process(table()["onnxruntime-cpu"])
    process.open()
    status = Path(f"/proc/{process.pid}/status")
    for _ in range(100):
        if "State:\tT (stopped)" in status.read_text():
            break
        time.sleep(0.01)
    else:
        raise AssertionError("it still runs")
    assert process.ask("prepare", TINY) == ["host"]
    process.close()
