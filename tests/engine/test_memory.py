"""A budget of the device's memory: what is said before anything is made, what is dropped, and what is refused."""

import gc
import re
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import vkdml
from tests.engine.ready import bind, recorded, table_of
from vkdml.engine import compiled as compiled_operators
from vkdml.engine.execution import Execution, Node, Place
from vkdml.engine.trust.trial import Run, Trial
from vkdml.engine.vulkan.memory import DeviceMemory
from vkdml.engine.vulkan.store import Lease, Memory, Store
from vkdml.operators.problem import from_desc
from vkdml.planning.tiling import GATES
from vkdml_lab.suite.devices import GPU
from vkdml_lab.suite.support import execute, gru_desc, initialize, make_outputs, random_arrays, tensor

MIB = 2**20


@pytest.fixture
def budget(device):
    """The device's memory, with nothing kept at first, and the limit of before in the end."""
    kept, found, limit = device.cache_limit, device.gpu.memory, device.memory_limit
    device.cache_limit = 0
    device.cache_limit = kept
    gc.collect()
    yield found
    device.memory_limit = limit


@contextmanager
def room(device, budget, size):
    """For so many bytes more."""
    limit, device.memory_limit = device.memory_limit, budget.used + size
    try:
        yield
    finally:
        device.memory_limit = limit


# The budget

class Thing:
    """That takes memory."""


def test_what_only_a_circle_holds_is_looked_for_before_a_refusal():
    budget = Memory(GPU, Store(0))
    thing = Thing()
    thing.itself = thing
    budget.take(thing, 100)
    budget.limit = 100
    del thing
    gc.disable()
    try:
        assert budget.used == 100
        budget.expect_more(50)
        assert budget.used == 0
    finally:
        gc.enable()


def test_the_least_recently_used_memory_is_dropped_and_nothing_else():
    store = Store(1000)
    budget = Memory(GPU, store)
    lease = Lease(store, lambda: pytest.fail("it has a lease"))

    def make(size):
        thing = Thing()
        budget.take(thing, size)
        return thing

    store.get(("pipeline",), Thing, 500)
    for name, of in (("leased", lease), ("first", None), ("second", None)):
        store.get((name,), lambda: make(10), 10, of, is_memory=True)
    assert (store.memory, budget.used) == (30, 30)
    budget.limit = 35
    budget.free(10, lease)
    assert [key for key, in store._entries] == ["pipeline", "leased", "second"]
    budget.free(100, lease)
    assert [key for key, in store._entries] == ["pipeline", "leased"]


@pytest.mark.parametrize(("text", "limit"), [("", 800), ("1000", 1000), ("0", 0)])
def test_the_limit_of_the_environment(monkeypatch, text, limit):
    monkeypatch.setenv("VKDML_MEMORY_BYTES", text)
    assert Memory(replace(GPU, memory=1000), Store(0)).limit == limit


def test_no_limit_where_the_driver_does_not_say_how_much_there_is(monkeypatch):
    monkeypatch.delenv("VKDML_MEMORY_BYTES", raising=False)
    assert Memory(replace(GPU, memory=0), Store(0)).limit > 2**60


def test_a_device_tells_its_memory(device):
    assert device.info.memory >= 2**30
    assert device.gpu.memory.limit <= device.info.memory


# Buffers

def test_buffers_are_counted_until_they_are_gone(device, memory, budget):
    before, copies = budget.used, 1 if device.gpu.host_memory else 2
    buffers = [device.create_buffer(MIB), device.upload(np.zeros(MIB, np.uint8))]
    internal = DeviceMemory(device.gpu, MIB, "own")
    assert budget.used == before + (2 * copies + 1) * MIB
    del internal
    buffers.pop()
    assert budget.used == before + copies * MIB
    array = buffers.pop().host()
    assert budget.used == before + copies * MIB  # the array has the buffer's memory
    del array
    assert budget.used == before


def test_buffers_above_the_limit_are_refused(device, memory, budget):
    used = budget.used
    with room(device, budget, MIB - 4):
        wrong = rf"create_buffer: memory: found \d+ bytes.*; expected at most {MIB - 4} on .* less {used} in use.*VKDML_MEMORY_BYTES"
        for action in (lambda: device.create_buffer(MIB), lambda: device.upload(np.zeros(MIB, np.uint8))):
            with pytest.raises(vkdml.InvalidArgumentError, match=wrong):
                action()
        assert budget.used == used
        np.testing.assert_array_equal(device.upload(np.arange(5)).download((5,), np.int64), np.arange(5))


