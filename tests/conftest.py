from pathlib import Path

import pytest

import vkdml
from tests import recording


def pytest_addoption(parser):
    parser.addoption("--report", type=Path, metavar="FILE", help="write each test's outcome and largest errors, a line of JSON each")
    parser.addoption("--long", action="store_true", help="run the tests named *_long too")


def pytest_configure(config):
    path = config.getoption("--report")
    if path:
        config.pluginmanager.register(recording.Reporter(path))


def pytest_pycollect_makeitem(collector, name):
    """An empty list is no test; None leaves it to pytest."""
    return [] if name.endswith("_long") and not collector.config.getoption("--long") else None


def pytest_runtest_setup():
    recording.RECORDS.clear()


@pytest.fixture(scope="session")
def device() -> vkdml.Device:
    return vkdml.Device()
