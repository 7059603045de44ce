"""Weights that are bound at execution are packed when they have changed, and only then."""

import numpy as np
import pytest

import vkdml
from tests.runtime.ready import Ready
from tests.support import Case, check, make_outputs, random_arrays, tensor
from vkdml.runtime import device as low_level

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


def test_weights_are_packed_only_when_they_have_changed(device, case):
    ready = Ready(device, case)
    check(case, ready.results())
    for buffer in ready.compiled.weights(None).buffers.values():
        described = tensor(buffer.size_in_bytes // 4)
        compiled = device.compile_operator(device.create_operator(
            vkdml.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(InputTensor=described, OutputTensor=described)))
        table = device.create_binding_table(compiled)
        table.bind_inputs([device.upload(np.zeros(described.Sizes, np.float32))])
        table.bind_outputs([buffer])
        recorder = device.create_command_recorder()
        recorder.record_dispatch(compiled, table)
        recorder.execute()
    zeros = {field: np.zeros_like(case.arrays[field]) for field in ready.compiled.weight_fields}
    check(Case(case.desc, None, case.arrays | zeros), ready.results())


def test_weights_written_through_an_array_of_the_hosts_are_seen(device, case, memory):
    """What is written there nobody sees, so they are packed at each execution."""
    if memory == "device memory":
        pytest.skip("an upload brings it to the device, which is seen")
    ready = Ready(device, case)
    weights = ready.buffers["WeightTensor"].host().reshape(case.arrays["WeightTensor"].shape)
    check(case, ready.results())
    weights[:] = changed(case, "WeightTensor").arrays["WeightTensor"]
    check(changed(case, "WeightTensor"), ready.results())


def test_weights_that_an_upload_in_the_recording_brings(device, case):
    ready = Ready(device, case)
    recorder = device.create_command_recorder()
    recorder.record_upload(ready.buffers["WeightTensor"])
    recorder.record_dispatch(ready.compiled, ready.table)
    ready.recorder = recorder
    check(case, ready.results())
    other = changed(case, "WeightTensor")
    ready.buffers["WeightTensor"].write(other.arrays["WeightTensor"])
    check(other, ready.results())


@pytest.mark.parametrize("together", [False, True], ids=["in a recording of its own", "in one recording"])
def test_weights_that_a_dispatch_makes(device, case, together):
    """weights = relu(source), where source changes between executions."""
    ready = Ready(device, case)
    described = tensor(*case.desc.WeightTensor.Sizes)
    source = device.upload(case.arrays["WeightTensor"])
    make = device.compile_operator(device.create_operator(
        vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=described, OutputTensor=described)))
    table = device.create_binding_table(make)
    table.bind_inputs([source])
    table.bind_outputs([ready.buffers["WeightTensor"]])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(make, table)
    if together:
        recorder.record_dispatch(ready.compiled, ready.table)
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
    negate = device.compile_operator(device.create_operator(
        vkdml.DML_ACTIVATION_LINEAR_OPERATOR_DESC(InputTensor=described, OutputTensor=described, Alpha=-1)))
    table = device.create_binding_table(negate)
    table.bind_inputs([ready.buffers["WeightTensor"]])
    table.bind_outputs([ready.buffers["WeightTensor"]])
    second = make_outputs(device, ready.compiled)
    recorder = device.create_command_recorder()
    recorder.record_dispatch(ready.compiled, ready.table)
    recorder.record_dispatch(negate, table)
    ready.table.bind_outputs(list(second.values()))
    recorder.record_dispatch(ready.compiled, ready.table)
    sizes = {field: ready.compiled.problem.tensor(field).sizes for field in second}
    for before, after in ((case, negated), (negated, case)):
        recorder.execute()
        check(before, {field: buffer.download(sizes[field]) for field, buffer in ready.outputs.items()})
        check(after, {field: buffer.download(sizes[field]) for field, buffer in second.items()})


def test_two_operators_share_weights(device, case):
    """The buffers are the same; each has packed them for itself, and each sees a change."""
    two = [Ready(device, case) for _ in range(2)]
    two[1].table.bind_inputs([two[0].buffers.get(field) for field in two[0].compiled.input_fields])
    two[1].recorder = device.create_command_recorder()
    two[1].recorder.record_dispatch(two[1].compiled, two[1].table)
    for now in (case, changed(case, "RecurrenceTensor", "BiasTensor")):
        for field in ("RecurrenceTensor", "BiasTensor"):
            two[0].buffers[field].upload(now.arrays[field])
        for ready in two:
            check(now, ready.results())


def test_one_operator_with_two_sets_of_weights(device, case):
    ready, other = Ready(device, case), changed(case, "WeightTensor", "RecurrenceTensor")
    recorders = [ready.recorder, device.create_command_recorder()]
    ready.table.bind_inputs([device.upload(other.arrays[field]) if field in other.arrays else None
                             for field in ready.compiled.input_fields])
    recorders[1].record_dispatch(ready.compiled, ready.table)
    for recorder, now in [*zip(recorders, (case, other))] * 2:
        ready.recorder = recorder
        check(now, ready.results())


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
    compiled = device.compile_operator(device.create_operator(
        vkdml.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(InputTensor=described, OutputTensor=described)))
    table = device.create_binding_table(compiled)
    table.bind_inputs([device.upload(case.arrays["WeightTensor"])])
    table.bind_outputs([ready.buffers["WeightTensor"]])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(compiled, table)
    monkeypatch.setattr(low_level.Submission, "run", lambda _: (_ for _ in ()).throw(vkdml.DriverError("lost")))
    with pytest.raises(vkdml.DriverError, match="lost"):
        recorder.execute()
    assert ready.buffers["WeightTensor"].stamp not in (before, None)
