"""What vkdml's patches of kp (tools/kp/) promise."""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from itertools import pairwise

import numpy as np
import pytest

import vkdml
from vkdml.engine.vulkan.gpu import kp

pytestmark = pytest.mark.device

SIZE, STEPS = 10_000, 10_000  # of work that takes a CPU driver tenths of a second, and a GPU far more than a nanosecond
COMPUTE_SHADER, SHADER_READ, SHADER_WRITE = 0x800, 0x20, 0x40  # VkPipelineStageFlagBits, VkAccessFlagBits


def words(*values):
    return np.array(values, np.uint32)


@pytest.fixture(scope="module")
def add(shader):
    return shader.read_bytes()


@pytest.fixture(scope="module")
def manager(device):
    return kp.Manager(device.info.index)


class Work:
    """A sequence that takes a while, and what it computes."""

    def __init__(self, manager, add):
        self.result = manager.tensor_t(np.zeros(SIZE, np.uint32))
        start = manager.tensor_t(np.zeros(SIZE, np.uint32))
        algorithm = manager.algorithm([start, self.result], add, [SIZE, 1, 1], words(), words(STEPS))
        self.sequence = manager.sequence()
        for operation in (kp.OpTensorSyncDevice([start]), kp.OpAlgoDispatch(algorithm), kp.OpTensorSyncLocal([self.result])):
            self.sequence.record(operation)

    def is_right(self):
        return (self.result.data() == STEPS).all()


@pytest.fixture
def work(manager, add):
    return Work(manager, add)


@contextmanager
def running(function):
    """Call the function again and again in another thread. Gives a function that says how often it has returned."""
    calls, ends = 0, threading.Event()

    def loop():
        nonlocal calls
        while not ends.is_set():
            function()
            calls += 1

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield lambda: calls
    finally:
        ends.set()
        thread.join()


def test_another_kp_is_left_alone(tmp_path):
    """An application may have a kp of its own in the process: a copy is one, and knows nothing of the first one's classes."""
    another = shutil.copy(kp.__file__, tmp_path)
    program = ("import importlib.util, sys\nfrom vkdml.engine.vulkan.gpu import kp\nassert 'kp' not in sys.modules\n"
               f"spec = importlib.util.spec_from_file_location('_kp', {another!r})\n"
               "another = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(another)\n"
               "for one in (kp, another): print(one.Manager.__module__, type(one.Manager().sequence()) is one.Sequence)")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "vkdml.engine.vulkan._kp True\n_kp True\n", found.stderr


def test_barrier_orders_dispatches(manager, add):
    tensors = [manager.tensor_t(words(*[index] * 8)) for index in range(4)]
    sequence = manager.sequence().record(kp.OpTensorSyncDevice(tensors))
    for source, target in pairwise(tensors):
        sequence.record(kp.OpAlgoDispatch(manager.algorithm([source, target], add, [8, 1, 1], words(), words(10))))
        sequence.record(kp.OpMemoryBarrier([target], src_access_mask=SHADER_WRITE, dst_access_mask=SHADER_READ | SHADER_WRITE,
                                           src_stage_mask=COMPUTE_SHADER, dst_stage_mask=COMPUTE_SHADER))
    sequence.record(kp.OpTensorSyncLocal(tensors)).eval()
    assert [set(tensor.data()) for tensor in tensors] == [{0}, {10}, {20}, {30}]


def test_barrier_on_a_staging_buffer_that_is_not_there(manager):
    host = manager.tensor_t(words(1), kp.TensorTypes.host)
    barrier = kp.OpMemoryBarrier([host], SHADER_WRITE, SHADER_READ, COMPUTE_SHADER, COMPUTE_SHADER, barrier_on_primary=False)
    with pytest.raises(RuntimeError, match="no staging buffer"):
        manager.sequence().record(barrier)


def test_copies_of_the_first_bytes(manager):
    tensor = manager.tensor_t(words(1, 2, 3, 4))
    manager.sequence().record(kp.OpTensorSyncDevice([tensor])).eval()
    tensor.data()[:] = 5, 6, 7, 8
    manager.sequence().record(kp.OpTensorSyncDevice([tensor], 8)).eval()
    tensor.data()[:] = 0
    manager.sequence().record(kp.OpTensorSyncLocal([tensor], 12)).eval()
    assert tensor.data().tolist() == [5, 6, 3, 0]
    for operation in (kp.OpTensorSyncDevice, kp.OpTensorSyncLocal):
        with pytest.raises(RuntimeError, match="a size beyond a tensor"):
            operation([tensor], 17)


