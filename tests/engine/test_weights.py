"""Weights that are bound at execution are packed when they have changed, and only then."""

import numpy as np
import pytest

import vkdml
from tests.engine.ready import Ready, recorded, table_of
from vkdml.engine.vulkan import gpu as low_level
from vkdml.engine.vulkan.memory import COPIED
from vkdml.faces.directml import compiled_operator
from vkdml_lab.suite.support import Case, check, make_outputs, random_arrays, tensor

pytestmark = pytest.mark.usefixtures("memory")


def changed(case, *fields):
    """With other weights."""
    other = random_arrays(case.desc, np.random.default_rng(9))
    return Case(case.desc, None, case.arrays | {field: other[field] for field in fields})


@pytest.mark.parametrize("fields", [["WeightTensor"], ["RecurrenceTensor"], ["BiasTensor"], ["WeightTensor", "BiasTensor"]])
def test_weights_that_the_host_changed_are_packed_again(device, case, fields):
    ready = Ready(device, case)
    check(case, ready.results())
    other = changed(case, *fields)
    for field in fields:
        ready.buffers[field].upload(other.arrays[field])
    check(other, ready.results())


def test_weights_are_packed_only_when_they_have_changed(device, case, monkeypatch):
    monkeypatch.setattr(compiled_operator, "OWN", COPIED)  # so that the host can write to packed weights
    ready = Ready(device, case)
    check(case, ready.results())
    for buffer in ready.compiled.weights(None).buffers.values():
        buffer.upload(np.zeros(buffer.size_in_bytes, np.uint8))
    zeros = {field: np.zeros_like(case.arrays[field]) for field in ready.compiled.weight_fields}
    check(Case(case.desc, None, case.arrays | zeros), ready.results())


def test_weights_written_through_an_array_of_the_hosts_are_seen(device, case, memory):
    """What is written there cannot be seen, so they are packed at each execution."""
    if memory == "device memory":
        pytest.skip("an upload brings it to the device, which is seen")
    ready = Ready(device, case)
    weights = ready.buffers["WeightTensor"].host().reshape(case.arrays["WeightTensor"].shape)
    check(case, ready.results())
    weights[:] = changed(case, "WeightTensor").arrays["WeightTensor"]
    check(changed(case, "WeightTensor"), ready.results())


@pytest.mark.parametrize("is_before", [False, True], ids=["behind an upload", "before an upload and behind it"])
def test_weights_that_were_written_but_not_uploaded_when_they_were_packed(device, case, memory, is_before):
    """The host writes, another recorder packs what the device still has, and only then this one uploads."""
    ready = Ready(device, case)
    earlier, recorder = ready.recorder, device.create_command_recorder()
    if is_before:
        recorder.record_dispatch(ready.compiled, ready.table)
    recorder.record_upload(ready.buffers["WeightTensor"])
    recorder.record_dispatch(ready.compiled, ready.table)
    other = changed(case, "WeightTensor")
    ready.buffers["WeightTensor"].write(other.arrays["WeightTensor"])
    check(other if memory == "host memory" else case, ready.results())
    ready.recorder = recorder
    check(other, ready.results())
    ready.recorder = earlier
    check(other, ready.results())


@pytest.mark.parametrize("together", [False, True], ids=["in a recording of its own", "in one recording"])
def test_weights_that_a_dispatch_makes(device, case, together):
    """weights = relu(source), where source changes between executions."""
    ready = Ready(device, case)
    described = tensor(*case.desc.WeightTensor.Sizes)
    source = device.upload(case.arrays["WeightTensor"])
    make = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=described, OutputTensor=described)
    table = table_of(device, make, [source], [ready.buffers["WeightTensor"]])
    recorder = recorded(device, table, ready.table) if together else recorded(device, table)
    for weights in (case.arrays["WeightTensor"], changed(case, "WeightTensor").arrays["WeightTensor"]):
        source.upload(weights)
        recorder.execute()
        if not together:
            ready.recorder.execute()
        expected = Case(case.desc, None, case.arrays | {"WeightTensor": np.maximum(weights, 0)})
        check(expected, {field: ready.outputs[field].download(ready.compiled.problem.tensor(field).sizes) for field in ready.outputs})


