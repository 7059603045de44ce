"""Kernels that a call needs are compiled in threads; what comes of it is as if they were compiled one after another."""

import signal
import threading
import time

import numpy as np
import pytest

import vkdml
from tests.engine.ready import as_ours
from vkdml.operators import reference
from vkdml.planning.options import Options
from vkdml.planning.plan import plan
from vkdml_lab.suite.devices import make_problem


class Compiler:
    """kp's manager, of which `algorithm` is watched. inside, most: how many threads are in it, and were at once."""

    def __init__(self, manager):
        self._manager, self.inside, self.most, self.made, self.before = manager, 0, 0, 0, lambda: None

    def __getattr__(self, name):
        return getattr(self._manager, name)

    @as_ours
    def algorithm(self, *arguments, **named):
        self.inside += 1
        self.made += 1
        self.most = max(self.most, self.inside)
        try:
            self.before()
            return self._manager.algorithm(*arguments, **named)
        finally:
            self.inside -= 1


@pytest.fixture
def compiler(device, monkeypatch):
    """Of a device with nothing compiled, which two threads compile for."""
    device.gpu.store.clear()
    monkeypatch.setattr(device.gpu, "compilers", 2)
    found = Compiler(device.gpu._manager)
    monkeypatch.setattr(device.gpu, "_manager", found)
    yield found
    while found.inside:  # threads that go on after an interrupt
        time.sleep(0.01)


def check(device):
    rng = np.random.default_rng(0)
    x, w, r = (rng.standard_normal(sizes, np.float32) / 2 for sizes in ((4, 2, 6), (1, 5, 6), (1, 5, 5)))
    np.testing.assert_allclose(vkdml.rnn(x, w, r, device=device, options=Options(fused=False))[0], reference.rnn(x, w, r)[0], atol=1e-5)


def test_two_at_once(device, compiler):
    """One waits for the other."""
    together = threading.Barrier(2)
    compiler.before = lambda: together.wait(60) if compiler.made <= 2 else None
    check(device)
    assert compiler.most == 2
    assert not together.broken


def test_each_is_compiled_once(device, compiler):
    before = device.gpu.pipelines_made
    check(device)
    assert device.gpu.pipelines_made - before == compiler.made > 1
    check(device)
    assert device.gpu.pipelines_made - before == compiler.made


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_driver_that_fails(device, compiler, place):
    """An error says at what. Where memory is short once, what is kept makes room for a second try."""
    @as_ours
    def fail():
        if compiler.made == place:
            raise RuntimeError(text)

    compiler.before, text = fail, "vk::Device::createComputePipeline: ErrorInitializationFailed"
    with pytest.raises(vkdml.DriverError, match=r"while compiling .*: .*ErrorInitializationFailed"):
        check(device)
    check(device)
    device.gpu.store.clear()
    compiler.made, text = 0, "vk::Device::createComputePipeline: ErrorOutOfDeviceMemory"
    check(device)
    assert compiler.made >= place


def test_no_thread(device, compiler, monkeypatch):
    @as_ours
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    check(device)
    assert compiler.most == 1


def test_as_many_threads_as_cores(device):
    assert device.gpu.compilers == (1 if device.info.is_cpu else device.info.cores)


def test_what_is_late_is_not_begun(device, compiler):
    made = plan(make_problem(12, 1, 16, 64), device.info, Options(fused=False))
    compiler.before = lambda: time.sleep(0.2)
    device.gpu.lock.work(device.gpu.compile, [made], None, 0)
    assert compiler.made <= 2 < len({one.kernel for one in made.initialize + made.execute})


def test_an_interrupt(device, compiler):
    """It is raised at once; the threads end on their own, and later calls are right."""
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    compiler.before = lambda: time.sleep(1)
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            check(device)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert compiler.inside or time.monotonic() - begin > 1  # a busy machine may come to it late
    compiler.before = lambda: None
    check(device)
