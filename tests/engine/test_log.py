"""What is logged, at which level, and where VKDML_LOG sends it."""

import io
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import vkdml
from tests import programs
from tests.engine.ready import as_ours, table_of
from tests.engine.test_tuner import timed  # noqa: F401  (a fixture)
from vkdml.cli.common import progress
from vkdml.engine.trust.self_test import ACTIVATION, outcomes_of
from vkdml.engine.trust.tuner import Tuner
from vkdml.engine.vulkan import gpu, system
from vkdml.engine.vulkan.driver import Driver
from vkdml.engine.vulkan.store import Store
from vkdml.operators import element_types
from vkdml_lab.suite.devices import make_problem
from vkdml_lab.suite.support import tensor

RUN = """
import numpy as np, vkdml
vkdml.rnn(np.ones((2, 2, 4), np.float32), np.full((1, 3, 4), 0.1, np.float32), np.full((1, 3, 3), 0.1, np.float32))
"""


def test_each_logger_is_told():
    package = Path(vkdml.__file__).parent
    names = {"vkdml." + ".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")
             if "logging.getLogger(__name__)" in path.read_text()}
    assert set(re.findall(r"\| ?`(vkdml\.[\w.]+)` ?\|$", (package.parents[1] / "docs/logging.md").read_text(), re.M)) == names


def logged(caplog):
    """What was logged, by level."""
    return {level: [record.getMessage() for record in caplog.records if record.levelname == level and record.name.startswith("vkdml.")]
            for level in ("DEBUG", "INFO", "WARNING", "ERROR")}


def test_the_environment_sends_it_to_stderr(device):
    assert programs.run(RUN) == ""  # and nothing to stderr
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env={**os.environ, "VKDML_LOG": "debug"})
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    for pattern in (rf"vkdml.engine.vulkan.gpu INFO opened {re.escape(device.info.name)}", r"vkdml.engine.vulkan.gpu INFO compiled \S+ in [\d.]+ ms",
                    r"vkdml.engine.compiled DEBUG RNN: T 2, B 2, I 4, H 3, float32, forward: .* dispatches of .*, estimated [\d.]+ ms",
                    r"vkdml.engine.vulkan.driver DEBUG a submission ran for [\d.]+ ms"):
        assert any(re.fullmatch(rf"\d+-\d+-\d+ [\d:,]+ {pattern}.*", line) for line in lines), (pattern, lines)


def test_a_wrong_level_is_refused(monkeypatch):
    monkeypatch.setenv("VKDML_LOG", "all")
    with pytest.raises(vkdml.InvalidArgumentError, match="Device: VKDML_LOG: found 'all'; expected one of info, debug"):
        gpu.obey_environment()


@pytest.mark.device
def test_each_level(caplog):
    x, w, r = (np.ones(shape, np.float32) for shape in ((2, 1, 3), (1, 2, 3), (1, 2, 2)))
    with caplog.at_level(logging.INFO, "vkdml"):
        vkdml.rnn(x, w, r)
    assert not logged(caplog)["DEBUG"]
    with caplog.at_level(logging.DEBUG, "vkdml"):
        vkdml.rnn(x, w, r)
    assert [re.sub(r"[\d.]+ ms", "", text) for text in logged(caplog)["DEBUG"]] == ["a submission ran for "]


def test_what_is_dropped_from_the_store(caplog):
    store = Store(10)
    with caplog.at_level(logging.INFO, "vkdml"):
        store.get(("packed weights", "a"), lambda: 1, 8)
        store.get(("pipeline", "b"), lambda: 2, 7)
    assert logged(caplog)["INFO"] == ["dropped from the store: packed weights, 8 bytes; 7 of at most 10 bytes are kept"]


def test_a_lost_device(caplog):
    @as_ours
    def fail():
        raise RuntimeError("vk::Queue::submit: ErrorDeviceLost")

    driver = Driver("a device", lambda: None)
    with pytest.raises(vkdml.DeviceLostError):
        driver.call("running a submission", fail)
    (error,) = logged(caplog)["ERROR"]
    assert "The device a device is lost" in error


def test_what_the_tuner_timed(caplog, tuned, trusted, timed):  # noqa: F811
    with caplog.at_level(logging.INFO, "vkdml"):
        Tuner(tuned.gpu).plan(make_problem(12, 1, 16, 64), vkdml.Options(), "on")
    texts = [text for text in logged(caplog)["INFO"] if "timed" in text]
    assert len(texts) > 1
    assert texts[0].startswith("GRU: T ")
    assert texts[0].endswith(": 250.000 ms")
    caplog.clear()
    with caplog.at_level(logging.INFO, "vkdml"):
        Tuner(tuned.gpu).plan(make_problem(12, 1, 16, 64), vkdml.Options(), "on")
    assert logged(caplog)["INFO"] == ["GRU: T 12, B 1, I 16, H 64, float32, forward: goes by what was timed and kept before"]


def test_what_was_tested(caplog, device):
    with caplog.at_level(logging.INFO, "vkdml"):
        outcome = next(outcomes_of(device.gpu, ACTIVATION, element_types.FLOAT32))
    (text,) = [text for text in logged(caplog)["INFO"] if text.startswith("tested ")]
    assert text.startswith(f"tested {outcome}, in ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def detached():
    """A file that raises for all but write()."""
    file = io.TextIOWrapper(io.BytesIO())
    file.detach()
    return file


@pytest.mark.device
@pytest.mark.parametrize(("stream", "seconds", "lines"), [
    (Terminal, 0.0, 2), (Terminal, 60.0, 0), *((stream, 0.0, 0) for stream in (
        io.StringIO, lambda: None, lambda: SimpleNamespace(write=print), detached))])
def test_long_compiling_is_said_on_a_terminal(monkeypatch, stream, seconds, lines):
    """As a pipeline is made, and in the first submission, in which llvmpipe compiles most. Never elsewhere: sys.stderr may be anything that has
    write(), or None.
    """
    device, said = vkdml.Device(), stream()
    x, y = device.upload(np.ones(3, np.float32)), device.create_buffer(12)
    desc = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(tensor(3), tensor(3))
    table, recorder = table_of(device, desc, [x], [y]), device.create_command_recorder()
    device.gpu.store.clear()

    def slow(call):
        return lambda *arguments: (time.sleep(0.2), call(*arguments))[1]

    for name in ("make", "run"):
        monkeypatch.setattr(device.gpu.driver, name, slow(getattr(device.gpu.driver, name)))
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(gpu, "_LONG_SECONDS", seconds)
    recorder.record_dispatch(table.dispatchable, table)
    for _ in range(2):
        recorder.execute()
    assert progress(range(2)).disable is (stream is not Terminal)
    text = said.getvalue() if isinstance(said, io.StringIO) else ""
    assert text.count("\n") == len(re.findall(r"vkdml: .* is compiling elementwise, .*warm_up", text)) == lines


def test_many_short_blocks_of_a_call_are_said_once(monkeypatch):
    """A call compiles many kernels, each in less than the time after which one line is due."""
    notice, said = system.Notice(), Terminal()
    monkeypatch.setattr(sys, "stderr", said)
    for _ in range(2):
        notice.since = None  # as the lock's `work` does
        for kernel in range(8):
            with notice.after(0.3, f"kernel {kernel}"):
                time.sleep(0.1)
    first, second = said.getvalue().split("\n")[:-1]
    assert first != "kernel 0"
    assert second != "kernel 0"


def test_each_call_begins_anew(device):
    device.gpu.lock.notice.since = 1.0
    device.create_buffer(4)
    assert device.gpu.lock.notice.since is None
