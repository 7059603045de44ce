"""Buffers of which host and device write different parts: the same comes out wherever the device's memory is."""

import numpy as np
import pytest

import vkdml
from tests.engine.ready import table_of
from vkdml.engine.execution import Turn
from vkdml.engine.vulkan.buffers import Buffer
from vkdml.engine.vulkan.gpu import Submission
from vkdml_lab.suite.support import tensor


class Heap:
    """One buffer with floats x, y and z at 0, 256 and 512, and a recorder with what a test records."""

    def __init__(self, device):
        self.device, self.buffer, self.recorder = device, device.create_buffer(768), device.create_command_recorder()

    def part(self, place):
        return vkdml.DML_BUFFER_BINDING(self.buffer, 256 * place, 16)

    def adds(self, a, b, to):
        """Record that to = a + b. Each is a number of a place."""
        described = tensor(4)
        add = vkdml.DML_ELEMENT_WISE_ADD_OPERATOR_DESC(ATensor=described, BTensor=described, OutputTensor=described)
        table = table_of(self.device, add, [self.part(a), self.part(b)], [self.part(to)])
        self.recorder.record_dispatch(table.dispatchable, table)

    def write(self, place, value):
        self.buffer.write(np.full(4, value, np.float32), 256 * place)

    def values(self):
        return [self.buffer.download((4,), offset=256 * place).tolist()[3] for place in range(3)]


def test_an_upload_keeps_what_dispatches_wrote(device, memory):
    """x, which the host writes, is added to y, which stays on the device."""
    heap = Heap(device)
    heap.recorder.record_upload(heap.buffer)
    heap.adds(0, 1, 1)
    for x in range(1, 4):
        heap.write(0, x)
        heap.recorder.execute()
    heap.recorder.execute()
    assert heap.values() == [3, 1 + 2 + 3 + 3, 0]
    heap.buffer.upload(np.full(4, 10, np.float32), 512)
    assert heap.values() == [3, 9, 10]


def test_a_readback_keeps_what_the_host_wrote(device, memory):
    heap = Heap(device)
    heap.buffer.upload(np.ones(192, np.float32))
    heap.adds(0, 0, 1)
    heap.recorder.record_readback(heap.buffer)
    heap.write(2, 5)
    heap.recorder.execute()
    assert [heap.buffer.read((4,), offset=256 * place)[0] for place in range(3)] == [1, 2, 5]
    assert heap.buffer.download((4,), offset=256)[0] == 2
    heap.buffer.upload(np.full(4, 7, np.float32))
    assert heap.values() == [7, 2, 5]


def test_uploads_of_what_may_be_written_unseen(device, memory):
    """Elsewhere than in the host's memory vkdml cannot know what is new then."""
    heap = Heap(device)
    heap.recorder.record_upload(heap.buffer)
    heap.adds(0, 1, 1)
    array = heap.buffer.host()
    array[:4] = 1
    heap.recorder.execute()
    if memory == "device memory":
        for upload in (heap.recorder.execute, lambda: heap.buffer.upload(np.ones(4, np.float32))):
            with pytest.raises(vkdml.InvalidArgumentError, match=r"Buffer: upload: found a part that a dispatch wrote, and an array of host\(\)"):
                upload()
    assert heap.values()[1] == 1
    array[:4] = 2
    heap.recorder.execute()
    assert heap.values()[:2] == [2, 3]


def test_an_upload_of_what_may_be_written_unseen_is_refused_before_any_work(device, monkeypatch):
    monkeypatch.setattr(device.gpu, "host_memory", False)
    heap = Heap(device)
    heap.buffer.upload(np.ones(192, np.float32))
    heap.adds(0, 1, 1)
    heap.recorder.record_upload(heap.buffer)
    heap.buffer.host()
    with pytest.raises(vkdml.InvalidArgumentError, match="a readback before the upload"):
        heap.recorder.execute()
    assert heap.values() == [1, 1, 1]


def test_what_is_read_back_beside_what_is_uploaded_costs_nothing(device, monkeypatch):
    """A buffer that only the host writes, or only dispatches: nothing is brought back before uploads."""
    monkeypatch.setattr(device.gpu, "host_memory", False)
    heap = Heap(device)
    x, y = device.create_buffer(16), device.create_buffer(16)
    heap.part = [x, x, y].__getitem__
    heap.recorder.record_upload(x)
    heap.adds(0, 1, 2)
    heap.recorder.record_readback(y)
    monkeypatch.setattr(Buffer, "_fetch", None)
    for value in range(3):
        x.write(np.full(4, value, np.float32))
        heap.recorder.execute()
        assert y.read((4,))[0] == 2 * value