def test_algorithm_from_other_tensors_and_workgroups(manager, add):
    a, b, c, d = (manager.tensor_t(words(*range(value, value + 8))) for value in (0, 100, 200, 300))
    algorithm = manager.algorithm([a, b], add, [8, 1, 1], words(), words(1))
    shared = manager.algorithm_from(algorithm, [c, d], [3, 1, 1])
    del algorithm  # the pipeline stays
    sequence = manager.sequence().record(kp.OpTensorSyncDevice([c, d]))
    sequence.record(kp.OpAlgoDispatch(shared)).record(kp.OpTensorSyncLocal([d])).eval()
    assert d.data().tolist() == [201, 202, 203, 303, 304, 305, 306, 307]


def test_algorithms_that_share_keep_push_constants_of_their_own(manager, add):
    source = manager.tensor_t(words(0, 0))
    targets = [manager.tensor_t(words(0, 0)) for _ in range(3)]
    first = manager.algorithm([source, targets[0]], add, [2, 1, 1], words(), words(1))
    second = manager.algorithm_from(first, [source, targets[1]], [2, 1, 1])
    third = manager.algorithm_from(first, [source, targets[2]], [2, 1, 1])
    sequence = manager.sequence().record(kp.OpTensorSyncDevice([source, *targets]))
    for operation in (kp.OpAlgoDispatch(second, words(5)), kp.OpAlgoDispatch(first, words(7)), kp.OpAlgoDispatch(third)):
        sequence.record(operation)
    sequence.record(kp.OpTensorSyncLocal(targets)).eval()
    assert [target.data()[0] for target in targets] == [7, 5, 1]


def test_algorithm_from_needs_as_many_tensors(manager, add):
    a, b = (manager.tensor_t(words(0)) for _ in range(2))
    algorithm = manager.algorithm([a, b], add, [1, 1, 1], words(), words(1))
    with pytest.raises(RuntimeError, match="with 1 tensors cannot share the pipeline of one with 2"):
        manager.algorithm_from(algorithm, [a])


