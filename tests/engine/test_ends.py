"""Ends of processes while something runs, is queued or was interrupted: within seconds, with the exit code that the program gave."""

import re
import signal
import time

import pytest

from tests.programs import run

pytestmark = pytest.mark.device

SECONDS = 30  # far more than an end may take, less than what is queued: QUEUED executions of LONG seconds at least

HEAD = """
LONG, QUEUED = 0.02, 2000
w, r = np.full((1, 3, 4), 0.1, np.float32), np.full((1, 3, 3), 0.1, np.float32)
device = vkdml.Device()

def compute(steps=2):
    return vkdml.rnn(np.ones((steps, 2, 4), np.float32), w, r)[0]

def in_daemon(work):
    def loop():
        while True:
            work()
    threading.Thread(target=loop, daemon=True).start()
    time.sleep(0.3)

def recorder_of(seconds):
    '''An execution, one submission, of so many seconds at least.'''
    tensor = vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=(1, 1, 512, 512))
    gemm = device.compile_operator(device.create_operator(vkdml.DML_GEMM_OPERATOR_DESC(ATensor=tensor, BTensor=tensor, OutputTensor=tensor)))
    table, count = device.create_binding_table(gemm), 1
    table.bind_inputs([device.create_buffer(2**20), device.create_buffer(2**20), None])
    table.bind_outputs([device.create_buffer(2**20)])
    took = []
    while True:
        recorder = device.create_command_recorder()
        for _ in range(count):
            recorder.record_dispatch(gemm, table)
        begin = time.monotonic()
        recorder.execute()
        took.append(time.monotonic() - begin)
        if took[-1] > seconds:
            return recorder
        count = int(1.2 * count * seconds / took[-1]) + 1 if took[1:] else 2  # the first compiles

def error_of(call):
    try:
        call()
    except vkdml.DriverError as error:
        print(error)
"""


def end(code, with_code=0, imports=""):
    """What a program prints, which may take some seconds from its last line to its end."""
    printed = run(HEAD + code + "\nprint(f'ends at {time.time()}')\nsys.exit(code)", with_code, imports)
    before, begin, behind = re.split(r"ends at (.*)\n", printed)
    assert time.time() - float(begin) < SECONDS
    return [*before.splitlines(), *behind.splitlines()]


# What a daemon thread is doing
CALLS = {
    "short calls": "work = compute",
    "a long call": "work = recorder_of(0.3).execute",
    "first calls": """
sizes = iter(range(1, 10_000))
def work():
    size = next(sizes)
    vkdml.gru(*(np.ones(shape, np.float32) for shape in ((3, 1, size), (1, 3 * size, size), (1, 3 * size, size))))
""",
    "background": """
recorder = recorder_of(0.01)
def work():
    try:
        recorder.execute_async().wait()
    except vkdml.DriverError:
        sys.exit()  # this thread
""",
    "onnx": """
from tests.faces.onnx.support import model, weights
from vkdml.onnx import InferenceSession
session = InferenceSession(model('''g (float[T,B,3] x) => (float[T,D,B,4] y, float[D,B,4] h) {
    a = Tanh (x)  z, h = GRU <hidden_size=4> (a, W, R, B)  y = Neg (z) }''', weights()).SerializeToString())
x = np.ones((5, 2, 3), np.float32)
work = lambda: session.run(None, {"x": x})
""",
}


@pytest.mark.parametrize("calls", CALLS)
def test_a_daemon_thread_is_in_a_call(calls):
    if calls == "onnx":
        pytest.importorskip("onnxruntime")
    assert end(CALLS[calls] + "\nin_daemon(work)\ncode = 3", with_code=3) == []


@pytest.mark.parametrize("has_gradients", [False, True])  # without PyTorch's dispatcher, and through it
def test_a_torch_twin_in_a_daemon_thread(has_gradients):
    """PyTorch aborts a process that ends while a daemon thread is in one of its operators or frees a tensor. So there are no other
    operators here, and results are kept. PyTorch's compiler, which takes a second to load, is not loaded for a twin.
    """
    pytest.importorskip("torch")
    assert end(f"has_gradients = {has_gradients}" + """
twin, x = vkdml.torch.convert(torch.nn.GRU(4, 3).eval().requires_grad_(has_gradients)), torch.ones(500, 2, 4)
results = [twin(x)]
in_daemon(lambda: results.append(twin(x)))
print("torch._dynamo" in sys.modules)
code = 3
""", 3, "import torch, vkdml.torch") == ["False"]


