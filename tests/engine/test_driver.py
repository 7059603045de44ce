"""Executions that take long, do not end, or are interrupted; and the errors of a device that is lost. In processes of their own,
as their ends matter too.
"""

import signal
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import vkdml
from tests import programs
from tests.engine.ready import as_ours
from vkdml.engine.vulkan import driver as drivers
from vkdml.engine.vulkan.driver import Driver

pytestmark = pytest.mark.device

HEAD = """
from vkdml.engine.vulkan.gpu import kp

x, w, r = np.ones((2, 2, 4), np.float32), np.full((1, 3, 4), 0.1, np.float32), np.full((1, 3, 3), 0.1, np.float32)

def compute():
    return vkdml.rnn(x, w, r)[0].tolist()

def words(*values):
    return np.array(values, np.uint32)

def seconds(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin

def interrupt(after):
    def later():
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=later).start()

class Long:
    '''A submission of about so many seconds.'''

    steps = 10_000

    def __init__(self, gpu, wanted):
        self.size = 100
        while True:
            a, self.result = (gpu._manager.tensor_t(np.zeros(self.size, np.uint32)) for _ in range(2))
            algorithm = gpu._manager.algorithm([a, self.result], open(shader, "rb").read(), [self.size, 1, 1], words(), words(0))
            self.sequence = gpu._manager.sequence().record(kp.OpTensorSyncDevice([a]))
            self.sequence.record(kp.OpAlgoDispatch(algorithm, words(self.steps))).record(kp.OpTensorSyncLocal([self.result]))
            if hasattr(self, "took"):
                return
            self.sequence.eval()  # compiles
            self.took = min(seconds(self.sequence.eval) for _ in range(3))
            if gpu.info.is_cpu:  # llvmpipe ends loops after 65,535 iterations
                self.size = min(max(int(self.size * wanted / self.took), 100), 65_535)
            else:
                self.steps = int(self.steps * wanted / self.took)

    def is_right(self):
        return bool((self.result.data() == self.steps).all())

expected = compute()
gpu = vkdml.Device().gpu
"""


def run(shader, code, ends_with=0):
    return programs.run(f"shader = {str(shader)!r}\n{HEAD}{code}", ends_with).splitlines()


def test_an_interrupt_gets_through_and_calls_work_again(shader):
    assert run(shader, """
long = Long(gpu, 2)
interrupt(0.2)
def wait():
    try:
        gpu.driver.run(long.sequence)
    except KeyboardInterrupt:
        print("interrupted", long.sequence.is_running())
print(seconds(wait) < 1.2)
print(compute() == expected, long.sequence.is_running(), long.is_right())
""") == ["interrupted True", "True", "True False True"]


@pytest.mark.thorough
def test_an_interrupt_at_any_line_leaves_nothing_wrong(shader):
    """Of calls that pack their weights again; but where locks are taken and given back."""
    assert run(shader, """
scales = iter(np.float32(1 + number / 1024) for number in range(9999))

class Interrupt:
    # Raises KeyboardInterrupt at a line of vkdml's, counted from 0 on
    def __init__(self, at):
        self.left = at

    def trace(self, frame, event, _):
        code = frame.f_code
        if "vkdml" not in code.co_filename or code.co_name in ("__enter__", "__exit__"):
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.trace

def is_right(scale):
    return np.allclose(vkdml.rnn(x, w * scale, r)[0][0, 0, 0], np.tanh(np.float32(0.4) * scale), atol=1e-6)

right, at, is_interrupted = True, 0, True
while is_interrupted:
    sys.settrace(Interrupt(at).trace)
    try:
        is_right(next(scales))
        is_interrupted = False
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    right &= is_right(next(scales))
    at += 41
print(right, at > 41 * 8)
""") == ["True True"]


@pytest.mark.thorough
def test_a_process_ends_at_once_after_an_interrupt(shader):
    """Not even a device that never comes back keeps it."""
    begin, _ = run(shader, """
sys.excepthook = print  # to stdout
long = Long(gpu, 10)
interrupt(0.3)
print(time.time())
gpu.driver.run(long.sequence)
""", ends_with=-signal.SIGINT)
    assert time.time() - float(begin) < 5


def test_what_does_not_end_in_time_is_lost(shader):
    lines = run(shader, """
buffer, layer, held = vkdml.Device().upload(x), vkdml.RNN(w, r), vkdml.RNN(w, r, device=vkdml.Device())
long = Long(gpu, 3)
gpu.driver.timeout = 0.3
def error_of(call):
    try:
        call()
        print("nothing")
    except vkdml.DeviceLostError as error:
        print(error)
error_of(lambda: gpu.driver.run(long.sequence))
error_of(lambda: buffer.read((1,)))
error_of(lambda: held(x))
error_of(gpu.lock.__enter__)
print(long.sequence.is_running())
def drop():
    global long, buffer, held, gpu
    del long, buffer, held, gpu
    gc.collect()
print(seconds(drop) < 1)
print(compute() == expected, layer(x)[0].tolist() == expected, vkdml.Device() == vkdml.Device())
""")
    reason, *rest = lines
    assert "failed while running a submission: it has not ended within 0.3 s. Call with fewer steps or rows" in reason
    assert "vkdml.Device() opens it again" in reason
    assert rest == [reason, reason, reason, "True", "True", "True True True"]


@pytest.mark.parametrize(("is_cpu", "share", "is_lost"), [(True, 1, True), (True, 0.01, False), (True, 0, True), (False, 0.01, True)])
def test_a_cpu_drivers_wait_for_a_core_is_no_hang(monkeypatch, is_cpu, share, is_lost):
    """share: of a core that the process gets. It has hung if it computes for ten minutes, or not at all."""
    waits, driver = [], Driver("a device", list, is_cpu)
    driver.running = SimpleNamespace(is_running=lambda: len(waits) < 9, eval_await=waits.append)
    monkeypatch.setattr(driver, "abandon", list)
    monkeypatch.setattr(drivers, "time", SimpleNamespace(monotonic=lambda: 100 * len(waits), process_time=lambda: 100 * share * len(waits)))
    with pytest.raises(vkdml.DeviceLostError) if is_lost else nullcontext():
        driver.settle()
    assert len(waits) == (6 if is_lost else 9)


def test_what_is_lost_is_let_go(shader):
    """Functions and layers that go on keep nothing of the device before, nor its threads and memory."""
    assert run(shader, """
import weakref
layer = vkdml.RNN(w, r)
threads = lambda: len(os.listdir("/proc/self/task"))
print(layer(x)[0].tolist() == expected)
vkdml.rnn(*(array.astype(np.float64) for array in (x, w, r)))  # of which the device is tried first
before, lost = threads(), weakref.ref(gpu)
gpu.driver._lose("It failed")
del gpu
print(compute() == expected, layer(x)[0].tolist() == expected)
gc.collect()
print(lost() is None, threads() == before)
""") == ["True", "True True", "True True"]


def test_what_is_not_the_drivers_failure(device):
    """The recursion of its caller, and a signal handler's memory."""
    def recurse():
        recurse()

    def allocate():
        np.empty(2**50, np.uint8)

    with pytest.raises(RecursionError):
        device.gpu.driver.call("recording a submission", recurse)
    with pytest.raises(MemoryError, match="^Unable to allocate 1.00 PiB"):
        device.gpu.driver.call("recording a submission", allocate)
    with pytest.raises(vkdml.OutOfMemoryError, match="^this process has no more memory while recording a submission: Unable to allocate 1.00 PiB.* Call with fewer"):
        device.gpu.driver.call("recording a submission", as_ours(allocate))
    assert device.gpu.driver.lost is None
