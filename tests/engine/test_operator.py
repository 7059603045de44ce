"""DirectML's life cycle on a device: what repeats, what is refused, and that nothing breaks after a refusal."""

from dataclasses import replace

import numpy as np
import pytest

import vkdml
from tests.engine.ready import Ready, bind, recorded, table_of
from vkdml.engine.vulkan import gpu as low_level
from vkdml.engine.vulkan.buffers import Buffer
from vkdml.operators import reference
from vkdml.operators.problem import from_desc
from vkdml_lab.suite.support import (
    ATOL,
    RTOL,
    Case,
    check,
    drawn_case,
    gru_desc,
    options,
    owned,
    random_arrays,
    run_on_device,
    tensor,
)

pytestmark = pytest.mark.usefixtures("memory")


def test_executing_again_with_new_input_builds_nothing(device, case, monkeypatch):
    ready = Ready(device, case)
    for _ in range(2):  # the first packs the weights
        check(case, ready.results())
    other = Case(case.desc, None, case.arrays | {"InputTensor": case.arrays["InputTensor"][:, ::-1]})
    ready.buffers["InputTensor"].upload(other.arrays["InputTensor"])
    with monkeypatch.context() as forbidden:
        for name in ("create_kernel", "create_submission"):
            forbidden.setattr(low_level.Gpu, name, lambda *arguments: pytest.fail("built something"))
        ready.recorder.execute()
    check(other, ready.results())


@pytest.mark.parametrize("in_place", [False, True])
def test_streaming_keeps_the_state_on_the_device(device, in_place):
    """T = 1 again and again, each OutputSingle the next HiddenInit, is the whole sequence."""
    whole = gru_desc(6, 2, 3, 5, SequenceLengthsTensor=None)
    arrays = random_arrays(whole, np.random.default_rng(1))
    expected = reference.run(from_desc(whole), arrays)["OutputSequenceTensor"]
    step = gru_desc(1, 2, 3, 5, SequenceLengthsTensor=None, OutputSequenceTensor=None)
    compiled = device.compile_operator(device.create_operator(step))
    buffers = {field: device.upload(array) for field, array in arrays.items()}
    x = device.create_buffer(2 * 3 * 4)
    first = buffers["HiddenInitTensor"]
    states = [first, first if in_place else device.create_buffer(2 * 5 * 4)]
    recorders = []
    for source, target in (states, states[::-1]):
        weights = [buffers[field] for field in ("WeightTensor", "RecurrenceTensor", "BiasTensor")]
        recorders.append(device.create_command_recorder())
        recorders[-1].record_upload(x)
        recorders[-1].record_dispatch(compiled, bind(device, compiled, [x, *weights, source, None], [None, target]))
    for t in range(6):
        x.write(arrays["InputTensor"][0, t])
        recorders[t % 2].execute()
        np.testing.assert_allclose(states[1 - t % 2].download((2, 5)), expected[t, 0], rtol=RTOL, atol=ATOL)


def test_lengths_are_checked_at_each_execution(device, case):
    ready = Ready(device, case)
    lengths = ready.buffers["SequenceLengthsTensor"]
    lengths.upload(np.array([5, 6, 0], np.uint32))
    with pytest.raises(vkdml.InvalidArgumentError, match="sequence length of row 1: found 6; expected 0 to T = 5"):
        ready.recorder.execute()
    lengths.upload(case.arrays["SequenceLengthsTensor"])
    check(case, ready.results())


