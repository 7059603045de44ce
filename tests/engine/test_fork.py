"""Devices and child processes: what the child cannot use says so, and nothing hangs. Each case in a process of its own."""

import pytest

from tests import programs

pytestmark = pytest.mark.device

TORCH = "import torch, vkdml.torch"
HEAD = """
x, w, r = np.ones((2, 2, 4), np.float32), np.full((1, 3, 4), 0.1, np.float32), np.full((1, 3, 3), 0.1, np.float32)

def compute(_=None):
    return float(vkdml.rnn(x, w, r)[0].sum())

def refused(call):
    try:
        call()
    except vkdml.DriverError as error:
        return "spawn" in str(error) and "forkserver" in str(error)
    return False

def in_child(work):
    '''Its exit code, after an ordinary end: 0 where the work was true.'''
    child = os.fork()
    if child == 0:
        sys.exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def run(code, imports=""):
    return programs.run(HEAD + code, imports=imports).split()


def test_a_device_of_the_parent_is_refused():
    assert run("""
compute()
print(in_child(lambda: refused(compute)))
print(in_child(lambda: refused(compute) and refused(compute)), in_child(lambda: in_child(lambda: refused(compute)) == 0))
print(compute() > 0)
""") == ["0", "0", "0", "True"]


def test_every_way_in_is_refused():
    assert run("""
device = vkdml.Device()
desc = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(*2 * [vkdml.DML_BUFFER_TENSOR_DESC(
    DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=(2, 2))])
compiled = device.compile_operator(device.create_operator(desc))
buffer, other = device.upload(np.ones((2, 2), np.float32)), device.create_buffer(16)
table = device.create_binding_table(compiled)
table.bind_inputs([buffer])
table.bind_outputs([other])
recorder, fresh = device.create_command_recorder(), device.create_command_recorder()
recorder.record_dispatch(compiled, table)
recorder.record_readback(other)
recorder.execute()
for call in (vkdml.Device, recorder.execute, recorder.execute_async, device.lock.__enter__, buffer.host, lambda: buffer.read((2, 2)),
             lambda: buffer.write(x[0, 0]), lambda: buffer.upload(x[0, 0]), lambda: buffer.download((2, 2)),
             lambda: device.create_buffer(16), lambda: device.upload(x), lambda: fresh.record_dispatch(compiled, table),
             lambda: vkdml.rnn(x, w, r, device=device), lambda: vkdml.gru(x, w.repeat(3, 1), r.repeat(3, 1), device=0)):
    print(in_child(lambda: refused(call)))
""") == ["0"] * 14


def test_a_parent_that_opened_none_leaves_it_to_the_child():
    """Nor do layers and converted modules that are made before the fork open one."""
    pytest.importorskip("torch")
    assert run("""
vkdml.Device.enumerate()
layer, twin = vkdml.RNN(w, r), vkdml.torch.convert(torch.nn.RNN(4, 3).eval())
def right():
    with torch.inference_mode():
        return 0 < compute() == compute() == float(layer(x)[0].sum()) and bool(torch.isfinite(twin(torch.ones(2, 2, 4))[0]).all())
print(layer)
print(in_child(right), in_child(right), right())
""", TORCH) == "<RNN: I 4, H 3, float32, forward on the default device> 0 0 True".split()


@pytest.mark.parametrize("opened", [False, True])
def test_no_lock_of_another_thread_is_waited_for(opened):
    """Nor one of the thread that forks."""
    result = "refused(compute)" if opened else "compute() > 0"
    assert run(f"""
{"compute()" if opened else ""}
locks = [devices._opening, *(gpu.lock for gpu in devices._open.values())]
held, done = threading.Event(), threading.Event()
def hold():
    for lock in locks:
        lock.__enter__()
    held.set()
    done.wait()
    for lock in locks:
        lock.__exit__()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
print(in_child(lambda: {result}))
done.set()
thread.join()
with locks[0]:
    child = os.fork()
if child == 0:
    sys.exit(0 if {result} else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), compute() > 0)
""") == ["0", "0", "True"]


def test_a_child_may_drop_what_the_parent_made():
    assert run("""
import gc
from vkdml.faces import functional, sessions

def drop():
    functional.shared_session = sessions.Session()
    sessions._devices.clear()
    devices._open.clear()
    del globals()["device"]
    gc.collect()
    return refused(compute)

compute()
device = vkdml.Device()
print(in_child(drop), compute() > 0)
""") == ["0", "True"]


def test_multiprocessing_pools():
    assert run("""
import multiprocessing
fork = multiprocessing.get_context("fork")
with fork.Pool(1) as pool:
    print(pool.apply(compute) > 0)
    try:
        pool.apply(vkdml.rnn, (x, w, x))
    except vkdml.InvalidArgumentError as error:
        print(f"{error.operator}-{error.field}")
    print(pool.apply(compute) > 0)
compute()
with fork.Pool(2) as pool:
    print(pool.apply(refused, [compute]))
    print(refused(lambda: pool.map(compute, range(4))))
""") == ["True", "vkdml.rnn-R", "True", "True", "True"]


def test_pytorch_data_loaders():
    pytest.importorskip("torch")
    assert run("""
from torch.utils.data import DataLoader, Dataset

class Computed(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return compute()

loader = DataLoader(Computed(), num_workers=1, multiprocessing_context="fork", timeout=60)
print(all(float(value) > 0 for value in loader))
compute()
print(refused(lambda: list(loader)))
""", TORCH) == ["True", "True"]