def test_buffers_of_the_functions_make_room_for_those_of_callers(device, budget):
    arrays = [np.zeros(shape, np.float32) for shape in ((50, 4, 64), (1, 32, 64), (1, 32, 32))]
    expected = vkdml.rnn(*arrays, device=device)
    kept = device.gpu.store.memory
    assert kept > 100_000
    with room(device, budget, 0):
        buffer = device.create_buffer(kept // device.gpu.bytes_of(1, "copied") // 4 * 4)
        assert budget.used <= device.memory_limit
        with pytest.raises(vkdml.InvalidArgumentError, match="RNN.*: memory: found"):
            vkdml.rnn(*arrays, device=device)
        del buffer
        np.testing.assert_array_equal(vkdml.rnn(*arrays, device=device)[0], expected[0])


def test_a_lower_limit_drops_what_is_kept(device, budget):
    vkdml.rnn(*(np.ones(shape, np.float32) for shape in ((5, 1, 8), (1, 4, 8), (1, 4, 4))), device=device)
    assert device.gpu.store.memory > 0
    with room(device, budget, -budget._store.memory):
        assert device.gpu.store.memory == 0


# Operators

def compiled(device, t=40, b=4, i=16, h=24, **changes):
    return device.compile_operator(device.create_operator(gru_desc(t, b, i, h, **changes)), options=vkdml.Options(fused=False)
                                   if device.info.is_cpu else vkdml.Options())


def run(device, operator, arrays):
    buffers = {field: device.upload(array) for field, array in arrays.items()}
    outputs = make_outputs(device, operator)
    initialize(device, operator, buffers)
    execute(device, operator, buffers, outputs)
    return {field: buffer.download(operator.problem.tensor(field).sizes) for field, buffer in outputs.items()}


def test_binding_properties_are_what_is_allocated(device, memory, budget):
    operator, before = compiled(device), budget.used
    properties, memory = operator.get_binding_properties(), operator.memory()
    initializer = device.create_operator_initializer(operator).get_binding_properties()
    assert budget.used == before
    run(device, operator, random_arrays(gru_desc(40, 4, 16, 24), np.random.default_rng(0)))
    gc.collect()
    temporary, persistent = sum(memory.temporary.values()), sum(memory.persistent.values())
    assert budget.used - before == temporary + persistent
    # Those of a caller's have an alignment for each part
    assert 0 < temporary <= properties.TemporaryResourceSize < temporary + 256 * len(memory.temporary)
    assert 0 < persistent <= properties.PersistentResourceSize < persistent + 256 * len(memory.persistent)
    assert properties.RequiredDescriptorCount == len(memory.rows)
    assert initializer == vkdml.DML_BINDING_PROPERTIES(0, 0, 0)
    assert operator.get_binding_properties() == properties


def test_binding_properties_of_an_initializer(device, budget):
    desc = gru_desc(40, 4, 16, 24)
    operator = compiled(device, **{field: replace(getattr(desc, field), Flags=vkdml.DML_TENSOR_FLAGS.OWNED_BY_DML)
                                   for field in ("WeightTensor", "RecurrenceTensor", "BiasTensor")})
    assert device.create_operator_initializer(operator).get_binding_properties() == vkdml.DML_BINDING_PROPERTIES(5, 0, 0)
    both = compiled(device).get_binding_properties()
    assert operator.get_binding_properties() == replace(both, RequiredDescriptorCount=both.RequiredDescriptorCount - 3)


def test_memory_of_an_activation(device):
    desc = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=tensor(1, 1, 2, 3), OutputTensor=tensor(1, 1, 2, 3))
    operator = device.compile_operator(device.create_operator(desc))
    assert operator.get_binding_properties() == vkdml.DML_BINDING_PROPERTIES(2, 0, 0)
    assert str(operator.memory()) == "tensor  InputTensor   24\ntensor  OutputTensor  24\ntotal                 48"


def test_what_is_kept_makes_room_to_try_plans_out(device, memory, budget):
    """With the host's copies of the tensors."""
    problem = from_desc(gru_desc(40, 4, 16, 24))
    plan = compiled(device).plan
    gpu = device.gpu
    needed = sum(gpu.bytes_of(problem.tensor(field).size_in_bytes, "copied") for field in (*problem.inputs, *problem.outputs)
                 if problem.has(field)) + sum(plan.buffers.values())
    lease, size = Lease(gpu.store, lambda: None), needed // 64 * 4 + 4
    for number in range(16):
        gpu.keep(("scratch", number), lambda: DeviceMemory(gpu, size, "own"), size, lease)
    with room(device, budget, 0):
        Run(Trial(gpu, problem), plan).execute()
    assert len({("scratch", number) for number in range(16)} & gpu.store._entries.keys()) < 16


