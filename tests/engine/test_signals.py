"""Executions in the background that are interrupted or cancelled, and calls of signals' handlers within others."""

import asyncio
import gc
import sys
import weakref
from pathlib import Path
from random import Random

import numpy as np
import pytest

import vkdml
from tests.engine.ready import recorded, table_of
from tests.engine.test_ends import end
from vkdml.engine.commands import Commands
from vkdml.engine.vulkan import store
from vkdml_lab.suite.support import tensor

pytestmark = pytest.mark.device

FOLDERS = tuple(str(Path(vkdml.__file__).parent / name) for name in ("engine", "faces"))

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


class Uses:
    """What programs do with a device: each use raises AssertionError where numbers are wrong."""

    def __init__(self, device):
        rng = np.random.default_rng(0)
        self.device, self.kept = device, {}
        self.before = {name: getattr(device, name) for name in ("cache_limit", "memory_limit")}
        self.x, self.wide, *weights = (rng.standard_normal(sizes, np.float32) / 2 for sizes in (
            (4, 2, 6), (3, 5, 6), (1, 20, 6), (1, 20, 5), (1, 9, 6), (1, 9, 3)))
        self.lstm, self.gru, self.weights = vkdml.LSTM(*weights[:2]), vkdml.GRU(*weights[2:]), weights[2:]
        sizes = tensor(*self.x.shape)
        relu = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=sizes, OutputTensor=sizes)
        self.y = device.create_buffer(self.x.nbytes)
        self.table = table_of(device, relu, [device.upload(self.x)], [self.y])
        self.recorder = recorded(device, self.table)
        self.places = {use: Interrupt(0, None).during(use) for use in (
            self.layer, self.layer_of_other_sizes, self.changing_weights, self.warming_up, self.stream, self.recording, self.recorder.execute,
            self.buffer, self.recorder.execute_async, self.limits, self.leaving)}

    def expect(self, name, *results):
        """The same as of the first call."""
        for result, expected in zip(results, self.kept.setdefault(name, results), strict=True):
            np.testing.assert_array_equal(result, expected)

    def layer(self):
        self.expect("layer", *self.lstm(self.x))

    def layer_of_other_sizes(self):
        self.expect("other sizes", *self.lstm(self.wide), *self.gru(self.wide))

    def changing_weights(self):
        for sign in (1, -1):
            self.expect(sign, *vkdml.gru(self.x, self.weights[0] * np.float32(sign), self.weights[1]))

    def warming_up(self):
        layer = vkdml.GRU(*self.weights)
        layer.warm_up(T=4, B=2)
        self.expect(1, *layer(self.x))

    def stream(self):
        stream = self.lstm.stream(2)
        self.expect("stream", stream.step(self.x[0]), stream.step(self.x[1:]))

    def recording(self):
        recorded(self.device, self.table).execute()
        np.testing.assert_array_equal(self.y.download(self.x.shape), np.maximum(self.x, 0))

    def buffer(self):
        np.testing.assert_array_equal(self.device.upload(self.x).download(self.x.shape), self.x)

    def limits(self):
        """Where a handler raises in between, the next use sets them back. Half of the memory has room for what handlers call."""
        self.device.cache_limit, self.device.memory_limit = 0, self.before["memory_limit"] // 2
        for name, limit in self.before.items():
            setattr(self.device, name, limit)

    def leaving(self):
        with vkdml.Device():
            pass


class Interrupt:
    """Calls a handler at the `at`-th place of a call, of those where Python may call a signal's: as functions begin, and as C's return."""

    def __init__(self, at, handler, within=FOLDERS):
        self.left, self.handler, self.within = at, handler, within

    def __call__(self, frame, event, _):
        code = frame.f_code
        is_ours = code.co_filename.startswith(self.within) and not code.co_filename.endswith("spirv.py")  # which only computes, for long
        if event in ("call", "c_return") and is_ours and code.co_name not in ("__enter__", "__exit__"):
            self.left -= 1
            if self.left == 0:
                self.handler()

    def during(self, use):
        """How many places there were."""
        sys.setprofile(self)
        try:
            use()
        finally:
            sys.setprofile(None)
        return -self.left


@pytest.fixture(scope="module")
def uses(device):
    return Uses(device)


@pytest.mark.family("calls within calls", first=1)
@pytest.mark.parametrize("seed", range(80))
def test_a_handler_at_any_place_of_any_call(uses, seed):
    """What it calls is right or refused, and so is what it interrupts. What it raises comes out as it is, and later calls are right."""
    rng, refused = Random(seed), 0
    for _ in range(20):
        (outer, places), inner = rng.choice(list(uses.places.items())), rng.choice(list(uses.places))
        error = rng.choice([None, None, RuntimeError, MemoryError, LookupError, vkdml.DriverError, KeyboardInterrupt])
        error = error and error("of a handler")

        def handler():
            nonlocal refused
            try:
                inner()  # noqa: B023  (called at once)
            except vkdml.InvalidArgumentError as refusal:
                assert "within another one" in str(refusal)  # noqa: PT017
                refused += 1
            if error:  # noqa: B023
                raise error  # noqa: B023

        if rng.random() < 0.2:
            uses.device.gpu.store.clear()
        try:
            Interrupt(rng.randint(1, places), handler).during(outer)
        except BaseException as raised:
            if raised is not error:
                raise
        outer()
    assert refused
    uses.recorder.execute_async().wait()


ERRORS = KeyboardInterrupt(), vkdml.InvalidArgumentError("a handler", "raises", "this", "nothing")


@pytest.mark.family("errors at each place", first=2)
@pytest.mark.parametrize(("first", "error"), [(first, error) for places in ((1, 3), (5, 7), (3, 1), (7, 5)) for first, error in zip(places, ERRORS)], ids=repr)
def test_an_interrupt_while_the_store_changes(uses, first, error):
    """What is kept may be inconsistent then, whatever the class of the exception, and is dropped."""
    def interrupt():
        raise error

    for place in range(first, 100, 8):
        uses.layer()
        try:
            Interrupt(place, interrupt, (store.__file__,)).during(uses.layer_of_other_sizes)
        except type(error):
            uses.layer_of_other_sizes()
        else:
            break
    assert 10 < place < 99
