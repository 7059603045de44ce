"""Tests gpu/calls.py: a call after the first makes one submission, one wait, no new object, and copies within a bound."""

import pytest

from vkdml_lab.gpu import calls
from vkdml_lab.gpu.calls import BOUNDS, CHECKED, HERE, breaches, counted
from vkdml_lab.gpu.drivers import FETCHED
from vkdml_lab.gpu.gpus import GPUS


@pytest.mark.device
@pytest.mark.thorough
@pytest.mark.parametrize("name", CHECKED)
def test_warm_calls(name):
    if not (FETCHED / "done").exists():
        pytest.skip(f"the drivers are not downloaded: there is no {FETCHED / 'done'} (make gpu-check)")
    found = counted(name, HERE)
    assert list(found) == HERE
    assert [text for call, counts in found.items() for text in breaches(GPUS[name], call, counts)] == []
    assert all((counts["dispatches"] > 0) == (call != "download") for call, counts in found.items())
    assert all((counts["copied bytes"] > 0) == (name != "tgl") for counts in found.values())


@pytest.mark.parametrize(("changed", "text"), [
    ({}, None), ({"submissions": 3}, "rx7900xtx, layer: 3 submissions, at most 1 are allowed"),
    ({"waits": 2}, "2 waits, at most 1"), ({"copies": 5}, "5 copies, at most 4"), ({"barriers": 13}, "13 barriers, at most 12"),
    ({"copied bytes": 263_296}, "263296 copied bytes, at most 205888"), ({"vkAllocateMemory": 1}, "1 vkAllocateMemory, at most 0")])
def test_what_breaks_a_bound(changed, text):
    found = breaches(GPUS["rx7900xtx"], "layer", {"submissions": 1, "waits": 1, "dispatches": 4, **BOUNDS["layer"], **changed})
    assert len(found) == (text is not None)
    assert all(text in one for one in found)


def test_a_gpu_in_the_processor_copies_nothing():
    counts = {"submissions": 1, "waits": 1, "barriers": 7, "copies": 1, "copied bytes": 4}
    assert len(breaches(GPUS["tgl"], "layer", counts)) == 2


def test_a_process_that_fails(monkeypatch):
    """`counted` raises RuntimeError if the process that should make the calls fails."""
    monkeypatch.setattr(calls, "driver", lambda *_: calls.Driver(["false"], {}))
    with pytest.raises(RuntimeError, match="tgl: the process ended with 1"):
        counted("tgl", ["layer"])
