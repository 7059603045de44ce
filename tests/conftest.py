"""Fixtures of all tests: what the driver was asked, and a driver of which a call fails."""

from types import SimpleNamespace

import pytest

import vkdml
from tests.engine.ready import as_ours
from vkdml.engine.vulkan.driver import Driver
from vkdml.engine.vulkan.gpu import Submission


@pytest.fixture
def submitted(monkeypatch):
    """The submissions that ran."""
    ran, run = [], Submission.run
    monkeypatch.setattr(Submission, "run", lambda submission: (ran.append(submission), run(submission)))
    return ran


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
