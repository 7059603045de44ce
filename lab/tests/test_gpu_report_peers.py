"""Tests the part of the GPU report that times other libraries: its steps, and the rows of results that they yield."""

from dataclasses import replace

import pytest

from lab.tests.bench.support import TINY, misbehaving
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.measure import WRONG, Result
from vkdml_lab.bench.peers import OURS, Peer
from vkdml_lab.gpu_report import peers as part
from vkdml_lab.gpu_report.steps import Job

COLUMNS = ["problem", "T", "B", "I", "H", "cell", "type", "library", "way"]
WAYS = ["host", "module", "session", "device", "queued", "kernels"]


@pytest.fixture
def comparison(tmp_path, monkeypatch):
    """Make a Comparison of libraries on one tiny case. PyTorch runs on the CPU in place of a GPU."""
    monkeypatch.setattr(part, "QUICK", TINY)
    monkeypatch.setattr(part, "OTHERS", ("crash",))
    made = part.Comparison(Job(tmp_path, True))
    on_cpu = {"torch-gpu": {"device": "cpu"}, "torch-gpu-float16": {"device": "cpu", "dtype": "float16"}}
    parts = [replace(one, settings=on_cpu.get(one.name, one.settings)) for one in made._peers["together"].parts]
    made._peers |= {"together": Peer.together([*parts, misbehaving("rough")]), "crash": misbehaving("crash")}
    yield made
    made.close()


def rows(comparison, *names):
    return [row for step in comparison.steps() if any(name in step.name for name in names) for row in step.run()]


@pytest.mark.thorough
@pytest.mark.device
def test_every_way_in_turns(comparison):
    """The report has a row of times for each library and way to call it. A missing library is reported, but is no failure."""
    pytest.importorskip("torch")
    found = rows(comparison, "together", "onnxruntime-cpu")
    libraries = {row["library"]: row for row in found if row.get("table") == "Libraries"}
    assert list(libraries) == [*part.TOGETHER, "rough", *part.CPU]
    assert libraries["torch-gpu-without-tf32"]["not checked"].startswith("missing (this torch, 2")
    times = [row for row in found if "way" in row]
    assert [(row["library"], row["way"]) for row in times] == [
        *((library, way) for library in (OURS, f"{OURS}-float16") for way in WAYS),
        ("torch-gpu", "host"), ("torch-gpu-float16", "host"), ("rough", "host"), ("onnxruntime-cpu", "host")]
    for row in times:
        assert list(row)[:len(COLUMNS)] == COLUMNS
        assert row["right"]
        assert 0 < row["lower quartile"] <= row["seconds"] <= row["upper quartile"]
        assert row["n"] == part.QUICK_SAMPLES
        assert row["type"] == ("float16" if "float16" in row["library"] else "float32")
    assert not any("failed" in row for row in found)


@pytest.mark.thorough
@pytest.mark.device
def test_what_others_break_is_not_our_failure(comparison):
    """Libraries that are wrong or crash have no times. Others in a crashed process have none either. No row says "failed"."""
    ours = [one for one in comparison._peers["together"].parts if one.name == OURS]
    comparison._peers["together"] = Peer.together([*ours, misbehaving("wrong"), misbehaving("unavailable"), misbehaving("crash")])
    found = [row for row in rows(comparison, "together", "with crash") if "way" in row]
    assert [(row["library"], row["way"], row["right"], row["seconds"]) for row in found] == [
        *((OURS, way, None, None) for way in WAYS), ("wrong", "host", False, None), ("crash", "host", None, None),
        ("crash", "", None, None)]
    assert all("ended by what was asked before" in row["not checked"] for row in found[:len(WAYS)])
    assert "crashed: SIGABRT" in found[-2]["not checked"]
    assert not any("failed" in row for row in found)


@pytest.mark.device
@pytest.mark.parametrize("host_memory", [True, False])
def test_copies_in_five_parts(device, monkeypatch, host_memory):
    if host_memory and not device.gpu.host_memory:
        pytest.skip("the device's memory is not the host's")
    monkeypatch.setattr(device.gpu, "host_memory", host_memory)
    found = list(part.copies(device.gpu, 4096, 3))
    assert [row["copy"] for row in found] == [part.IN, part.UP, part.BACK, part.OUT, part.NEW]
    assert ["not checked" in row for row in found] == [False, host_memory, host_memory, False, False]
    assert all(row["right"] and row["n"] == 3 for row in found if "seconds" in row)
    monkeypatch.setattr(part.Commands, "readback", lambda *_: None)
    if not host_memory:
        assert {row["failed"] for row in part.copies(device.gpu, 4096, 1)} == {"what came back is not what was sent"}


@pytest.mark.device
def test_the_steps(tmp_path):
    """The most important steps come first, and no two have the same name."""
    steps = part.steps(Job(tmp_path))
    assert [step.first for step in steps] == [True] * 11 + [False] * (len(steps) - 11)
    assert len({step.name for step in steps}) == len(steps)


@pytest.mark.parametrize(("library", "key"), [("torch-gpu", "not checked"), (f"{OURS}-float16", "failed")])
def test_only_our_own_mistakes_are_failures(library, key):
    case = Case("gru", 1, 1, 8, 8)
    row = part.row(case, Peer(library, "none"), Result(case.name, library, "host", error=WRONG + "1.0 from the reference"))
    assert row[key] == "host: wrong: 1.0 from the reference"
    assert row["right"] is False
