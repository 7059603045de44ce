"""Persistent resources that something else is written to, by mistake or not: no execution takes that for packed weights."""

import gc
import weakref

import numpy as np
import pytest

import vkdml as v
from tests.engine.ready import SIZES, Bound, bind, recorded, table_of
from vkdml.operators import reference
from vkdml.operators.problem import from_desc
from vkdml_lab.suite.support import Case, check, gru_desc, random_arrays, tensor


def writing(device, buffer):
    """A table of a dispatch that fills a buffer with ones."""
    described = tensor(buffer.size_in_bytes // 4)
    one = v.DML_ACTIVATION_LINEAR_OPERATOR_DESC(described, described, 0, 1)
    return table_of(device, one, [device.create_buffer(buffer.size_in_bytes)], [buffer])


@pytest.fixture
def initialized(device):
    """An operator whose weights an initializer has packed in a resource."""
    operator = Bound(device, is_owned=True)
    operator.resource = operator.make_resource(device)
    operator.initializing.bind_outputs([operator.resource])
    operator.table.bind_persistent_resource(operator.resource)
    recorded(device, operator.initializing).execute()
    return operator


def test_what_was_initialized_is_overwritten_between_executions(device, initialized):
    recorder = recorded(device, initialized.table)
    recorder.execute()
    initialized.check()
    initialized.resource.upload(np.ones(4, np.float32))
    with pytest.raises(v.InvalidArgumentError, match="execute: found an operator that is not initialized"):
        recorder.execute()
    recorded(device, initialized.initializing).execute()
    recorder.execute()
    initialized.check()


def test_an_execution_that_is_refused_before_any_work_leaves_what_was_initialized(device, initialized):
    recorder = recorded(device, initialized.initializing, initialized.table)
    recorder.execute()
    lengths = initialized.table.parts[0].bound["SequenceLengthsTensor"].buffer
    right = lengths.read((SIZES[1],), np.uint32)
    lengths.upload(np.full(SIZES[1], SIZES[0] + 1, np.uint32))
    with pytest.raises(v.InvalidArgumentError, match="sequence length of row 0: found 6"):
        recorder.execute()
    lengths.upload(right)
    recorded(device, initialized.table).execute()
    initialized.check()


def test_what_was_initialized_is_overwritten_in_the_same_recorder(device, initialized):
    other = writing(device, initialized.resource)
    for before in ([other], [initialized.initializing, other]):
        with pytest.raises(v.InvalidArgumentError, match="the persistent resource: found memory that something recorded before writes"):
            recorded(device, *before, initialized.table)
    recorder = recorded(device, initialized.initializing, initialized.table, other)
    for _ in range(2):
        recorder.execute()
        initialized.check()
    with pytest.raises(v.InvalidArgumentError, match="record_dispatch: found an operator that is not initialized"):
        recorded(device, initialized.table)
    recorded(device, other, initialized.initializing, initialized.table).execute()
    initialized.check()


def test_a_recorder_that_refused_a_dispatch_is_as_before(device, initialized):
    """What it needs is not what the refused one would need."""
    recorder = recorded(device, writing(device, initialized.resource))
    with pytest.raises(v.InvalidArgumentError, match="memory that something recorded before writes"):
        recorder.record_dispatch(initialized.compiled, initialized.table)
    for _ in range(2):
        recorder.execute()


@pytest.fixture
def without_gc():
    """What is gone is gone at once, not only when Python looks for objects that hold each other."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("verify", [0, 1])
@pytest.mark.parametrize("is_owned", [False, True])
def test_resources_in_turn_take_no_more_memory_than_one(device, without_gc, is_owned, verify):
    """Of the operator, which lives on, and its initializer."""
    checking = v.Device(verify=verify)
    operator, used = Bound(checking, is_owned=is_owned), []
    for _ in range(100):
        resource = operator.make_resource(checking)
        operator.initializing.bind_outputs([resource])
        operator.table.bind_persistent_resource(resource)
        recorded(checking, operator.initializing, operator.table).execute()
        used.append(device.gpu.memory.used)
        gone = weakref.ref(resource)
        operator.initializing.bind_outputs([])
        operator.table.bind_persistent_resource(None)
        del resource
        assert gone() is None
    assert set(used) == {used[0]}
    operator.check()


def test_what_is_known_of_a_resource_lives_as_long_as_it(device, initialized):
    """All that was bound and recorded is gone, and the same part of the buffer is bound again."""
    initialized.initializing.reset(initialized.initializer)
    initialized.table.bind_persistent_resource(None)
    with pytest.raises(v.InvalidArgumentError, match="not initialized; expected its initializer recorded first, with the persistent"):
        recorded(device, initialized.table)
    initialized.table.bind_persistent_resource(v.DML_BUFFER_BINDING(initialized.resource))
    for _ in range(2):
        recorded(device, initialized.table).execute()
        initialized.check()


def test_packed_once_for_all_recorders_of_a_resource(device):
    """What one has packed another need not pack again."""
    operator = Bound(device)
    resource = operator.make_resource(device)
    packed = []
    for _ in range(2):
        operator.table.bind_persistent_resource(resource)
        recorder = recorded(device, operator.table)
        due, _ = recorder._commands._due()
        packed.append(due)
        recorder.execute()
        operator.check()
        operator.table.bind_persistent_resource(None)
        del recorder
    assert packed == [(True,), (False,)]


@pytest.mark.parametrize("has_host_memory", [True, False])
@pytest.mark.parametrize("is_owned", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, pytest.param((2, 1, 2, 2), id="with gaps")])
def test_a_resource_in_a_heap_that_the_host_writes(device, monkeypatch, is_owned, has_host_memory, sizes):
    """And uploads: weights stay packed where it writes beside them, and are packed again or refused where it writes to them."""
    monkeypatch.setattr(device.gpu, "host_memory", has_host_memory and device.gpu.host_memory)
    operator = Bound(device, is_owned=is_owned, sizes=sizes)
    size = operator.compiled.get_binding_properties().PersistentResourceSize
    heap = device.create_buffer(256 + size)
    resource = v.DML_BUFFER_BINDING(heap, 256, size)
    operator.initializing.bind_outputs([resource])
    operator.table.bind_persistent_resource(resource)
    recorded(device, operator.initializing).execute()
    recorder = device.create_command_recorder()
    recorder.record_upload(heap)
    recorder.record_dispatch(operator.compiled, operator.table)
    for value in range(3):
        heap.write(np.full(64, value, np.float32))
        recorder.execute()
        operator.check()
    assert recorder._commands._due()[0] == (() if is_owned else (False,))
    heap.write(np.ones(4, np.float32), 256)
    if is_owned:
        with pytest.raises(v.InvalidArgumentError, match="an operator that is not initialized"):
            recorder.execute()
    else:
        recorder.execute()
        operator.check()


def test_an_initializer_of_several_packs_into_anothers_weights(device):
    operators = [Bound(device, is_owned=True) for _ in range(2)]
    resources = [operator.make_resource(device) for operator in operators]
    bindings = [operator.inputs(device, is_initializing=True) for operator in operators]
    bindings[1][1] = resources[0]
    table = bind(device, device.create_operator_initializer([operator.compiled for operator in operators]),
                 [v.DML_BUFFER_ARRAY_BINDING(Bindings=inputs) for inputs in bindings], resources)
    with pytest.raises(v.InvalidArgumentError, match="persistent resource of another operator: found memory of WeightTensor too"):
        recorded(device, table)


def test_weights_that_a_plan_which_may_give_up_computes(device):
    """It runs as a call, which is known to write them."""
    left_out = dict.fromkeys(("OutputSingleTensor", "SequenceLengthsTensor", "HiddenInitTensor", "BiasTensor"))
    descs = [gru_desc(24, 1, 6, 8, **left_out), gru_desc(3, 2, 8, 8, **left_out)]
    arrays = [random_arrays(desc, np.random.default_rng(0)) for desc in descs]
    operators = [device.compile_operator(device.create_operator(desc), options=options)
                 for desc, options in zip(descs, (v.Options(schedule="persistent"), v.Options()))]
    assert operators[0].plan.timed_out
    bound = [{field: device.upload(array) for field, array in given.items()} for given in arrays]
    bound[1]["WeightTensor"], y = device.create_buffer(24 * 8 * 4), device.create_buffer(3 * 2 * 8 * 4)
    tables = [bind(device, operator, [buffers.get(field) for field in operator.input_fields], [output, None])
              for operator, buffers, output in zip(operators, bound, (bound[1]["WeightTensor"], y))]
    both, second = recorded(device, *tables), recorded(device, tables[1])
    for seed in range(2):
        changed = random_arrays(descs[0], np.random.default_rng(seed))["InputTensor"]
        bound[0]["InputTensor"].upload(changed)
        h = reference.run(from_desc(descs[0]), arrays[0] | {"InputTensor": changed})["OutputSequenceTensor"]
        case = Case(descs[1], None, arrays[1] | {"WeightTensor": h.reshape(1, 1, 24, 8).astype(np.float32)})
        for recorder in (both, second):
            recorder.execute()
            check(case, {"OutputSequenceTensor": y.download((3, 1, 2, 8))})


def test_stamps_while_another_thread_writes(device):
    """To another part of the buffer, when the parts are compared."""
    buffer = device.create_buffer(1024)

    class Place(int):
        def __lt__(self, other):
            buffer._mark_written(0, 4)
            return int(self) < other

    buffer._mark_written(Place(512), 4)
    before = buffer._stamp_of(256, 4)
    assert before < buffer._stamp_of(512, 4) < buffer._stamp_of(0, 4)
    assert buffer._stamp_of(256, 4) == before
