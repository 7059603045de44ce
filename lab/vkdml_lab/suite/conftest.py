"""What all tests of the suite have: what they compile is noted, so that the report of a failure or a crash can say it."""

import pytest

from vkdml_lab.suite import recording


@pytest.fixture(autouse=True)
def _watched(monkeypatch):
    recording.watch(monkeypatch)
