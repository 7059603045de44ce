"""What gives up is done in the other way."""

import numpy as np
import pytest

import vkdml
from tests.engine.ready import table_of
from vkdml.engine.trust.trial import Attempts, Fallback
from vkdml_lab.suite.support import tensor

WORD = 2  # of the state, that says that the attempt gave up


@pytest.fixture
def gpu(device, memory):
    return device.gpu


class Scene:
    """An attempt that copies `given` to the state, and a fallback that copies `given` to `result`."""

    def __init__(self, device, goes_on=True):
        self.device = device
        self.given, self.state, self.result = (device.upload(np.zeros(4, np.float32)) for _ in range(3))
        self.recorded = []
        self.fails = False
        self.attempts = Attempts(goes_on)
        self.fallback = Fallback(device.gpu, lambda commands: self.record(commands, "attempt", self.state), (self.state, WORD),
                                 lambda commands: self.record(commands, "fallback", self.result), self.attempts)

    def record(self, commands, way, target):
        self.recorded.append(way)
        commands.call(self.fail if way == "attempt" else lambda: None)
        floats = tensor(4)
        copy = vkdml.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(InputTensor=floats, OutputTensor=floats)
        table = table_of(self.device, copy, [self.given], [target])
        table.dispatchable.record(commands, table.parts[0].bound, None)

    def fail(self):
        self.seen = self.state.download((4,))[WORD:].tolist()
        if self.fails:
            raise vkdml.DriverError("lost")

    def run(self, *given):
        """What the fallback wrote."""
        self.given.upload(np.array(given, np.float32))
        self.result.upload(np.zeros(4, np.float32))
        self.fallback.execute()
        return self.result.download((4,)).tolist()


def test_the_fallback_runs_where_the_attempt_gave_up(device, gpu):
    scene = Scene(device)
    assert scene.run(1, 2, 0, 0) == [0, 0, 0, 0]
    assert scene.recorded == ["attempt"]
    for _ in range(2):
        assert scene.run(1, 2, 3, 4) == [1, 2, 3, 4]
        assert scene.state.download((4,)).tolist()[WORD:] == [0, 0]
    assert scene.run(1, 2, 0, 0) == [0, 0, 0, 0]
    assert scene.recorded == ["attempt", "fallback"]


def test_the_words_where_workgroups_meet_are_cleared_first(device, gpu):
    scene = Scene(device)
    scene.state.upload(np.full(4, 9, np.float32))
    scene.run(0, 0, 0, 0)
    assert scene.seen == [0, 0]
    scene.fails = True
    with pytest.raises(vkdml.DriverError, match="lost"):
        scene.run(0, 0, 0, 0)
    scene.state.upload(np.full(4, 9, np.float32))  # what a failure may leave there
    scene.fails = False
    scene.run(0, 0, 0, 0)
    assert scene.seen == [0, 0]


def test_what_gave_up_once_is_not_tried_again_where_nobody_asked_for_it(device, gpu):
    scene = Scene(device, goes_on=False)
    assert scene.run(1, 2, 0, 0) == [0, 0, 0, 0]
    assert scene.run(1, 2, 3, 4) == [1, 2, 3, 4]
    scene.state.upload(np.full(4, 9, np.float32))
    for _ in range(2):
        assert scene.run(5, 6, 0, 0) == [5, 6, 0, 0]
        assert scene.state.download((4,)).tolist() == [9] * 4  # nothing was tried
    assert scene.attempts.timeouts == 1


@pytest.mark.parametrize(("goes_on", "text"), [(True, "this time"), (False, "and from now on at once")])
def test_it_is_logged_that_one_gave_up(device, gpu, caplog, goes_on, text):
    Scene(device, goes_on).run(1, 2, 3, 0)
    assert [(record.name, record.levelname) for record in caplog.records] == [("vkdml.engine.trust.trial", "WARNING")]
    assert caplog.text.endswith(f"workgroups did not meet in time: the fallback runs, {text}\n")
