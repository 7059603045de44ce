"""Executions in the background that are interrupted or cancelled, and calls of signals' handlers within others."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

import vkdml
from tests.engine.ready import recorded, table_of
from tests.engine.test_ends import end
from vkdml.engine.commands import Commands

pytestmark = pytest.mark.device

# The first execution in the background again and again, with a signal after 1, 21, 41 ... us of it
SCAN = """
import faulthandler, gc
from tests.engine.test_signals import Counter
from vkdml.engine.vulkan.driver import Background

faulthandler.dump_traceback_later(60, exit=True)  # where it hangs
counter, mine, theirs = Counter(device), 0, []
counter.recorder.execute()
threads = len(os.listdir("/proc/self/task"))

def interrupt(*_):
    raise KeyboardInterrupt

def scan(handler):
    global mine
    signal.signal(signal.SIGALRM, handler)
    for delay in range(1, 2000, 20):
        device.gpu._background = Background()
        try:
            signal.setitimer(signal.ITIMER_REAL, delay / 1e6)
            pending = counter.recorder.execute_async()
            time.sleep(0.003)  # where it comes at last
        except KeyboardInterrupt:
            pass
        counter.recorder.execute_async().wait(10)
        mine += 2

scan(interrupt)
print(mine // 2 <= counter.value() - 1 <= mine)
before, mine = counter.value(), 0
scan(lambda *_: theirs.append(counter.recorder.execute_async()))
for pending in theirs:
    pending.wait(10)
print(counter.value() - before == mine + len(theirs), len(theirs))
device.gpu._background = None
gc.collect()
until = time.monotonic() + 30
# An interrupt at which Python itself has a lock of a thread's start leaves that thread; of 100 a few may
while len(os.listdir("/proc/self/task")) > threads + 5 and time.monotonic() < until:
    time.sleep(0.01)
print(time.monotonic() < until)
code = 12
"""


class Counter:
    """A recorder of which each execution adds 1 to a number on the device."""

    def __init__(self, device):
        number = vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=(1, 1, 1, 4))
        adds = vkdml.DML_ACTIVATION_LINEAR_OPERATOR_DESC(InputTensor=number, OutputTensor=number, Alpha=1, Beta=1)
        self._number = device.upload(np.zeros(4, np.float32))
        self.recorder = recorded(device, table_of(device, adds, [self._number], [self._number]))

    def value(self):
        return int(self._number.download((4,))[0])


def test_a_signal_at_any_time_of_a_first_one():
    """An interrupt, or a handler that begins one itself: nothing hangs, all that were begun run, and no thread stays."""
    assert end(SCAN, with_code=12) == ["True", "True 100", "True"]


def test_a_handler_calls_while_the_thread_starts():
    """What both began runs; later ones come behind the handler's, in its thread."""
    assert end("""
import faulthandler
from tests.engine.test_signals import Counter
faulthandler.dump_traceback_later(60, exit=True)
counter, really, pending = Counter(device), threading.Thread.start, []
kept = []
def start(thread):
    threading.Thread.start = really
    pending.append(counter.recorder.execute_async())
    kept.append(device.gpu._background._queue)
    really(thread)
threading.Thread.start = start
pending.append(counter.recorder.execute_async())
pending.append(counter.recorder.execute_async())
for one in pending:
    one.wait(10)
print(counter.value(), device.gpu._background._queue is kept[0])
code = 13
""", with_code=13) == ["3 True"]


def test_cancelled_tasks_of_execute_async(device):
    """All that was begun runs, and nothing of it is kept."""
    counter, begun, states = Counter(device), 40, []

    async def cancelled():
        with device.lock:  # none of them ends before
            tasks = [asyncio.create_task(asyncio.to_thread(counter.recorder.execute_async().wait)) for _ in range(begun)]
            await asyncio.sleep(0.01)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.sleep(0)
        states.extend(await asyncio.gather(*tasks, return_exceptions=True))

    asyncio.run(cancelled())
    assert [isinstance(state, asyncio.CancelledError) for state in states] == [True, False] * (begun // 2)
    counter.recorder.execute_async().wait()
    assert counter.value() == begun + 1
    recorder = weakref.ref(counter.recorder)
    counter = None
    gc.collect()
    assert recorder() is None


def test_a_call_within_another_is_refused(monkeypatch):
    """It would write to the buffers that the other one reads. That one goes on, or raises what a handler raises."""
    layer, x = vkdml.RNN(np.full((1, 3, 4), 0.1, np.float32), np.full((1, 3, 3), 0.1, np.float32)), np.ones((2, 2, 4), np.float32)
    expected, really, heard = layer(x)[0], Commands.execute, []

    def interrupted(commands):
        really(commands)
        next(handlers)()

    def refused():
        with pytest.raises(vkdml.InvalidArgumentError, match="call: found a call within another one on this device") as error:
            layer(-x)
        heard.append(error.value)

    handlers = iter([refused, lambda: layer(-x)])
    monkeypatch.setattr(Commands, "execute", interrupted)
    np.testing.assert_array_equal(layer(x)[0], expected)
    assert len(heard) == 1

    with pytest.raises(vkdml.InvalidArgumentError, match="within another one"):
        layer(x)
    monkeypatch.undo()
    np.testing.assert_array_equal(layer(x)[0], expected)