def test_what_needs_nothing_more_runs_above_a_limit_that_was_lowered(device, budget):
    desc = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=tensor(1, 1, 2, 3), OutputTensor=tensor(1, 1, 2, 3))
    x, y = device.upload(np.linspace(-1, 1, 6, dtype=np.float32)), device.create_buffer(24)
    with room(device, budget, -budget.used):
        recorded(device, table_of(device, desc, [x], [y])).execute()
    assert y.download((6,)).max() == 1


def test_chunks_get_smaller_where_memory_is_short(device, memory, budget, monkeypatch):
    """Which changes no bit of a result."""
    monkeypatch.setattr(compiled_operators, "WORKSPACES", (20_000, 5_000))
    arrays = random_arrays(gru_desc(40, 4, 16, 24), np.random.default_rng(0))
    plain = compiled(device)
    expected = run(device, plain, arrays)
    inner = plain.memory()
    tensors = sum(device.gpu.bytes_of(size, "copied") for size in inner.tensors.values())
    without_gates = tensors + inner.total - sum(inner.tensors.values()) - inner.temporary[GATES]
    for gates in (20_000, 5_000):
        operator = compiled(device)
        with room(device, budget, without_gates + gates + 1000):
            results = run(device, operator, arrays)
        assert 0 < operator.memory().temporary[GATES] <= gates < inner.temporary[GATES]
        assert operator.memory().persistent == inner.persistent
        for field, result in results.items():
            np.testing.assert_array_equal(result, expected[field])


def test_an_operator_that_does_not_fit_is_refused_before_anything_is_made(device, budget):
    desc = gru_desc(40, 4, 16, 24)
    operator = compiled(device)
    buffers = {field: device.upload(array) for field, array in random_arrays(desc, np.random.default_rng(0)).items()}
    table = bind(device, operator, [buffers.get(field) for field in operator.input_fields], list(make_outputs(device, operator).values()))
    recorder, used = device.create_command_recorder(), budget.used
    with room(device, budget, 1000):
        with pytest.raises(vkdml.InvalidArgumentError, match=r"GRU.*memory: found \d+ bytes \(.*packed.*expected at most 1000 on"):
            recorder.record_dispatch(operator, table)
        assert budget.used == used
    recorder.record_dispatch(operator, table)
    recorder.execute()


# Networks

WAYS = {"rnn": (1, {"direction": "bidirectional"}), "lstm": (4, {"layout": 1}), "gru": (3, {})}


def call(device, name, t=100, b=3, i=20, h=16, seed=0):
    gates, attributes = WAYS[name]
    d = 2 if "direction" in attributes else 1
    rng = np.random.default_rng(seed)
    shape = (b, t, i) if "layout" in attributes else (t, b, i)
    arrays = [rng.standard_normal(of, np.float32) * np.float32(0.3) for of in (shape, (d, gates * h, i), (d, gates * h, h))]
    options = vkdml.Options(fused=False) if device.info.is_cpu else vkdml.Options()
    return getattr(vkdml, name)(*arrays, **attributes, device=device, options=options)


def outcomes(device, budget, monkeypatch, name, **sizes):
    """Of calls with more and more room: refused before anything is made, or the bound on chunks of one that gave the same bits.
    The last needs none.
    """
    monkeypatch.setattr(compiled_operators, "WORKSPACES", (20_000, 5_000))
    workspaces, choose = [], compiled_operators.Compiled.choose
    monkeypatch.setattr(compiled_operators.Compiled, "choose", lambda operator, workspace_bytes=None: (
        workspaces.append(workspace_bytes), choose(operator, workspace_bytes))[1])
    expected = call(device, name, **sizes)
    for size in range(0, 2**21, 2**16):
        device.memory_limit = 0  # drops what is kept
        device.memory_limit = budget.used + size
        before = budget.used
        try:
            results = call(device, name, **sizes)
        except vkdml.InvalidArgumentError as error:
            assert budget.used == before
            asked, left = (int(number) for number in re.search(r"found (\d+) bytes.*at most (\d+)", str(error)).groups())
            assert asked > left == size
            yield "refused"
        else:
            assert budget.used <= device.memory_limit
            for result, wanted in zip(results, expected, strict=True):
                np.testing.assert_array_equal(result, wanted)
            yield str(workspaces[-1])
            if workspaces[-1] is None:
                return


