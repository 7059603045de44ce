"""The part of the report that times other libraries: its steps, its rows, and what it says of them."""

import json

import pytest

from bench.cases import Case
from bench.measure import WRONG, Result
from bench.peers import OURS, Peer, peers
from tests.bench.support import TINY, misbehaving
from tools.gpu_report import peers as part
from tools.gpu_report.outcome import FAILED, PASSED, Job
from vkdml.laboratory import select_device

COLUMNS = ["part", "case", "T", "B", "I", "H", "cell", "type", "library", "way", "schedule", "seconds", "estimate", "gave up", "error",
           "right"]


@pytest.fixture
def comparison(tmp_path, monkeypatch):
    """Of vkdml with libraries that misbehave, in one step."""
    made = part.Comparison(Job(tmp_path, True))
    made._peers |= {name: misbehaving(name) for name in ("wrong", "crash", "unavailable")}
    monkeypatch.setattr(part, "QUICK", TINY)
    monkeypatch.setattr(part, "CPU", "wrong")
    monkeypatch.setattr(part, "ON_GPU", ("crash", "unavailable"))
    yield made
    made.close()


@pytest.mark.device
def test_rows_are_written_as_they_come(comparison, tmp_path):
    """What is wrong has no time, what is missing is told, and neither is vkdml's failure. A second call measures nothing."""
    step, _ = comparison.steps()
    step.run()
    rows = [json.loads(line) for line in (tmp_path / part.RESULTS).read_text().splitlines()]
    assert rows == comparison.rows
    assert all(list(row) == COLUMNS for row in rows)
    assert [(row["library"], row["way"], row["right"], row["seconds"] is not None) for row in rows] == [
        (OURS, "host", True, True), (OURS, "device", True, True), (OURS, "readback", True, True), ("wrong", "host", False, False),
        ("crash", "", None, False)]
    assert rows[0] | {"seconds": 0} == dict(zip(COLUMNS, [
        "peers", TINY.name, 3, 2, 4, 8, "gru", "float32", OURS, "host", "", 0, None, None, "", True]))
    libraries = json.loads((tmp_path / part.LIBRARIES).read_text())
    assert [one["name"] for one in libraries["here"]] == [OURS, "wrong", "crash"]
    assert [one["name"] for one in libraries["missing"]] == ["unavailable"]
    found = comparison.outcome()
    assert found.status == PASSED
    assert "wrong is wrong" in found.line
    assert "unavailable is missing (no such device; to get it: make bench-peers)" in found.line

    again = part.Comparison(Job(tmp_path, True))
    again._peers |= comparison._peers
    next(iter(again.steps())).run()
    again.close()
    assert again.rows == rows


@pytest.mark.device
def test_lengths_that_vary(comparison, monkeypatch):
    monkeypatch.setitem(part.shapes.MODELS, part.VARYING, part.shapes.Model("GRU", 3, 1, 8, part.shapes._sentences))
    _, step = comparison.steps()
    step.run()
    step.run()
    assert [(row["library"], row["seconds"] > 0, row["T"], row["right"]) for row in comparison.rows] == [
        (OURS, True, None, True), ("onnxruntime-cpu", True, None, True)]


@pytest.mark.device
def test_what_matters_most_comes_first(tmp_path):
    """vkdml beside the processor's library at five shapes, then what else this GPU runs; each library that is named is known."""
    comparison = part.Comparison(Job(tmp_path, False))
    names = [step.name for step in comparison.steps()]
    assert names[:10] == [*(f"{case.name} with vkdml, onnxruntime-cpu" for case in part.FIRST),
                          *(f"{case.name} with torch-gpu, onnxruntime-webgpu, openvino-gpu" for case in part.FIRST)]
    assert len(set(names)) == len(names)
    assert {OURS, part.CPU, *part.ON_GPU, *part.OTHER_TYPES, *part.OTHERS_ON_CPU} <= {
        peer.name for peer in peers(select_device(None), [])}
    assert {case.batch for case in part.SECOND} == {1, 16, 64}


def made_up(case, library, way, seconds, error=""):
    return part.row(case, Peer(library, "none"), Result(case.name, library, way, seconds=[seconds] * bool(seconds), error=error))


def test_what_is_said():
    other = Case("gru", 1, 1, 8, 8)
    rows = [made_up(part.READ, OURS, "host", 1.0), made_up(part.READ, part.CPU, "host", 2.0), made_up(other, OURS, "host", 1.0),
            made_up(other, part.CPU, "host", 4.0), made_up(other, "some-gpu", "host", 0, WRONG + "nan"),
            made_up(part.READ, OURS, "readback", 50 * 64 * 512 * 4 / 2e8)]
    assert part.beside(rows, "host") == [{"case": part.READ.name, "vkdml ms": 1e3, part.CPU: 2.0},
                                         {"case": other.name, "vkdml ms": 1e3, part.CPU: 4.0}]
    assert list(part.sentences(rows, [])) == [
        "5 times of 3 libraries", "onnxruntime-cpu takes 3 times as long as vkdml, in the middle of 2 cases",
        "vkdml reads its output at 0.2 GB/s, as if its memory were not cached", "some-gpu is wrong"]
    rows[-1]["seconds"] /= 50
    assert "vkdml reads its output at 10 GB/s" in part.sentences(rows, [])


@pytest.mark.device
def test_only_our_own_mistakes_are_failures(tmp_path):
    comparison = part.Comparison(Job(tmp_path, True))
    comparison.rows = [made_up(TINY, "torch-gpu", "host", 0, WRONG + "1.0 from the reference")]
    assert comparison.outcome().status == PASSED
    comparison.rows.append(made_up(TINY, f"{OURS}-float16", "host", 0, WRONG + "1.0 from the reference"))
    found = comparison.outcome()
    assert found.status == FAILED
    assert found.failures == ["gru-3x2x4x8 vkdml-float16 host: wrong: 1.0 from the reference"]
