"""Objects that a `with` block ends: their memory goes, and what is asked of them then is refused by name."""

import gc
import re

import numpy as np
import pytest

import vkdml
from tests.engine.ready import recorded
from tests.engine.test_binding import Heap, bound_table, compiled_of
from tests.faces.onnx.support import inputs_of, model
from tests.faces.onnx.support import weights as onnx_weights
from tests.faces.test_layers import B, I, make, weights
from vkdml import InvalidArgumentError
from vkdml.onnx import InferenceSession
from vkdml_lab.suite.support import check

pytestmark = pytest.mark.device

ONE = np.ones(16, np.float32)
USES = {
    "write": lambda device, buffer: buffer.write(ONE),
    "read": lambda device, buffer: buffer.read((1,)),
    "upload": lambda device, buffer: buffer.upload(ONE),
    "download": lambda device, buffer: buffer.download((1,)),
    "host": lambda device, buffer: buffer.host(),
    "record_upload": lambda device, buffer: device.create_command_recorder().record_upload(buffer),
    "record_readback": lambda device, buffer: device.create_command_recorder().record_readback(buffer),
}


def refused(kind):
    return pytest.raises(InvalidArgumentError, match=re.escape(f"a closed {kind}"))


@pytest.mark.parametrize("use", USES)
def test_a_closed_buffer_is_refused(device, memory, use):
    with device.create_buffer(64) as buffer:
        buffer.upload(ONE)
    with refused("Buffer"):
        USES[use](device, buffer)
    buffer.close()
    assert buffer.size_in_bytes == 64


def test_its_memory_goes_at_once(device, memory):
    gc.collect()
    used = device.gpu.memory.used
    with device.create_buffer(2**20) as buffer:
        buffer.upload(ONE)
        assert device.gpu.memory.used - used == device.gpu.bytes_of(2**20, "copied")
    assert device.gpu.memory.used == used


def test_an_array_of_it_stays(device):
    with device.create_buffer(64) as buffer:
        buffer.write(ONE)
        array = buffer.host()
    assert (array == 1).all()


def test_what_was_recorded_is_refused(device, memory, case):
    """It has the memory, which is counted until it goes."""
    gc.collect()
    used = device.gpu.memory.used
    heap = Heap(device, compiled_of(device, case), case)
    dispatch, copy = recorded(device, bound_table(device, heap)), device.create_command_recorder()
    copy.record_upload(heap.buffer)
    copy.record_readback(heap.buffer)
    for recorder in (dispatch, copy):
        recorder.execute()
    check(case, heap.results())
    before = device.gpu.memory.used
    heap.buffer.close()
    for recorder in (dispatch, copy):
        with refused("Buffer"):
            recorder.execute()
    assert device.gpu.memory.used == before
    del dispatch, recorder
    gc.collect()
    if memory == "device memory":  # else copies have nothing to do
        assert device.gpu.memory.used - used >= device.gpu.bytes_of(heap.buffer.size_in_bytes, "copied")
    del copy, heap
    gc.collect()
    assert device.gpu.memory.used <= used


def test_it_cannot_be_bound_nor_recorded(device, case):
    """A refused recording has nothing of the operator."""
    heap = Heap(device, compiled_of(device, case), case)
    table, recorder = bound_table(device, heap), device.create_command_recorder()
    heap.buffer.close()
    with refused("Buffer"):
        bound_table(device, heap)
    with refused("Buffer"):
        recorder.record_dispatch(heap.compiled, table)
    assert recorder.counts == (0, 0)


def test_what_was_refused_does_not_count(device, case):
    """Of a recording that is refused, nothing is looked at later."""
    heap, recorder = Heap(device, compiled_of(device, case), case), device.create_command_recorder()
    with device.create_buffer(heap.buffer.size_in_bytes) as other:
        table = bound_table(device, heap)
        table.bind_outputs([vkdml.DML_BUFFER_BINDING(other, 0, 540), vkdml.DML_BUFFER_BINDING(other, 256, 108)])
        with pytest.raises(InvalidArgumentError, match="OutputS"):
            recorder.record_dispatch(heap.compiled, table)
    table = bound_table(device, heap)
    recorder.record_dispatch(heap.compiled, table)
    recorder.execute()
    check(case, heap.results())


def test_streams():
    layer, x = vkdml.LSTM(**weights("LSTM")), make(B, I)
    with layer.stream(B) as stream:
        expected = stream.step(x)
    for use in (lambda: stream.step(x), stream.reset, lambda: stream.state):
        with refused("Stream"):
            use()
    with layer.stream(B) as other:
        np.testing.assert_array_equal(other.step(x), expected)


def test_sessions_and_their_streams():
    proto = model("g (float[T,B,3] x, float[1,B,4] h) => (float[T,1,B,4] y, float[1,B,4] last) {"
                  "y, last = GRU <hidden_size=4> (x, W, R, B, , h) }", onnx_weights())
    with InferenceSession(proto.SerializeToString()) as session:
        feeds = inputs_of(session, np.random.default_rng(0), {"T": 3, "B": 1})
        expected = session.run(["y"], feeds)
        stream = session.stream({"last": "h"})
    for use in (lambda: session.run(None, feeds), session.get_inputs, lambda: session.stream({"last": "h"}),
                lambda: session.get_inputs_typo):
        with refused("InferenceSession"):
            use()
    with stream:
        stream.state = {"h": feeds["h"]}
        np.testing.assert_array_equal(stream.step({"x": feeds["x"]}), expected)
    with refused("SessionStream"):
        stream.step({"x": feeds["x"]})


def test_a_device_lets_go_of_what_it_keeps(device):
    layer, x = vkdml.GRU(**weights("GRU"), device=device), make(3, B, I)
    with vkdml.Device(device.info.index) as again:
        expected = layer(x)
        assert again.gpu is device.gpu
        assert len(device.gpu.store._entries)
    assert not len(device.gpu.store._entries)
    np.testing.assert_array_equal(layer(x)[0], expected[0])
