"""A pytest plugin: options, marks and fixtures. A family is a set of similar tests, of which `make test` runs only some."""

import gc
import os
import re
import signal
import time
from collections import defaultdict
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from weakref import WeakSet

import pytest

import vkdml
from vkdml.engine.vulkan import spirv
from vkdml.planning import profiles
from vkdml_lab.suite import guards, recording, support

MARKERS = [
    "device: needs a Vulkan device; the fixture of that name adds this mark",
    "family(reason, first, diagonal): tests alike, of which `make test` runs the first so many, or those on the diagonal of the grid "
    "of their parameters, or on its first so many places",
    "thorough: one of a family that only `make test-all` runs; given below",
]
QUICK_SECONDS = 50  # for tests; collecting takes the rest of a minute
_started = pytest.StashKey[float]()


def pytest_addoption(parser):
    parser.addoption("--report", type=Path, metavar="FILE",
                     help="add each test's outcome and largest errors, a line of JSON each; not of tests that are there already")
    parser.addoption("--long", action="store_true", help="run the tests named *_long too")
    parser.addoption("--only", action="append", metavar="TEXT", help="run the tests with this, or another such text, in their names")
    parser.addoption("--quick", action="store_true", help="of each function some tests, those that begin within --seconds")
    parser.addoption("--seconds", type=float, default=QUICK_SECONDS, help=f"of --quick ({QUICK_SECONDS})")
    parser.addoption("--way", choices=support.OTHER_SCHEDULES, help="force this schedule on all problems that run in one")
    parser.addoption("--unguarded", action="store_true", help="buffers of exactly their sizes, for who looks at bounds")
    parser.addoption("--seed", type=int, default=0, help="of random problems (0)")


def pytest_configure(config):
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background job ignores it, but tests interrupt themselves
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("VKDML_TUNING", "off")  # so that a test on a GPU has the same plan in each run
    os.environ.setdefault("VKDML_SELFTEST", "off")  # so that no finding gets into the user's cache
    try:
        spirv.refuse_stale()
    except vkdml.DriverError as error:
        raise pytest.UsageError(str(error)) from error
    support.base_seed = config.getoption("--seed")
    support.way = config.getoption("--way")
    guards.are_wanted = not config.getoption("--unguarded")
    path = config.getoption("--report")
    if path:
        config.pluginmanager.register(recording.Reporter(path, support.TOLERANCES, support.OTHER_SCHEDULES))


def pytest_ignore_collect(collection_path, config):
    """Skip modules whose tests all need a device if `-m "not device"` deselects these: some take seconds to import."""
    unwanted = "not device" in config.option.markexpr and collection_path.suffix == ".py"
    return True if unwanted and "\npytestmark = pytest.mark.device\n" in collection_path.read_text() else None


def pytest_pycollect_makeitem(collector, name):
    """Collect no tests named *_long without --long. Returns None to leave the decision to pytest."""
    return [] if name.endswith("_long") and not collector.config.getoption("--long") else None


def pytest_collection_modifyitems(config, items):
    """Mark tests that use a device, and members of families that only `make test-all` runs. Apply --only and --quick."""
    families = defaultdict(list)
    for item in items:
        if "device" in item.fixturenames:
            item.add_marker("device")
        if item.get_closest_marker("family"):
            families[item.function].append(item)
    for members in families.values():
        for member in set(members) - typical(members, **members[0].get_closest_marker("family").kwargs):
            member.add_marker("thorough")
    wanted = [text.lower() for text in config.getoption("--only") or [""]]
    keep(config, items, lambda item: any(text in item.nodeid.lower() for text in wanted))
    if config.getoption("--quick"):
        keep(config, items, lambda item: not item.get_closest_marker("thorough"))
        items[:] = in_turns(items)


def pytest_collection_finish():
    """Freeze the millions of objects made so far, so that hundreds of later garbage collections do not visit them."""
    gc.collect()
    gc.freeze()