def wrong_bindings(device, ready):
    """Each wrong use, and what its message must name."""
    compiled, table = ready.compiled, ready.table
    inputs, outputs = ready.inputs(), list(ready.outputs.values())
    ready_to_initialize = device.compile_operator(device.create_operator(owned(gru_desc(5, 3, 6, 9))))
    of_owned = device.create_binding_table(ready_to_initialize)
    operator = device.create_operator(gru_desc(5, 3, 6, 9))
    small = device.create_buffer(4)
    fresh = device.create_binding_table(compiled)
    initializing = device.create_binding_table(device.create_operator_initializer(ready_to_initialize))
    uninitialized = device.compile_operator(device.create_operator(owned(gru_desc(5, 3, 6, 9))))
    bound = bind(device, uninitialized, [inputs[0], None, None, None, *inputs[4:]], outputs)
    alias = bind(device, compiled, inputs, [outputs[0], ready.buffers["RecurrenceTensor"]])
    return [
        (lambda: table.bind_inputs(inputs[:3]), "bind_inputs: found 3 bindings; expected 6"),
        (lambda: table.bind_inputs([small, *inputs[1:]]), "InputTensor: found 4 bytes; expected 360 bytes"),
        (lambda: table.bind_inputs([None, *inputs[1:]]), "InputTensor: found NoneType; expected a Buffer"),
        (lambda: table.bind_inputs([np.zeros(90), *inputs[1:]]), "InputTensor: found ndarray; expected a Buffer"),
        (lambda: of_owned.bind_inputs([inputs[0], small, *inputs[2:]]), "WeightTensor: found a buffer; expected None: it is bound to the init"),
        (lambda: initializing.bind_inputs(inputs), "InputTensor: found a buffer; expected None: it is bound to the operator: reset"),
        (lambda: device.create_command_recorder().record_dispatch(compiled, fresh), "no binding for InputTensor, WeightTensor"),
        (lambda: device.create_command_recorder().record_dispatch(uninitialized, table), "table of another"),
        (lambda: device.create_command_recorder().record_dispatch(operator, table), "dispatchable: found Operator; expected Compiled"),
        (lambda: device.create_command_recorder().record_dispatch(uninitialized, bound), "not initialized"),
        (lambda: device.create_command_recorder().record_dispatch(compiled, alias), "OutputSingleTensor: found memory of Recurrence"),
        (lambda: device.create_buffer(6), "size_in_bytes: found 6; expected a multiple of 4"),
        (lambda: device.create_buffer(2**32), "size_in_bytes: found 4294967296; expected a multiple of 4"),
        (lambda: small.write(np.zeros(2, np.float32)), "array: found 8 bytes"),
        (lambda: small.write(np.array([None])), "array: found 8 bytes of object"),
        (lambda: small.read((2,)), "shape and dtype: found"),
        (lambda: device.compile_operator(operator, flags=99999), "flags: found 99999"),
        (lambda: device.compile_operator(operator, flags=vkdml.DML_TENSOR_FLAGS.NONE), "flags: found DML_TENSOR_FLAGS.NONE; expected DML_EXECUTION_FLAGS"),
        (lambda: device.create_operator(gru_desc(BiasTensor=tensor(1))), "BiasTensor.DimensionCount"),
        (lambda: device.compile_operator(None), "compile_operator: operator: found NoneType; expected Operator"),
        (lambda: device.compile_operator(operator, options=3), "options: found int; expected Options"),
        (lambda: device.create_operator_initializer(operator), "compiled: found Operator; expected CompiledOperator"),
        (lambda: device.create_binding_table(operator), "dispatchable: found Operator"),
        (lambda: ready.recorder.record_upload(np.zeros(3)), "record_upload: buffer: found ndarray"),
        (lambda: ready.recorder.record_dispatch(compiled, None), "table: found NoneType"),
    ]


def test_after_every_error_everything_still_works(device, case):
    ready = Ready(device, case)
    for wrong, message in wrong_bindings(device, ready):
        with pytest.raises(vkdml.InvalidArgumentError, match=message):
            wrong()
        check(case, ready.results())


