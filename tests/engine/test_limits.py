"""Too little memory, and no threads: errors, and what fits goes on. In processes of their own."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

import vkdml
from tests import programs
from tests.engine.ready import as_ours
from vkdml.engine.vulkan import system
from vkdml.engine.vulkan.driver import Background
from vkdml.engine.vulkan.gpu import pipeline_bytes
from vkdml.engine.vulkan.system import heap_bytes

pytestmark = pytest.mark.device


def run(code, *arguments, seconds=100):
    """What a program prints."""
    return programs.run(f"arguments = {arguments}\n{code}", seconds=seconds).splitlines()


# A driver's compiler may crash without memory, so all that is needed is compiled before. The lengths are of one size class
MEMORY = """
w, r = np.full((1, 8, 256), 0.01, np.float32), np.full((1, 8, 8), 0.001, np.float32)
layer = vkdml.RNN(w, r)
small, large = (np.ones((steps, 32, 256), np.float32) for steps in (50, 3000))
expected, all_expected = layer(small)[0], layer(large)[0]
device = vkdml.Device()
device.cache_limit, kept = 0, device.cache_limit
layer(small)
device.cache_limit = kept
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + arguments[0] * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for _ in range(2):
    try:
        print(np.array_equal(layer(large)[0], all_expected))
    except MemoryError as error:
        print("refused", isinstance(error, vkdml.OutOfMemoryError))
    print(np.array_equal(layer(small)[0], expected))
"""


@pytest.mark.parametrize("megabytes", [60, *(pytest.param(size, marks=pytest.mark.thorough) for size in (20, 100, 150, 200, 300))])
def test_a_limit_on_memory(megabytes):
    outcomes = run(MEMORY, megabytes)
    assert outcomes[1::2] == ["True", "True"]
    assert set(outcomes[::2]) <= ({"refused True", "refused False"} if megabytes == 60 else {"True", "refused True", "refused False"})


@as_ours
def start(thread):
    raise RuntimeError("can't start new thread")


def test_no_thread_for_an_execution(monkeypatch):
    """The execution that was refused is not made up for later."""
    device = vkdml.Device()
    monkeypatch.setattr(device.gpu, "_background", Background())
    recorder, ran = device.create_command_recorder(), []
    monkeypatch.setattr(recorder, "execute", lambda: ran.append(1))
    with monkeypatch.context() as without_threads:
        without_threads.setattr("threading.Thread.start", start)
        for _ in range(2):
            with pytest.raises(vkdml.DriverError, match="the system gave no thread for the device's executions: can't start.*ulimit -u"):
                recorder.execute_async()
    recorder.execute_async().wait()
    assert ran == [1]


@as_ours
def wait(event, timeout=None):
    with event._cond:
        event._cond.release()
        raise KeyboardInterrupt


def test_an_interrupt_while_a_thread_starts(monkeypatch):
    """It may find a lock that `threading` has released, and leave it so: Python then raises that the lock is not held."""
    device = vkdml.Device()
    monkeypatch.setattr(device.gpu, "_background", Background())
    with monkeypatch.context() as interrupted:
        interrupted.setattr("threading.Event.wait", wait)
        with pytest.raises(KeyboardInterrupt):
            device.gpu.run_in_background(print)
    device.gpu.run_in_background(print).result(60)


# Everything that is imported late is imported before, as another user may not read it
PROCESSES = """
import importlib.readers
from tools.compile_shaders import kernels as names
from vkdml.engine.vulkan import spirv

for name in names():
    spirv.load(name)
(number,) = arguments
resource.setrlimit(resource.RLIMIT_NPROC, (number, number))
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
x, w, r = np.ones((1, 1, 4), np.float32), np.full((1, 3, 4), 0.1, np.float32), np.full((1, 3, 3), 0.1, np.float32)
try:
    print(np.allclose(vkdml.rnn(x, w, r)[0], np.tanh(0.4)))
    device = vkdml.Device()
    recorder = device.create_command_recorder()
    recorder.record_upload(device.upload(x))
    recorder.execute_async().wait()
except vkdml.DriverError as error:
    print("refused", "thread" in str(error) or "while opening" in str(error))
"""


@pytest.mark.thorough
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user of whom it knows how many processes there are")
@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_a_limit_on_threads(number):
    """Of a driver's own as well."""
    outcomes = run(PROCESSES, number)
    assert outcomes[-1] == "refused True"
    assert outcomes[:-1] in ([], ["True"])


SHAPES = """
def anonymous():  # without pages of files, such as a driver's code: they come and go with the system's cache
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) * 1024

shapes, limit = arguments
device = vkdml.Device()
device.cache_limit = limit
x = np.ones((3, 4, 8), np.float32)  # of so few steps and so many rows that the kernel reads x itself
for h in range(15, 15 + shapes):
    vkdml.rnn(x, np.ones((1, h, 8), np.float32), np.ones((1, h, h), np.float32), device=device)
    if h == 15:
        before, made = anonymous(), device.gpu.pipelines_made
print(device.gpu.pipelines_made - made)
print(device.gpu.store.size)
print(anonymous() - before)
"""


@pytest.mark.parametrize(("shapes", "limit"), [(12, 12 * 2**20), pytest.param(300, 256 * 2**20, marks=[pytest.mark.thorough, pytest.mark.timeout(900)])])
def test_what_pipelines_take_of_the_process_is_bounded(shapes, limit):
    """Each shape is another pipeline, some MiB where a driver compiles for the CPU."""
    made, kept, grown = map(int, run(SHAPES, shapes, limit, seconds=900))
    assert made >= shapes - 1
    assert kept <= limit
    assert grown <= 1.125 * limit


@pytest.mark.parametrize(("after", "counted"), [(5000, 5333), (700, 400), (1000, 400), (10**6, 19200), (None, 6400)])
def test_what_counts_for_a_pipeline(after, counted):
    """Of 100 bytes of SPIR-V, whatever other threads did with the heap meanwhile. Or where the heap is unknown."""
    assert pipeline_bytes(after and 1000, after, 100) == counted


def test_the_heap(monkeypatch):
    before, array = heap_bytes(), np.zeros(10**8, np.uint8)
    assert heap_bytes() - before >= array.nbytes
    for lacking in ({"mallinfo2": system._libc.mallinfo2}, {}):  # another malloc, and an old glibc
        monkeypatch.setattr(system, "_libc", SimpleNamespace(malloc=lambda size: None, free=lambda block: None, **lacking))
        system._is_glibc_heap.cache_clear()
        assert heap_bytes() is None
    monkeypatch.undo()
    system._is_glibc_heap.cache_clear()
