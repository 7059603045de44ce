"""Weights that are bound at execution are packed when they have changed, and only then."""

import numpy as np
import pytest

import vkdml
from tests.engine.ready import Ready
from vkdml.engine.vulkan import gpu as low_level
from vkdml.operators import reference
from vkdml_lab.suite.support import ATOL, RTOL, Case, check, gru_desc, make_outputs, random_arrays, read_output, tensor

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

    def part(self, number, field):
        return vkdml.DML_BUFFER_BINDING(self.buffer, self.places[number, field])

    def bind(self, ready, number, fields=None):
        """The weights of this set, or only some, in a ready operator's table."""
        fields = ready.compiled.weight_fields if fields is None else fields
        ready.table.bind_inputs([self.part(number, field) if field in fields else ready.buffers.get(field)
                                 for field in ready.compiled.input_fields])


def recorder_of(device, ready):
    recorder = device.create_command_recorder()
    recorder.record_dispatch(ready.compiled, ready.table)
    return recorder


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
        recorders.append(recorder_of(device, ready))
    for number in ORDER:
        ready.recorder = recorders[number]
        check(sets[number], ready.results())


@pytest.mark.parametrize("field", ["WeightTensor", "RecurrenceTensor", "BiasTensor"])
def test_one_of_the_weights_at_several_places(device, case, sets, field):
    ready, heap = Ready(device, case), Heap(device, case, sets)
    for number in ORDER:
        heap.bind(ready, number, [field])
        ready.recorder = recorder_of(device, ready)
        check(Case(case.desc, None, case.arrays | {field: sets[number].arrays[field]}), ready.results())


def test_weights_at_several_places_in_one_recording(device, case, sets):
    ready, heap, outputs = Ready(device, case), Heap(device, case, sets), []
    recorder = device.create_command_recorder()
    for number in ORDER:
        outputs.append(make_outputs(device, ready.compiled))
        heap.bind(ready, number)
        ready.table.bind_outputs(list(outputs[-1].values()))
        recorder.record_dispatch(ready.compiled, ready.table)
    for _ in range(2):
        recorder.execute()
        for number, made in zip(ORDER, outputs):
            check(sets[number], {field: read_output(ready.compiled, field, buffer) for field, buffer in made.items()})


def test_weights_that_change_places(device):
    """WeightTensor is bound where RecurrenceTensor was, and the other way round: of one size, in one buffer."""
    desc = gru_desc(5, 3, 9, 9)
    case = Case(desc, None, random_arrays(desc, np.random.default_rng(0)))
    swapped = {"WeightTensor": "RecurrenceTensor", "RecurrenceTensor": "WeightTensor"}
    other = Case(desc, None, case.arrays | {field: case.arrays[swap] for field, swap in swapped.items()})
    ready, heap = Ready(device, case), Heap(device, case, [case])
    heap.bind(ready, 0)
    recorders = [recorder_of(device, ready)]
    ready.table.bind_inputs([heap.part(0, swapped.get(field, field)) if field in ready.compiled.weight_fields else
                             ready.buffers.get(field) for field in ready.compiled.input_fields])
    recorders.append(recorder_of(device, ready))
    for recorder, now in [*zip(recorders, (case, other))] * 2:
        ready.recorder = recorder
        check(now, ready.results())


def test_weights_of_a_graph_at_several_places(device, case, sets):
    """Of its two nodes, which are one operator, each with its own; then the other way round, of the same compiled graph."""
    nodes = [vkdml.DML_OPERATOR_GRAPH_NODE_DESC(device.create_operator(case.desc))] * 2
    fields = Ready(device, case).compiled.input_fields
    graph = device.compile_graph(vkdml.DML_GRAPH_DESC(
        InputCount=2 * len(fields), OutputCount=2, Nodes=nodes, NodeCount=2,
        InputEdges=[vkdml.DML_INPUT_GRAPH_EDGE_DESC(node * len(fields) + place, node, place)
                    for node in range(2) for place in range(len(fields))],
        OutputEdges=[vkdml.DML_OUTPUT_GRAPH_EDGE_DESC(node, 0, node) for node in range(2)]))
    heap = Heap(device, case, sets)
    given = {field: device.upload(array) for field, array in case.arrays.items()}
    outputs = [device.create_buffer(graph.problem.tensor(field).size_in_bytes) for field in graph.output_fields]
    table, recorders = device.create_binding_table(graph), {}
    for numbers in ((0, 1), (1, 0), (2, 2)):
        table.bind_inputs([heap.part(number, field) if (number, field) in heap.places else given[field]
                           for number in numbers for field in fields])
        table.bind_outputs(outputs)
        recorders[numbers] = device.create_command_recorder()
        recorders[numbers].record_dispatch(graph, table)
    for numbers in [*recorders, *recorders]:
        recorders[numbers].execute()
        for number, output in zip(numbers, outputs):
            sequence = reference.run(case.problem, sets[number].arrays)["OutputSequenceTensor"]
            np.testing.assert_allclose(output.download(sequence.shape), sequence, rtol=RTOL, atol=ATOL)


def test_weights_at_one_place_are_packed_once(device, case, sets):
    """By whatever recorder, and although others of the buffer are written."""
    ready, heap = Ready(device, case), Heap(device, case, sets)
    heap.bind(ready, 1)
    for due in (True, False):
        ready.recorder = recorder_of(device, ready)
        assert ready.recorder._commands._due()[0] == (due,)
        check(sets[1], ready.results())
        heap.buffer.upload(np.ones(4, np.float32))
    assert ready.recorder._commands._due()[0] == (False,)
