"""A fixture for all tests of the suite. It records the operators that tests compile, so that reports of failures name them."""

import pytest

from vkdml_lab.suite import recording


@pytest.fixture(autouse=True)
def _watched(monkeypatch):
    recording.watch(monkeypatch)
