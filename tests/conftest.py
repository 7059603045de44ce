import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

import vkdml
from tests import recording
from tools.compile_shaders import SHADERS, compile_source
from vkdml.runtime import kernels
from vkdml.runtime.device import SHARES_PIPELINES


def pytest_addoption(parser):
    parser.addoption("--report", type=Path, metavar="FILE",
                     help="write each test's outcome and largest errors, a line of JSON each")
    parser.addoption("--long", action="store_true", help="run the tests named *_long too")


def pytest_configure(config):
    os.environ.setdefault("VKDML_TUNING", "off")  # on a GPU, too, a test's plan is the same on each run
    os.environ.setdefault("VKDML_SELFTEST", "off")  # what it finds would be kept in the user's cache
    path = config.getoption("--report")
    if path:
        config.pluginmanager.register(recording.Reporter(path))


def pytest_ignore_collect(collection_path, config):
    """Modules that are marked as a whole are not even imported where their tests are not wanted: some import for seconds."""
    unwanted = "not device" in config.option.markexpr and collection_path.suffix == ".py"
    return True if unwanted and "\npytestmark = pytest.mark.device\n" in collection_path.read_text() else None


def pytest_pycollect_makeitem(collector, name):
    """An empty list is no test; None leaves it to pytest."""
    return [] if name.endswith("_long") and not collector.config.getoption("--long") else None


def pytest_collection_modifyitems(items):
    """`device` for tests that ask for the fixture, `thorough` for the members of a family that are not typical of it."""
    families = defaultdict(list)
    for item in items:
        if "device" in item.fixturenames:
            item.add_marker("device")
        if item.get_closest_marker("family"):
            families[item.function].append(item)
    for members in families.values():
        for member in set(members) - typical(members, members[0].get_closest_marker("family").kwargs.get("first")):
            member.add_marker("thorough")


def typical(members, first):
    """The first so many; without a number those on the diagonal of the grid of their parameters, where each value of each
    parameter stands at least once.
    """
    if first is not None:
        return set(members[:first])
    values = {name: list({id(member.callspec.params[name]): None for member in members}) for name in members[0].callspec.params}
    steps = range(max(map(len, values.values())))
    diagonal = {tuple(ids[step % len(ids)] for ids in values.values()) for step in steps}
    return {member for member in members if tuple(id(member.callspec.params[name]) for name in values) in diagonal}


def pytest_runtest_setup():
    recording.RECORDS.clear()


@pytest.fixture(scope="session")
def device() -> vkdml.Device:
    return vkdml.Device()


@pytest.fixture
def shared_pipelines() -> None:
    """For tests that count pipelines."""
    if not SHARES_PIPELINES:
        pytest.skip("this kp makes a pipeline for each set of buffers; the one that `make wheels` builds does not")


@pytest.fixture
def mistaken(monkeypatch, tmp_path):
    """mistaken(kernel, file, old, new): from now on the kernel is one with another text in one of the shaders' files."""
    def compiled(kernel, file, old, new):
        shaders = tmp_path / "shaders"
        shutil.copytree(SHADERS, shaders)
        text = (shaders / file).read_text()
        assert old in text
        (shaders / file).write_text(text.replace(old, new))
        compile_source(shaders / f"{kernel}.comp", tmp_path / "wrong.spv")
        wrong, right = kernels.of_spirv(kernel, (tmp_path / "wrong.spv").read_bytes()), kernels.load
        monkeypatch.setattr(kernels, "load", lambda name: wrong if name == kernel else right(name))

    return compiled
