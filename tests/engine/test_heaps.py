"""Random recordings over shared heaps leave on host and device, byte by byte, what the model in heaps.py says."""

import pytest

from vkdml.engine import commands
from vkdml.engine.vulkan import buffers
from vkdml.engine.weights import Weights
from vkdml_lab.suite import heaps
from vkdml_lab.suite.support import random_numbers


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 9))])
def test_random_recordings(device, memory, seed):
    """Of the comparisons most are of results that are known, of each operator some."""
    desc = heaps.GRU if seed == 0 else heaps.drawn(random_numbers(seed))
    counts = heaps.search(device, 60 if seed == 0 else 150, seed, desc)
    assert counts["device"] >= (150 if seed == 0 else 450)
    assert all(counts[name] for name in heaps.KINDS), counts


def without_places(monkeypatch):
    monkeypatch.setattr(buffers, "_contents", lambda bound: bound.stamp)


def without_writes_to_parts(monkeypatch):
    right = buffers.Buffer._mark_written
    monkeypatch.setattr(buffers.Buffer, "_mark_written", lambda buffer, offset=0, size=None: None if offset else right(buffer, offset, size))


def without_stamps_of_dispatches(monkeypatch):
    monkeypatch.setattr(buffers.Range, "_mark_computed", lambda part: None)


def without_stamps_of_uploads(monkeypatch):
    monkeypatch.setattr(buffers.Buffer, "_mark_uploaded", lambda buffer: None)


def without_what_is_written_before(monkeypatch):
    monkeypatch.setattr(commands.Commands, "_changes", lambda recording, steps: iter(()))


def without_others_in_a_resource(monkeypatch):
    monkeypatch.setattr(Weights, "stamp", 0)


def without_merges(monkeypatch):
    monkeypatch.setattr(buffers.Buffer, "_merge", lambda buffer: None)


def without_what_the_host_wrote(monkeypatch):
    monkeypatch.setattr(buffers.Differences, "written_by_host", lambda differences, begin, end: None)


FAMILY = [without_writes_to_parts, without_stamps_of_dispatches, without_what_is_written_before, without_others_in_a_resource,
          without_stamps_of_uploads, without_merges, without_what_the_host_wrote]


@pytest.mark.parametrize("mistake", [without_places, *(pytest.param(mistake, marks=pytest.mark.thorough) for mistake in FAMILY)])
def test_a_mistake_is_found(device, monkeypatch, mistake):
    """And told in few actions. Some can be made only where the device has memory of its own."""
    monkeypatch.setattr(device.gpu, "host_memory", False)
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match=r"draw \d+ of seed 0: \[") as caught:
        heaps.search(device, 1000)
    assert str(caught.value).count("('") <= 8