ORDER = ["refused", "5000", "20000", "None"]


@pytest.mark.family("cells and kinds of memory", first=2)
@pytest.mark.parametrize("name", WAYS)
def test_calls_within_any_limit_give_the_same_bits_or_are_refused(device, memory, budget, monkeypatch, name):
    found = list(outcomes(device, budget, monkeypatch, name))
    assert found == sorted(found, key=ORDER.index)
    assert (found[0], found[-1]) == ("refused", "None")
    assert found[-2] in ("5000", "20000")


@pytest.mark.thorough
def test_limits_on_a_device_whose_plans_are_timed(tuned, trusted, budget, monkeypatch):
    found = list(outcomes(tuned, budget, monkeypatch, "gru", t=61))  # which was not compiled for the device as it is
    assert found == sorted(found, key=ORDER.index)
    assert (found[0], found[-1]) == ("refused", "None")


def test_after_a_refusal_a_stream_goes_on_where_it_was(device, budget):
    layer = vkdml.GRU(*(np.full(shape, 0.1, np.float32) for shape in ((1, 48, 8), (1, 48, 16))), device=device)
    x = np.random.default_rng(0).standard_normal((120, 1, 8), np.float32)
    stream = layer.stream()
    steps = [stream.step(x[:1]), stream.step(x[1:4])]
    with room(device, budget, -budget._store.memory), pytest.raises(vkdml.InvalidArgumentError, match="memory: found"):
        stream.step(x[4:])
    np.testing.assert_allclose(np.concatenate([*steps, stream.step(x[4:])]), layer(x)[0][:, 0], atol=1e-6)


def test_changed_weights_take_the_place_of_those_before(device, budget):
    x, w, r = (np.full(shape, 0.1, np.float32) for shape in ((5, 1, 8), (1, 48, 8), (1, 48, 16)))
    first = vkdml.gru(x, w, r, device=device)[0]
    with room(device, budget, 0):
        assert np.abs(vkdml.gru(x, w * 2, r, device=device)[0] - first).max() > 0.01
        np.testing.assert_array_equal(vkdml.gru(x, w, r, device=device)[0], first)
        assert budget.used <= device.memory_limit


@pytest.mark.parametrize("fails", [1, 2])
def test_the_store_makes_room_where_the_driver_has_no_memory_left(device, monkeypatch, fails):
    """Others have what the limit counts on. The second time in a row it is an error."""
    x, w, r = np.ones((2, 1, 3), np.float32), np.full((1, 5, 3), 0.1, np.float32), np.full((1, 5, 5), 0.1, np.float32)
    expected = vkdml.rnn(x, w, r)[0]
    calls, make = [], device.gpu.make_tensor

    def failing(*arguments):
        calls.append(device.gpu.store.memory)
        if len(calls) <= fails:
            raise vkdml.OutOfMemoryError("made up")
        return make(*arguments)

    device.gpu.store.drop_memory(lambda: not any(key[0] == "packed weights" for key in device.gpu.store._entries))
    monkeypatch.setattr(device.gpu, "make_tensor", failing)
    if fails == 1:
        np.testing.assert_array_equal(vkdml.rnn(x, w, r)[0], expected)
        assert calls[1] == 0 < calls[0]
    else:
        with pytest.raises(vkdml.OutOfMemoryError, match="made up"):
            vkdml.rnn(x, w * 2, r)
    np.testing.assert_array_equal(vkdml.rnn(x, w, r)[0], expected)


@pytest.mark.parametrize(("largest", "size"), [(0, 2**16), (2**17, 2**16), (2**16, 50_000)])
def test_no_buffer_is_rounded_up_beyond_what_the_driver_allocates(device, monkeypatch, largest, size):
    monkeypatch.setattr(device.gpu, "info", replace(device.info, max_allocation=largest))
    desc = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(tensor(12_500), tensor(12_500))
    node = Node(device.create_operator(desc).problem, {"InputTensor": "x", "OutputTensor": "y"})
    execution = Execution(device.gpu, device.share, [node], ["y"])
    assert set(execution._placed().tensors[0].values()) == {Place(size, "direct", 1), Place(size, "copied", 1)}
