"""What goes from one execution to the next stays where an execution does not succeed."""

import numpy as np
import pytest

import vkdml
from vkdml.engine.commands import Commands

pytestmark = pytest.mark.device


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