def test_algorithm_from_ranges_of_tensors(manager, add):
    """Both are parts of one tensor; what is beside them is not touched."""
    least = max(vkdml.Device().info.storage_buffer_alignment, 8)  # a part has two words
    heap = manager.tensor_t(np.arange(4 * least // 4, dtype=np.uint32))
    algorithm = manager.algorithm([heap, heap], add, [1, 1, 1], words(), words(1))
    shared = manager.algorithm_from(algorithm, [heap, heap], [2, 1, 1], [(least, 8), (3 * least, 8)])
    sequence = manager.sequence().record(kp.OpTensorSyncDevice([heap]))
    sequence.record(kp.OpAlgoDispatch(shared, words(100))).record(kp.OpTensorSyncLocal([heap])).eval()
    expected = np.arange(least, dtype=np.uint32)
    expected[3 * least // 4:][:2] = least // 4 + 100, least // 4 + 101
    assert heap.data().tolist() == expected.tolist()


@pytest.mark.parametrize(("ranges", "message"), [
    ([(0, 8)], "with 2 tensors and 1 ranges"), ([(0, 8), (4, 8)], "range of 8 bytes at 4 is not within a tensor of 8 bytes"),
    ([(0, 8), (12, 4)], "range of 4 bytes at 12"), ([(0, 0), (0, 8)], "range of 0 bytes"), ([(0, 8), (8, 2**64 - 8)], "at 8 is not")])
def test_algorithm_from_ranges_that_are_none(manager, add, ranges, message):
    a, b = (manager.tensor_t(words(0, 0)) for _ in range(2))
    algorithm = manager.algorithm([a, b], add, [1, 1, 1], words(), words(1))
    with pytest.raises(RuntimeError, match=message):
        manager.algorithm_from(algorithm, [a, b], [1, 1, 1], ranges)


def test_eval_lets_other_threads_run(work):
    interval = sys.getswitchinterval()
    with running(lambda: time.sleep(0.001)) as ticks:
        sys.setswitchinterval(100)  # from here on this thread has the GIL, unless it gives it away
        try:
            before = ticks()
            work.sequence.eval()
            meanwhile = ticks() - before
        finally:
            sys.setswitchinterval(interval)
    assert meanwhile > 0
    assert work.is_right()


def test_eval_async_returns_before_the_end(work):
    work.sequence.eval_async()
    assert work.sequence.is_running()
    work.sequence.eval_await(wait_for=1)
    assert work.sequence.is_running()
    with pytest.raises(RuntimeError, match="without successful wait"):
        work.sequence.eval()
    work.sequence.eval_await()
    assert not work.sequence.is_running()
    assert work.is_right()


def test_waits_have_a_limit(work, monkeypatch):
    monkeypatch.setenv("KOMPUTE_WAIT_TIMEOUT_SECONDS", "1e-9")
    with pytest.raises(RuntimeError, match="Timeout after 1e-09 s"):
        work.sequence.eval()
    assert work.sequence.is_running()
    monkeypatch.delenv("KOMPUTE_WAIT_TIMEOUT_SECONDS")
    work.sequence.eval_await()
    assert work.is_right()


def test_a_sequence_refuses_a_second_thread(work):
    def evaluate():
        with suppress(RuntimeError):  # this thread may be the second one
            work.sequence.eval()

    def until_refused():
        while True:
            work.sequence.eval_await()

    with running(evaluate), pytest.raises(RuntimeError, match="in use by another thread"):
        until_refused()


def test_a_sequence_that_is_dropped_ends_first(work):
    work.sequence.eval_async()
    del work.sequence
    assert work.is_right()


def test_a_sequence_is_evaluated_again_with_other_operations(manager, add):
    a, b = (manager.tensor_t(words(0)) for _ in range(2))
    sequence = manager.sequence()
    assert sequence.eval() is sequence  # with nothing to do
    algorithm = manager.algorithm([a, b], add, [1, 1, 1], words(), words(1))
    for operation in (kp.OpTensorSyncDevice([a, b]), kp.OpAlgoDispatch(algorithm), kp.OpTensorSyncLocal([b])):
        sequence.eval(operation)
    assert b.data()[0] == 1


def test_tensors_say_which_memory_they_got(manager, device):
    kinds = [kp.TensorTypes.host, kp.TensorTypes.device, kp.TensorTypes.storage]
    types = [manager.tensor_t(words(0), kind).memory_types() for kind in kinds]
    assert [len(found) for found in types] == [1, 2, 1]
    wanted = kp.Manager(device.info.index, host_memory_type=device.info.host_memory_type)
    assert [wanted.tensor_t(words(0), kind).memory_types()[-1] for kind in kinds[:2]] == [device.info.host_memory_type] * 2
    assert kp.Manager(device.info.index, host_memory_type=31).tensor_t(words(0), kp.TensorTypes.host).memory_types() == types[0]


def test_a_tensor_prefers_a_memory_type(device):
    """Before the manager's own."""
    manager = kp.Manager(device.info.index, host_memory_type=31)
    direct, host = device.info.direct_memory_type, kp.TensorTypes.host
    types = [manager.tensor_t(words(0), host, wanted).memory_types() for wanted in (direct, 31)]
    assert types == [[direct], manager.tensor_t(words(0), host).memory_types()]


def test_pipelines_go_from_one_manager_to_the_next(manager, add, device):
    tensors = [manager.tensor_t(words(0, 0)) for _ in range(2)]
    empty = len(kp.Manager(device.info.index).pipeline_cache_data())
    manager.algorithm(tensors, add, [1, 1, 1], words(), words(1))
    data = manager.pipeline_cache_data()
    assert len(data) >= empty >= 32  # Vulkan's header; some drivers keep nothing in it
    other = kp.Manager(device.info.index, pipeline_cache_data=data)
    assert len(other.pipeline_cache_data()) >= empty


def test_shared_memory_is_exported(device):
    """As a file, which has at least the tensor's bytes. Other tensors have none."""
    if not device.gpu.info.shares_memory:
        pytest.skip("this driver exports no memory")
    manager = device.gpu._manager
    shared, other = (manager.tensor_t(np.zeros(1000, np.uint32), kind) for kind in (kp.TensorTypes.shared, kp.TensorTypes.storage))
    file, size, is_dedicated = shared.export_memory()
    try:
        assert os.fstat(file).st_size >= size >= 4000
        assert is_dedicated in (True, False)
    finally:
        os.close(file)
    with pytest.raises(RuntimeError, match="Kompute Tensor cannot be exported"):
        other.export_memory()