def test_an_execution_before_and_after_its_weights_are_made(device, case):
    """In one recording, and that twice: what is packed last in one execution is not taken for what the next one begins with."""
    ready = Ready(device, case)
    described = tensor(*case.desc.WeightTensor.Sizes)
    negated = Case(case.desc, None, case.arrays | {"WeightTensor": -case.arrays["WeightTensor"]})
    negate = vkdml.DML_ACTIVATION_LINEAR_OPERATOR_DESC(InputTensor=described, OutputTensor=described, Alpha=-1)
    second, weights = make_outputs(device, ready.compiled), ready.buffers["WeightTensor"]
    recorder = recorded(device, ready.table, table_of(device, negate, [weights], [weights]))
    ready.table.bind_outputs(list(second.values()))
    recorder.record_dispatch(ready.compiled, ready.table)
    sizes = {field: ready.compiled.problem.tensor(field).sizes for field in second}
    for before, after in ((case, negated), (negated, case)):
        recorder.execute()
        check(before, {field: buffer.download(sizes[field]) for field, buffer in ready.outputs.items()})
        check(after, {field: buffer.download(sizes[field]) for field, buffer in second.items()})


def test_after_a_failure_weights_are_packed_again(device, case, monkeypatch):
    ready = Ready(device, case)
    ready.recorder.execute()
    with monkeypatch.context() as broken:
        broken.setattr(low_level.Submission, "run", lambda _: (_ for _ in ()).throw(vkdml.DriverError("lost")))
        with pytest.raises(vkdml.DriverError, match="lost"):
            ready.recorder.execute()
    assert ready.compiled.weights(None).origin is None
    check(case, ready.results())


def test_weights_that_a_failed_execution_may_have_written_are_packed_again(device, case, monkeypatch):
    """By another recording, which knows nothing of the failure."""
    ready = Ready(device, case)
    check(case, ready.results())
    before = ready.buffers["WeightTensor"].stamp
    described = tensor(*case.desc.WeightTensor.Sizes)
    copy = vkdml.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(InputTensor=described, OutputTensor=described)
    recorder = recorded(device, table_of(device, copy, [device.upload(case.arrays["WeightTensor"])], [ready.buffers["WeightTensor"]]))
    monkeypatch.setattr(low_level.Submission, "run", lambda _: (_ for _ in ()).throw(vkdml.DriverError("lost")))
    with pytest.raises(vkdml.DriverError, match="lost"):
        recorder.execute()
    assert ready.buffers["WeightTensor"].stamp not in (before, None)


class Heap:
    """One buffer with sets of weights one behind the other, filled by a single write."""

    def __init__(self, device, case, sets):
        compiled = device.compile_operator(device.create_operator(case.desc))
        self.places, size = {}, 0
        for number in range(len(sets)):
            for field in compiled.weight_fields:
                self.places[number, field] = size
                size += -(-compiled.problem.tensor(field).size_in_bytes // 256) * 256
        self.buffer = device.create_buffer(size)
        filled = np.zeros(size, np.uint8)
        for (number, field), offset in self.places.items():
            memory = np.ascontiguousarray(sets[number].arrays[field]).reshape(-1).view(np.uint8)
            filled[offset:offset + memory.size] = memory
        self.buffer.upload(filled)

    def bind(self, ready, number):
        """Bind the weights of this set in a ready operator's table."""
        ready.table.bind_inputs([vkdml.DML_BUFFER_BINDING(self.buffer, self.places[number, field]) if (number, field) in self.places
                                 else ready.buffers.get(field) for field in ready.compiled.input_fields])


@pytest.fixture
def sets(case):
    """The case, and two of other weights."""
    return [case] + [Case(case.desc, None, case.arrays | {field: array for field, array in random_arrays(
        case.desc, np.random.default_rng(seed)).items() if field in ("WeightTensor", "RecurrenceTensor", "BiasTensor")})
        for seed in (9, 10)]


ORDER = [0, 1, 1, 0, 2, 1, 0]


@pytest.mark.parametrize("resource", [False, True], ids=["the package's memory", "a persistent resource"])
def test_weights_at_several_places_of_one_buffer(device, case, sets, resource):
    """A recorder for each, all of one compiled operator, executed in any order."""
    ready, heap = Ready(device, case), Heap(device, case, sets)
    if resource:
        ready.table.bind_persistent_resource(device.create_buffer(ready.compiled.get_binding_properties().PersistentResourceSize))
    recorders = []
    for number in range(len(sets)):
        heap.bind(ready, number)
        recorders.append(recorded(device, ready.table))
    for number in ORDER:
        ready.recorder = recorders[number]
        check(sets[number], ready.results())


def test_weights_at_one_place_are_packed_once(device, case, sets):
    """By whatever recorder, and although others of the buffer are written."""
    ready, heap = Ready(device, case), Heap(device, case, sets)
    heap.bind(ready, 1)
    for due in (True, False):
        ready.recorder = recorded(device, ready.table)
        assert ready.recorder._commands._due()[0] == (due,)
        check(sets[1], ready.results())
        heap.buffer.upload(np.ones(4, np.float32))
    assert ready.recorder._commands._due()[0] == (False,)
