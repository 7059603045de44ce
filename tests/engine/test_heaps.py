"""Random recordings over shared heaps leave on host and device, byte by byte, what the model in heaps.py says."""

import pytest

from vkdml.engine import commands
from vkdml.engine.vulkan import buffers, memory
from vkdml.engine.weights import Weights
from vkdml_lab.suite import heap_operators, heaps
from vkdml_lab.suite.support import random_numbers


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 9))])
def test_random_recordings(device, memory, seed):
    """Of the comparisons most are of results that are known, of each operator some."""
    desc = heap_operators.GRU if seed == 0 else heap_operators.drawn(random_numbers(seed))
    counts = heaps.search(device, 60 if seed == 0 else 150, seed, desc)
    assert counts["device"] >= (150 if seed == 0 else 450)
    assert all(counts[name] for name in heap_operators.KINDS), counts


RIGHT = buffers.Buffer._mark_written
MISTAKES = {  # what is left out, and what stands in its place
    "places": (memory, "contents_of", lambda bound: bound.stamp),
    "writes to parts": (buffers.Buffer, "_mark_written",
                        lambda buffer, offset=0, size=None: None if offset else RIGHT(buffer, offset, size)),
    "stamps of dispatches": (memory.Range, "_mark_computed", lambda part: None),
    "what is written before": (commands.Commands, "_changes", lambda recording, steps: iter(())),
    "others in a resource": (Weights, "stamp", 0),
    "stamps of uploads": (buffers.Buffer, "_mark_uploaded", lambda buffer: None),
    "merges": (buffers.Buffer, "_merge", lambda buffer: None),
    "what the host wrote": (buffers.Differences, "written_by_host", lambda differences, begin, end: None),
}


@pytest.mark.parametrize("mistake", [pytest.param(name, marks=[pytest.mark.thorough] * (name != "places")) for name in MISTAKES])
def test_a_mistake_is_found(device, monkeypatch, mistake):
    """And minimized to few actions. Some can be made only where the device has memory of its own."""
    monkeypatch.setattr(device.gpu, "host_memory", False)
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises(AssertionError, match=r"draw \d+ of seed 0: \[") as caught:
        heaps.search(device, 1000)
    assert str(caught.value).count("('") <= 8
