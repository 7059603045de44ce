"""Buffers that only kernels use, and those that the host reads in place."""

import numpy as np
import pytest

import vkdml
from tests.programs import run
from vkdml.engine.vulkan.buffers import Buffer
from vkdml.engine.vulkan.memory import Range


def test_offsets_of_the_hosts_reads_and_writes(device):
    buffer = device.upload(np.arange(8, dtype=np.float32))
    buffer.write(np.full(2, 9, np.float32), offset=12)
    buffer.upload(np.full(1, 7, np.float32), offset=28)
    assert buffer.read((8,)).tolist() == [0, 1, 2, 9, 9, 5, 6, 7]
    assert buffer.read((2,), offset=16).tolist() == buffer.download((2,), offset=16).tolist() == [9, 5]
    for wrong, message in [
        (lambda: buffer.write(np.zeros(2, np.float32), offset=28), "array: found 8 bytes of float32; expected native numbers, at most 4"),
        (lambda: buffer.read((2,), offset=28), "shape and dtype: .* at most 4 bytes"),
        (lambda: buffer.write(np.zeros(1, np.float32), offset=36), "Buffer.write: offset: found 36; expected at most 32"),
        (lambda: buffer.read((1,), offset=-4), "Buffer.read: offset: found"),
        (lambda: buffer.upload(np.zeros(9, np.float32)), "Buffer.upload: array: found 36 bytes"),
        (lambda: buffer.download((9,)), "Buffer.download: shape and dtype: found"),
    ]:
        with pytest.raises(vkdml.InvalidArgumentError, match=message):
            wrong()


def test_a_view_of_a_terabyte_is_refused_without_a_copy(device):
    with pytest.raises(vkdml.InvalidArgumentError, match="Buffer.write: array: found 1099511627776 bytes of float32; expected"):
        device.create_buffer(64).write(np.broadcast_to(np.float32(1), (2**19, 2**19)))


def test_stamps_of_parts(device):
    """A change of a part is one of all that has a byte of it, and of nothing else."""
    buffer = Buffer(device.gpu, 1024)
    first, second, whole = Range(buffer, 0, 256), Range(buffer, 256, 512), buffer

    def changed(change):
        before = [part.stamp for part in (first, second, whole)]
        change()
        return [part.stamp > stamp for part, stamp in zip((first, second, whole), before)]

    assert changed(first._mark_computed) == [True, False, True]
    assert changed(lambda: buffer._mark_written(252, 8)) == [True, True, True]
    assert changed(Range(buffer, 768, 256)._mark_computed) == [False, False, True]
    assert changed(lambda: [buffer._mark_written(800, 4 + place) for place in range(2000)]) == [False, False, True]
    assert changed(second._mark_computed) == [False, True, True]
    assert changed(buffer._mark_written) == [True, True, True]


def test_parts_that_are_joined_have_the_newest_stamp(device):
    """Parts beside each other become one once there are many, so that weights in one of them are not taken for unchanged."""
    buffer = Buffer(device.gpu, 8192)
    for place in range(0, 8192, 4):
        before, part = buffer.stamp, Range(buffer, place, 4)
        part._mark_computed()
        assert before < part.stamp == buffer.stamp
        if place:
            assert Range(buffer, place - 4, 4).stamp >= before


@pytest.mark.device
@pytest.mark.parametrize("ends", ["gpu.driver._lose('lost by a test')", "devices._open.clear(), sessions._devices.clear()"])
def test_a_hosts_array_outlives_its_device(ends):
    """What it sees would be unmapped: in a process of its own. With the array the device goes, and its threads."""
    assert run(f"""
import weakref
from vkdml.faces import sessions

def threads():
    return len(os.listdir("/proc/self/task"))

values = np.arange(1 << 18, dtype=np.float32)
before, gpu = threads(), vkdml.Device().gpu
buffer = vkdml.Device().upload(values)
array, part = buffer.host(), buffer.host(np.uint8)[4:8]
{ends}
gone = weakref.ref(gpu)
del gpu, buffer
again = [vkdml.Device().upload(np.ones_like(values)) for _ in range(3)]
gc.collect()
print(gone() is None, bool((array == values).all()))
array += 1
print(bool((array == values + 1).all()), part.view(np.float32)[0], again[0].read((1,))[0])
opened = threads()
del array
gc.collect()
print(threads() == opened)
del part
gc.collect()
print(threads() < opened or opened == before)
""") == "True True\nTrue 2.0 1.0\nTrue\nTrue\n"