@pytest.fixture
def copied(monkeypatch):
    """The sizes of all copies."""
    sizes, right = [], Submission._copy
    monkeypatch.setattr(Submission, "_copy", lambda submission, operation, buffer, size: sizes.append(size) or right(
        submission, operation, buffer, size))
    return sizes


def test_calls_copy_the_bytes_of_their_tensors(device, copied, monkeypatch):
    """To the byte, each way, though calls of other sizes share the buffers."""
    monkeypatch.setattr(device.gpu, "host_memory", False)
    w, r, x = np.ones((1, 20, 7), np.float32), np.ones((1, 20, 20), np.float32), np.ones((1100, 3, 7), np.float32)
    y, y_h = vkdml.rnn(x, w, r, device=device)
    assert sorted(copied) == sorted(array.nbytes for array in (w, r, x, y, y_h))
    small, _ = vkdml.rnn(x[:2], w, r, device=device)
    assert np.array_equal(small, y[:2])
    assert np.array_equal(vkdml.rnn(x, w, r, device=device)[0], y)


@pytest.mark.parametrize("fails", [False, True])
def test_small_inputs_are_not_copied(device, copied, monkeypatch, fails):
    """They are in device memory that the host writes, if there is room. Sequence lengths are copied, as the host reads them
    to check them.
    """
    w, r, h = np.full((1, 20, 7), 0.1, np.float32), np.full((1, 20, 20), 0.1, np.float32), np.ones((1, 3, 20), np.float32)
    lengths, inputs = np.array([11, 5, 2], np.int32), [np.full((11, 3, 7), value, np.float32) for value in (1, 2, 1)]
    expected = [vkdml.rnn(x, w, r, initial_h=h, sequence_lens=lengths, device=device) for x in inputs]
    make = device.gpu.make_tensor

    def failing(size, kind):
        if kind == "direct":
            raise vkdml.OutOfMemoryError("made up")
        return make(size, kind)

    monkeypatch.setattr(device.gpu, "host_memory", False)
    device.gpu.store.clear()
    if fails:
        monkeypatch.setattr(device.gpu, "make_tensor", failing)
    copied.clear()  # a discrete GPU has copied before
    layer = vkdml.RNN(w, r, device=device)
    for x, outputs in zip(inputs, expected):
        for array, right in zip(layer(x, initial_h=h, sequence_lens=lengths), outputs):
            np.testing.assert_array_equal(array, right)
    small = [x, h] if fails else []
    assert sorted(copied) == sorted(array.nbytes for array in (w, r, lengths, *expected[0], *small))


@pytest.mark.parametrize("fails", [False, True])
def test_large_inputs_are_in_memory_that_the_host_only_writes(device, monkeypatch, fails):
    """Its copy is never read, and the device may have none of it. Results are in memory that is fast to read."""
    asked, make = [], device.gpu.make_tensor

    def tried(size, kind):
        asked.append((size, kind))
        if fails and kind == "sent":
            raise vkdml.OutOfMemoryError("made up")
        return make(size, kind)

    w, r, x = np.full((1, 4, 40), 0.1, np.float32), np.full((1, 4, 4), 0.1, np.float32), np.full((60, 10, 40), 0.1, np.float32)
    expected = vkdml.rnn(x, w, r, device=device)[0]
    monkeypatch.setattr(device.gpu, "host_memory", False)
    device.gpu.store.clear()
    monkeypatch.setattr(device.gpu, "make_tensor", tried)
    monkeypatch.setattr(Turn, "view", lambda turn, name, *given, view=Turn.view: (
        pytest.fail("read what is slow to read") if name.startswith("Output") and turn.buffers[name].kind == "sent"
        else view(turn, name, *given)))
    np.testing.assert_array_equal(vkdml.RNN(w, r, device=device)(x)[0], expected)
    size = 2**17  # the power of two above x's
    assert {kind for bytes_of, kind in asked if bytes_of == size} == {"sent", *["copied"] * fails}