def test_a_device_wrote_the_lengths(device):
    """The host cannot see them, and its copy is an old one; whatever they are, no access leaves its tensor and the loop ends."""
    desc = gru_desc(2, 2, 3, 4, 2)
    case = drawn_case(desc, seed=3)
    huge = Case(desc, None, case.arrays | {"SequenceLengthsTensor": np.full((1, 1, 1, 2), 2, np.uint32)})
    ready = Ready(device, case)
    two_floats = tensor(1, 1, 1, 2)
    copy = vkdml.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(InputTensor=two_floats, OutputTensor=two_floats)
    table = table_of(device, copy, [device.upload(np.full(2, 1e30, np.float32))], [ready.buffers["SequenceLengthsTensor"]])
    ready.recorder = recorded(device, table, ready.table)
    ready.buffers["SequenceLengthsTensor"].write(np.full(2, 99, np.uint32))
    check(huge, ready.results())


@pytest.mark.family("each way with each equation and memory", first=2)
@pytest.mark.parametrize("way", [
    ((5, 3, 6, 9), "stepped"), ((5, 3, 6, 9), "projected"), ((5, 3, 6, 9), "stepped, fused"), ((1, 1, 64, 64), "default"),
    ((1, 1, 64, 64), "stepped")])
@pytest.mark.parametrize("linear_before_reset", [False, True])
def test_a_call_is_one_submission(device, way, linear_before_reset):
    """However many dispatches it takes."""
    sizes, schedule = way
    case = drawn_case(gru_desc(*sizes, LinearBeforeReset=linear_before_reset), seed=6)
    ready = Ready(device, case, options(device, schedule))
    check(case, ready.results())
    submissions, dispatches = ready.recorder.counts
    assert (submissions, dispatches) == (1, len(ready.compiled.plan.execute))


def test_many_bindings_make_one_pipeline(device, case):
    ready = Ready(device, case)
    ready.recorder.execute()
    made = device.gpu.pipelines_made
    for _ in range(5):
        check(case, run_on_device(device, case))
    assert device.gpu.pipelines_made == made


# Executions in the background


def test_execute_async(device, case):
    ready = Ready(device, case)
    executions = [ready.recorder.execute_async() for _ in range(3)]
    for execution in executions:
        execution.wait()
        assert execution.done()
    check(case, {field: buffer.download(ready.compiled.problem.tensor(field).sizes) for field, buffer in ready.outputs.items()})


def test_waiting_for_an_execution_ends_in_time_and_may_go_on(device, case):
    ready = Ready(device, case)
    with device.lock:  # so that it cannot begin
        execution = ready.recorder.execute_async()
        assert not execution.done()
        with pytest.raises(TimeoutError, match="has not ended within 0.01 s"):
            execution.wait(0.01)
    execution.wait(60)
    assert execution.done()


def test_an_execution_in_the_background_raises_when_it_is_waited_for(device, case):
    ready = Ready(device, case)
    ready.buffers["SequenceLengthsTensor"].upload(np.array([5, 6, 0], np.uint32))
    execution = ready.recorder.execute_async()
    with pytest.raises(vkdml.InvalidArgumentError, match="sequence length of row 1: found 6"):
        execution.wait()


def test_devices_do_not_mix(device, case):
    """Objects of another device are refused; kp would crash."""
    ready = Ready(device, case)
    other = low_level.Gpu(device.info)
    recorder = vkdml.CommandRecorder(other, device.share)
    for wrong in (lambda: recorder.record_upload(ready.outputs["OutputSingleTensor"]),
                  lambda: recorder.record_readback(ready.outputs["OutputSingleTensor"]),
                  lambda: recorder.record_dispatch(ready.compiled, ready.table),
                  lambda: ready.table.bind_inputs([Buffer(other, 360), *ready.inputs()[1:]])):
        with pytest.raises(vkdml.InvalidArgumentError, match="the (recorder|operator)'s device"):
            wrong()
    check(case, ready.results())


def test_a_device_with_too_few_storage_buffers_is_told_so(device, case, monkeypatch):
    """A tensor that is left out takes one too."""
    operator = device.create_operator(case.desc)
    monkeypatch.setattr(device.gpu, "info", replace(device.info, max_storage_buffers=6))
    with pytest.raises(vkdml.InvalidArgumentError, match="gru.*: found [78] storage buffers; expected at most 6 on "):
        device.compile_operator(operator)
