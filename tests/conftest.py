"""Fixtures of all tests: what the driver was asked, and a driver of which a call fails."""

from types import SimpleNamespace

import numpy as np
import pytest

import vkdml
from tests.engine.ready import as_ours
from tests.programs import PROCESSES
from vkdml.engine.vulkan.driver import Driver
from vkdml.engine.vulkan.gpu import Submission
from vkdml.engine.vulkan.memory import DeviceMemory


@pytest.fixture(scope="session", autouse=True)
def _end_of_programs():
    yield
    for process in PROCESSES.values():
        process.communicate()


@pytest.fixture
def submitted(monkeypatch):
    """The submissions that ran."""
    ran, run = [], Submission.run
    monkeypatch.setattr(Submission, "run", lambda submission: (ran.append(submission), run(submission)))
    return ran


@pytest.fixture
def uploads(monkeypatch):
    """The arrays of float32 that were copied to buffers by themselves: what is kept on the device."""
    copied, upload = [], DeviceMemory.upload
    monkeypatch.setattr(DeviceMemory, "upload", lambda memory, array, *at: (
        upload(memory, array, *at), copied.append(array) if array.dtype == np.float32 else None)[0])
    return copied


@pytest.fixture
def failing_call(monkeypatch):
    """failing_call.left counts the driver's calls down; the call that makes it 0 fails. None fails until a test sets it."""
    counter, call = SimpleNamespace(left=0), Driver.call

    @as_ours
    def may_fail(driver, doing, work):
        counter.left -= 1
        if not counter.left:
            raise vkdml.DriverError(doing)
        return call(driver, doing, work)

    monkeypatch.setattr(Driver, "call", may_fail)
    return counter
