"""A worker that crashes or hangs is told with what it was asked, and the next question goes to a new one."""

import os
import signal
import threading

import pytest

from vkdml_lab.faults.layer import Fault
from vkdml_lab.faults.tries import Tries

pytestmark = [pytest.mark.device, pytest.mark.thorough]

FAULT = Fault("vkCreateFence", 1, -1)


@pytest.fixture
def tries(tmp_path):
    tries = Tries(tmp_path, patience=15)
    yield tries
    tries.close()


@pytest.mark.parametrize(("number", "told"), [(signal.SIGSEGV, "crashed: SIGSEGV"), (signal.SIGSTOP, "hung: no answer")])
def test_a_worker_that_does_not_answer_is_told(tries, number, told):
    tries.ask("counts", "devices")
    threading.Timer(0.01, os.kill, (tries.worker.pid, number)).start()
    with pytest.raises(AssertionError, match=rf"'activation', Fault\(function='vkCreateFence', call=1, .*: {told}"):
        tries.ask("attempt", "activation", FAULT)
    assert tries.ask("attempt", "devices", FAULT) == "not reached"


def test_what_is_wrong_is_told(tries):
    with pytest.raises(AssertionError, match="KeyError: 'nothing'"):
        tries.ask("attempt", "nothing", FAULT)
    assert tries.ask("attempt", "devices", FAULT) == "not reached"