def keep(config, items, is_wanted):
    """Remove items for which `is_wanted` is false, and report them to pytest as deselected."""
    unwanted = [item for item in items if not is_wanted(item)]
    items[:] = [item for item in items if is_wanted(item)]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)


def in_turns(items):
    """Order tests in turns: the first test of each function, then the second of each, and so on. Functions differ in the
    recurrent operator that they begin with. In each turn, tests of test_reference.py come first: they cover most, and time may
    be short.
    """
    functions = defaultdict(lambda: defaultdict(list))
    for item in items:
        functions[item.function][operator_of(item.name)].append(item)
    places = {}
    for number, members in enumerate(functions.values()):
        names = sorted(members)
        names = names[number % len(names):] + names[:number % len(names)]
        mixed = [item for turn in zip_longest(*(members[name] for name in names)) for item in turn if item]
        places.update((item, place) for place, item in enumerate(mixed))
    return sorted(items, key=lambda item: (places[item], item.path.stem != "test_reference"))


def operator_of(name):
    """Return the recurrent operator that a test's name contains ("GRU", "LSTM" or "RNN"), or ""."""
    found = re.search(r"(?<![A-Z])(GRU|LSTM|RNN)(?![A-Z])", name)
    return found[0] if found else ""


def typical(members, first=None, diagonal=None):
    """Return the set of a family's members that `make test` runs: the `first` ones or, if `first` is None, the diagonal of the
    grid of their parameters, which has each value of each parameter. diagonal: length of the diagonal; None: all of it.
    """
    if first is not None:
        return set(members[:first])
    values = {name: list({id(member.callspec.params[name]): None for member in members}) for name in members[0].callspec.params}
    steps = range(diagonal or max(map(len, values.values())))
    places = {tuple(ids[step % len(ids)] for ids in values.values()) for step in steps}
    return {member for member in members if tuple(id(member.callspec.params[name]) for name in values) in places}


def pytest_runtestloop(session):
    session.stash[_started] = time.monotonic()


def pytest_runtest_setup(item):
    recording.RUNNING.begin(item.nodeid)
    seconds = item.config.getoption("--seconds")
    if item.config.getoption("--quick") and time.monotonic() - item.session.stash[_started] > seconds:
        pytest.skip(f"--quick: {seconds:g} s were over")


def pytest_terminal_summary(terminalreporter):
    """Print the texts that tests recorded by record_property("summary", text)."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == "summary" and report.when == "call":
                    terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def device() -> vkdml.Device:
    return vkdml.Device()


@pytest.fixture(autouse=True)
def _hidden_drivers(request, monkeypatch):
    """Hide Vulkan's drivers from tests without the mark `device`, so that a test that uses a device by mistake fails."""
    if not request.node.get_closest_marker("device"):
        for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
            monkeypatch.setenv(name, "/nonexistent.json")


@pytest.fixture
def no_sessions(monkeypatch):
    """Make vkdml forget the existing ONNX Runtime sessions during a test."""
    monkeypatch.setattr("vkdml.faces.onnx.session._on_device", WeakSet())


@pytest.fixture
def with_profile(device, monkeypatch):
    """Return a function: with_profile(field=value) changes the driver's profile, by which vkdml plans, during a test."""
    def change(**changes):
        name, usual = next((name, row) for name, row in profiles.PROFILES.items() if row.fits(device.info))
        monkeypatch.setitem(profiles.PROFILES, name, replace(usual, **changes))

    return change


@pytest.fixture
def mistaken(monkeypatch, tmp_path):
    """Return a function: mistaken(kernel, file, old, new) replaces a kernel by one compiled with `new` for `old` in `file`."""
    compiler = pytest.importorskip("tools.compile_shaders", reason="the sources of the shaders are not in the wheel")

    def compiled(kernel, file, old, new):
        code = compiler.mistaken(tmp_path, file, old, new, kernel.__eq__)[kernel]
        wrong, right = spirv.of_spirv(kernel, code), spirv.load
        monkeypatch.setattr(spirv, "load", lambda name: wrong if name == kernel else right(name))

    return compiled
