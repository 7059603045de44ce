"""Fixtures of all tests of the suite. They record compiled operators, so that reports of failures and crashes can name them."""

import pytest

from vkdml_lab.suite import recording


@pytest.fixture(autouse=True)
def _watched(monkeypatch):
    recording.watch(monkeypatch)
