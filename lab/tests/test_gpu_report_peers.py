"""The part of the report that times other libraries: its steps and its rows."""

import pytest

from lab.tests.bench.support import TINY, misbehaving
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.measure import WRONG, Result
from vkdml_lab.bench.peers import OURS, Peer, peers
from vkdml_lab.gpu_report import peers as part
from vkdml_lab.gpu_report.steps import Job
from vkdml_lab.internals import select_device

COLUMNS = ["problem", "T", "B", "I", "H", "cell", "type", "library", "way", "seconds", "right"]


@pytest.fixture
def comparison(tmp_path, monkeypatch):
    """vkdml with libraries that misbehave, in one step."""
    made = part.Comparison(Job(tmp_path, True))
    made._peers |= {name: misbehaving(name) for name in ("wrong", "crash", "unavailable")}
    monkeypatch.setattr(part, "QUICK", TINY)
    monkeypatch.setattr(part, "CPU", "wrong")
    monkeypatch.setattr(part, "ON_GPU", ("crash", "unavailable"))
    yield made
    made.close()


@pytest.mark.device
def test_the_rows_of_a_step(comparison):
    """What is wrong has no time, what is missing is reported, and neither is vkdml's failure."""
    step, _ = comparison.steps()
    rows = list(step.run())
    libraries = [row for row in rows if row.get("table") == "Libraries"]
    assert [row["library"] for row in libraries] == [OURS, "wrong", "crash", "unavailable"]
    assert libraries[-1]["not checked"] == "missing (no such device); to get it: make bench-peers"
    times = [row for row in rows if row not in libraries]
    assert all(list(row)[:len(COLUMNS)] == COLUMNS for row in times)
    assert [(row["library"], row["way"], row["right"], row["seconds"] is not None) for row in times] == [
        (OURS, "host", True, True), (OURS, "device", True, True), (OURS, "readback", True, True), ("wrong", "host", False, False),
        ("crash", "", None, False)]
    assert times[0] | {"seconds": 0} == dict(zip(COLUMNS, [TINY.name, 3, 2, 4, 8, "gru", "float32", OURS, "host", 0, True]))
    assert "not checked" in times[3]
    assert "not checked" in times[4]
    assert not any("failed" in row for row in rows)


@pytest.mark.device
def test_lengths_that_vary(comparison, monkeypatch):
    monkeypatch.setitem(part.shapes.MODELS, part.VARYING, part.shapes.Model("GRU", 3, 1, 8, part.shapes._sentences))
    _, step = comparison.steps()
    assert [(row["library"], row["seconds"] > 0, row["T"], row["right"]) for row in step.run()] == [
        (OURS, True, None, True), ("onnxruntime-cpu", True, None, True)]


@pytest.mark.device
def test_the_steps(tmp_path):
    """What matters most comes first; each has a name of its own, and each library is known."""
    steps = part.steps(Job(tmp_path))
    assert [step.first for step in steps] == [True] * 10 + [False] * (len(steps) - 10)
    assert len({step.name for step in steps}) == len(steps)
    known = {peer.name for peer in peers(select_device(None), [])}
    assert {OURS, part.CPU, *part.ON_GPU, *part.OTHER_TYPES, *part.OTHERS_ON_CPU} <= known


@pytest.mark.parametrize(("library", "key"), [("torch-gpu", "not checked"), (f"{OURS}-float16", "failed")])
def test_only_our_own_mistakes_are_failures(library, key):
    case = Case("gru", 1, 1, 8, 8)
    row = part.row(case, Peer(library, "none"), Result(case.name, library, "host", error=WRONG + "1.0 from the reference"))
    assert row[key] == "host: wrong: 1.0 from the reference"
    assert row["right"] is False