def test_nothing_that_is_queued_is_waited_for():
    """Who waits for it nevertheless hears of it."""
    said = "the process ended before the execution did"
    assert end("""
recorder = recorder_of(LONG)
executions = [recorder.execute_async() for _ in range(QUEUED)]
time.sleep(0.2)
behind += [lambda: error_of(executions[-1].wait), lambda: error_of(recorder.execute_async().wait)]
code = 4
""", with_code=4) == [said, said]


def test_what_an_interrupted_start_leaves_does_not_keep_it():
    assert end("""
recorder, really = recorder_of(0.001), threading.Thread.start
def start(thread):
    really(thread)
    raise KeyboardInterrupt
threading.Thread.start = start
try:
    recorder.execute_async()
except KeyboardInterrupt:
    print("interrupted")
threading.Thread.start = really
recorder.execute_async().wait()
print(sum(thread.name == "vkdml" for thread in threading.enumerate()))
code = 5
""", with_code=5) == ["interrupted", "1"]


def test_handlers_at_exit_may_call():
    """Before vkdml's own or behind it, while a daemon thread calls, and after work that was abandoned."""
    assert end("""
expected = compute()
recorder = recorder_of(0.2)
is_right = lambda: print((compute() == expected).all())
behind += [is_right]
atexit.register(is_right)
in_daemon(recorder.execute)
code = 6
""", with_code=6) == ["True", "True"]


# What the main thread is in when a signal comes: in a call that lets it run its handlers
STATES = {
    "running": "recorder.execute()",
    "waiting": "recorder.execute_async().wait()",
    "queued": "[recorder.execute_async() for _ in range(QUEUED)], time.sleep(100)",
    "joining": "thread = threading.Thread(target=recorder.execute, daemon=True)\nthread.start()\nthread.join()",
}


@pytest.mark.family("the end is the same for all")
@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_a_signal_ends_it(state, handled):
    """The default, or an exit that a handler of Python's raises."""
    assert end(f"""
recorder = recorder_of({"LONG" if state == "queued" else 0.2})
if {handled}:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM]).start()
print(f"ends at {{time.time()}}")
{STATES[state]}
""", with_code=7 if handled else -signal.SIGTERM) == []


def test_signals_while_it_ends():
    """What runs is waited for as long as without them, and what their handlers raise is not reported."""
    assert end("""
recorder = recorder_of(0.5)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
in_daemon(recorder.execute)
def begin():  # right before vkdml's own handler
    for seconds in (0.05, 0.1, 0.2):
        os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"sleep {seconds}; kill {os.getpid()}")
atexit.register(begin)
code = 14
""", with_code=14) == []


def test_os_exit():
    assert end("""
recorder = recorder_of(LONG)
executions = [recorder.execute_async() for _ in range(QUEUED)]
time.sleep(0.2)
print(f"ends at {time.time()}")
os._exit(8)
""", with_code=8) == []


def test_a_child_of_a_fork_ends():
    """Whose parent's threads are not there."""
    assert end("""
recorder = recorder_of(LONG)
executions = [recorder.execute_async() for _ in range(QUEUED)]
in_daemon(compute)
child = os.fork()
if child == 0:
    begin = time.monotonic()
    atexit.register(lambda: None)
    behind += [lambda: print(time.monotonic() - begin < 1)]
    sys.exit(9)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
""", with_code=9) == ["True"]


def test_runs_that_call_back_are_waited_for():
    """ONNX sessions' run_async."""
    pytest.importorskip("onnxruntime")
    assert end(CALLS["onnx"] + """
def heard(results, user_data, error):
    print(user_data, error == "")
session.run_async(None, {"x": x}, heard, "heard")
code = 10
print(f"ends at {time.time()}")
sys.exit(code)
""", with_code=10) == ["heard True"]


def test_asyncio():
    """A task that was cancelled leaves its execution, which is not waited for."""
    assert end("""
import asyncio
recorder = recorder_of(LONG)
async def main():
    executions = [recorder.execute_async() for _ in range(QUEUED)]
    try:
        await asyncio.wait_for(asyncio.to_thread(executions[-1].wait, 0.3), 0.1)
    except TimeoutError:
        print("too long")
asyncio.run(main())
code = 11
""", with_code=11) == ["too long"]
