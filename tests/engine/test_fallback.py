"""What gives up is done in the other way: a part of a recording, or all of an execution."""

import numpy as np
import pytest

import vkdml
from tests.engine.ready import table_of
from vkdml.engine.attempts import Attempts
from vkdml.engine.commands import Commands
from vkdml.engine.vulkan.gpu import Submission
from vkdml_lab.suite.support import tensor

WORD = 2  # of the state, that says that the attempt gave up


@pytest.fixture(params=[False, True], ids=["all again", "in its place"])
def merges(request):
    """Whether host and device may write different parts, as in recordings; then nothing else is done again."""
    return request.param


class Scene:
    """An attempt that adds `given` to the state, a fallback that copies `given` to `result`, and a readback of `result`."""

    def __init__(self, device, merges, goes_on=True):
        self.device = device
        self.given, self.state, self.result = (device.upload(np.zeros(4, np.float32)) for _ in range(3))
        self.recorded = []
        self.attempts = Attempts(goes_on)
        self.commands = Commands(device.gpu, merges)
        self.commands.attempt(lambda commands: self.record(commands, "attempt"), self.state, WORD,
                              lambda commands: self.record(commands, "fallback"), self.attempts, frozenset([self.state, self.result]))
        self.commands.readback(self.result)

    def record(self, commands, way):
        self.recorded.append(way)
        floats = tensor(4)
        if way == "attempt":
            desc = vkdml.DML_ELEMENT_WISE_ADD_OPERATOR_DESC(ATensor=floats, BTensor=floats, OutputTensor=floats)
            table = table_of(self.device, desc, [self.state, self.given], [self.state])
        else:
            desc = vkdml.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(InputTensor=floats, OutputTensor=floats)
            table = table_of(self.device, desc, [self.given], [self.result])
        table.dispatchable.record(commands, table.parts[0].bound, None)

    def run(self, *given):
        """What the fallback wrote."""
        self.given.upload(np.array(given, np.float32))
        self.result.upload(np.zeros(4, np.float32))
        self.commands.execute()
        return self.result.read((4,)).tolist()


@pytest.fixture
def ran(monkeypatch):
    """The submissions that ran."""
    submissions, run = [], Submission.run
    monkeypatch.setattr(Submission, "run", lambda submission: (submissions.append(submission), run(submission)))
    return submissions


def test_the_fallback_runs_where_the_attempt_gave_up(device, memory, merges):
    scene = Scene(device, merges)
    assert scene.run(1, 2, 0, 0) == [0, 0, 0, 0]
    assert scene.recorded == ["attempt"]
    for _ in range(2):
        assert scene.run(1, 2, 3, 4) == [1, 2, 3, 4]
        assert scene.state.download((4,)).tolist()[WORD:] == [0, 0]
    assert scene.run(1, 2, 0, 0) == [0, 0, 0, 0]
    assert scene.recorded == ["attempt", "fallback"]
    assert scene.attempts.timeouts == 2


def test_an_attempt_shares_its_submission(device, memory, merges, ran):
    """With all that is repeated, or with all before it."""
    scene = Scene(device, merges)
    for _ in range(2):
        ran.clear()
        scene.commands.execute()
    assert len(ran) == scene.commands.counts[0] == (2 if merges and memory == "device memory" else 1)
    assert scene.commands.counts[1] == 1


def test_the_words_where_workgroups_meet_are_cleared_first(device, memory, merges, monkeypatch):
    scene = Scene(device, merges)
    scene.state.upload(np.full(4, 9, np.float32))
    scene.run(0, 0, 0, 0)

    def fail(submission):
        raise vkdml.DriverError("lost")

    with monkeypatch.context() as failing:
        failing.setattr(Submission, "run", fail)
        with pytest.raises(vkdml.DriverError, match="lost"):
            scene.commands.execute()
    scene.state.upload(np.full(4, 9, np.float32))  # what a failure may leave there
    scene.run(0, 0, 0, 0)
    assert scene.attempts.timeouts == 0
    assert scene.state.download((4,))[WORD:].tolist() == [0, 0]


def test_what_gave_up_once_is_not_tried_again_where_nobody_asked_for_it(device, memory, merges):
    scene = Scene(device, merges, goes_on=False)
    assert scene.run(1, 2, 0, 0) == [0, 0, 0, 0]
    assert scene.run(1, 2, 3, 4) == [1, 2, 3, 4]
    scene.state.upload(np.full(4, 9, np.float32))
    for _ in range(2):
        assert scene.run(5, 6, 0, 0) == [5, 6, 0, 0]
        assert scene.state.download((4,)).tolist() == [9] * 4  # nothing was tried
    assert scene.attempts.timeouts == 1


@pytest.mark.parametrize(("goes_on", "text"), [(True, "this time"), (False, "and from now on at once")])
def test_it_is_logged_that_one_gave_up(device, memory, merges, caplog, goes_on, text):
    Scene(device, merges, goes_on).run(1, 2, 3, 0)
    assert [(record.name, record.levelname) for record in caplog.records] == [("vkdml.engine.attempts", "WARNING")]
    assert caplog.text.endswith(f"workgroups did not meet in time: the fallback runs, {text}\n")
