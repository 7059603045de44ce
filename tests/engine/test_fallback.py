"""What gives up is done in the other way: a part of a recording, or all of an execution."""

from dataclasses import replace

import numpy as np
import pytest

import vkdml
from vkdml.engine.commands import Attempts, Commands
from vkdml.engine.vulkan.gpu import Gpu
from vkdml.planning.plan import Plan
from vkdml_lab.suite.support import tensor


@pytest.fixture(params=[False, True], ids=["all again", "in its place"])
def merges(request):
    """Whether host and device may write different parts, as in recordings; then nothing else is done again."""
    return request.param


class Scene:
    """An attempt that adds `given` to the state, whose first word says that it gave up; a fallback that copies `given` to `result`;
    and a readback of `result`.
    """

    def __init__(self, device, merges, goes_on=True):
        self.buffers = {name: device.upload(np.zeros(4, np.float32)) for name in ("given", "state", "result")}
        self.given, self.state, self.result = self.buffers.values()
        floats = tensor(4)
        add = vkdml.DML_ELEMENT_WISE_ADD_OPERATOR_DESC(ATensor=floats, BTensor=floats, OutputTensor=floats)
        copy = vkdml.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(InputTensor=floats, OutputTensor=floats)
        plan = Plan((), dispatches(device, add, ATensor="state", BTensor="given", OutputTensor="state"), {},
                    dispatches(device, copy, InputTensor="given", OutputTensor="result"), "state")
        self.plan, self.attempts = plan, Attempts(goes_on)
        self.commands = Commands(device.gpu, merges)
        self.commands.execution(plan, self.buffers, self.attempts)
        self.commands.readback(self.result)

    def run(self, *given):
        """What the fallback wrote."""
        self.given.upload(np.array(given, np.float32))
        self.result.upload(np.zeros(4, np.float32))
        self.commands.execute()
        return self.result.read((4,)).tolist()


def dispatches(device, desc, **names):
    """An operator's dispatches on buffers of these names."""
    plan = device.compile_operator(device.create_operator(desc)).plan
    return tuple(replace(dispatch, buffers={block: names[field] for block, field in dispatch.buffers.items()},
                         writes=tuple(names[field] for field in dispatch.writes)) for dispatch in plan.execute)


def test_the_fallback_runs_where_the_attempt_gave_up(device, memory, merges, monkeypatch):
    made, create = [], Gpu.create_kernel
    monkeypatch.setattr(Gpu, "create_kernel", lambda *arguments, **options: (made.append(1), create(*arguments, **options))[1])
    scene = Scene(device, merges)
    assert scene.run(0, 0, 2, 1) == [0, 0, 0, 0]
    assert len(made) == 1  # the fallback's comes when it is needed
    for _ in range(2):
        assert scene.run(4, 3, 2, 1) == [4, 3, 2, 1]
        assert scene.state.download((4,)).tolist() == [0] * 4
    assert scene.run(0, 0, 2, 1) == [0, 0, 0, 0]
    assert len(made) == 2
    assert scene.attempts.timeouts == 2


def test_an_attempt_shares_its_submission(device, memory, merges, submitted):
    """With all that is repeated, or with all before it."""
    scene = Scene(device, merges)
    for _ in range(2):
        submitted.clear()
        scene.commands.execute()
    assert len(submitted) == scene.commands.counts[0] == (2 if merges and memory == "device memory" else 1)
    assert scene.commands.counts[1] == 1


def test_the_word_is_cleared_first(device, memory, merges, failing_call):
    scene = Scene(device, merges)
    scene.state.upload(np.full(4, 9, np.float32))
    scene.run(0, 0, 0, 0)
    failing_call.left = 1
    with pytest.raises(vkdml.DriverError, match="running"):
        scene.commands.execute()
    scene.state.upload(np.full(4, 9, np.float32))  # what a failure may leave there
    scene.run(0, 0, 0, 0)
    assert scene.attempts.timeouts == 0
    assert scene.state.download((4,)).tolist() == [0] * 4


def test_what_gave_up_once_is_not_tried_again_where_nobody_asked_for_it(device, memory, merges):
    scene = Scene(device, merges, goes_on=False)
    assert scene.run(0, 0, 2, 1) == [0, 0, 0, 0]
    assert scene.run(4, 3, 2, 1) == [4, 3, 2, 1]
    scene.state.upload(np.full(4, 9, np.float32))
    for _ in range(2):
        assert scene.run(0, 0, 6, 5) == [0, 0, 6, 5]
        assert scene.state.download((4,)).tolist() == [9] * 4  # nothing was tried
    assert scene.attempts.timeouts == 1


def test_attempts_that_share_their_words_all_count(device, memory, merges):
    scene, other = Scene(device, merges), Attempts()
    scene.commands.execution(scene.plan, scene.buffers, other)
    for _ in range(2):
        assert scene.run(4, 3, 2, 1) == [4, 3, 2, 1]
    assert (scene.attempts.timeouts, other.timeouts) == (2, 2)
    assert scene.state.download((4,)).tolist() == [0] * 4


@pytest.mark.parametrize(("goes_on", "text"), [(True, "this time"), (False, "and from now on at once")])
def test_it_is_logged_that_one_gave_up(device, memory, merges, caplog, goes_on, text):
    Scene(device, merges, goes_on).run(1, 2, 3, 0)
    assert [(record.name, record.levelname) for record in caplog.records] == [("vkdml.engine.commands", "WARNING")]
    assert caplog.text.endswith(f"workgroups gave up waiting: the fallback runs, {text}\n")
