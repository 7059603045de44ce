"""What goes from one execution to the next: two buffers in turns."""

import numpy as np
import pytest

import vkdml
from vkdml.engine.commands import Commands
from vkdml.engine.execution import Carried

pytestmark = pytest.mark.device


def test_what_is_written_is_read_next(device):
    carried = Carried(device.gpu, "GRU", {"h'": "h", "c'": "c"}, {"h": 8, "h'": 8, "c": 4, "c'": 12})
    assert carried.turns == 2
    assert carried.current("c").size_in_bytes == 12
    assert not carried.current("h").download((2,)).any()
    first = carried.buffers()
    assert len(set(first.values())) == 4
    carried.advance()
    second = carried.buffers()
    assert [second[name] for name in ("h", "h'", "c", "c'")] == [first[name] for name in ("h'", "h", "c'", "c")]
    assert carried.current("h") is carried.current("h'") is second["h"]
    carried.advance()
    assert carried.buffers() == first


def test_nothing_carried(device):
    carried = Carried(device.gpu, "GRU", {}, {})
    carried.advance()
    assert (carried.turns, carried.turn, carried.buffers()) == (1, 0, {})


def test_a_run_that_fails_leaves_what_is_carried(device, monkeypatch):
    stream = vkdml.RNN(*(np.full(shape, 0.5, np.float32) for shape in ((1, 2, 2), (1, 2, 2)))).stream()
    stream.step(np.ones((1, 2), np.float32))
    before = stream.state["initial_h"]
    with monkeypatch.context() as patch:
        patch.setattr(Commands, "execute", lambda self: (_ for _ in ()).throw(vkdml.DriverError("lost")))
        with pytest.raises(vkdml.DriverError, match="lost"):
            stream.step(np.ones((1, 2), np.float32))
    np.testing.assert_array_equal(stream.state["initial_h"], before)


def test_making_it_ready_leaves_what_is_carried(device):
    """Where it compiles anew, it runs once."""
    stream = vkdml.RNN(*(np.full(shape, 0.5, np.float32) for shape in ((1, 2, 2), (1, 2, 2)))).stream()
    stream.step(np.ones((1, 2), np.float32))
    before, made = stream.state["initial_h"], device.gpu.pipelines_made
    device.gpu.store.clear()
    stream._prepare()
    assert device.gpu.pipelines_made > made
    np.testing.assert_array_equal(stream.state["initial_h"], before)
