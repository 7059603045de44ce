"""Tensors and resources in parts of buffers, initializers of several operators, and what binding refuses."""

from dataclasses import replace

import numpy as np
import pytest

import vkdml as v
from tests.engine.ready import SIZES, Bound, bind, recorded
from vkdml.engine.weights import OWNED
from vkdml.operators import cells
from vkdml.planning.device_info import laid_out
from vkdml_lab.suite.support import DTYPES, Case, check, drawn_case, make_desc, owned, random_arrays, random_case, tensor


def case_of(cell, seed=0):
    return drawn_case(make_desc(cell, *SIZES), seed=seed)


@pytest.fixture
def case():
    return case_of(cells.GRU)


def compiled_of(device, case):
    return device.compile_operator(device.create_operator(case.desc))


class Heap:
    """One buffer with a place for each tensor of an operator, poison between them."""

    def __init__(self, device, compiled, case):
        problem = compiled.problem
        fields = [field for field in (*problem.inputs, *problem.outputs) if problem.has(field)]
        self.places, size = laid_out({field: problem.tensor(field).size_in_bytes + 4 for field in fields})
        self.buffer = device.upload(np.full(size // 4, np.nan, np.float32))
        self.compiled = compiled
        for field, array in case.arrays.items():
            self.buffer.upload(array, self.places[field])

    def bindings(self, fields):
        size = {field: self.compiled.problem.tensor(field).size_in_bytes for field in self.places}
        return [v.DML_BUFFER_BINDING(self.buffer, self.places[field], size[field]) if field in self.places else None for field in fields]

    def results(self):
        sizes = {field: self.compiled.problem.tensor(field).sizes for field in self.compiled.output_fields if field in self.places}
        return {field: self.buffer.download(shape, offset=self.places[field]) for field, shape in sizes.items()}


def bound_table(device, heap):
    return bind(device, heap.compiled, heap.bindings(heap.compiled.input_fields), heap.bindings(heap.compiled.output_fields))


@pytest.mark.parametrize("cell", [cells.GRU, cells.LSTM])
def test_all_tensors_in_one_buffer(device, memory, cell):
    """What is between them stays as it is, and weights stay packed when other parts change."""
    case = case_of(cell)
    heap = Heap(device, compiled_of(device, case), case)
    before = heap.buffer.download((heap.buffer.size_in_bytes,), np.uint8)
    recorder = recorded(device, bound_table(device, heap))
    recorder.execute()
    check(case, heap.results())
    after = heap.buffer.download((heap.buffer.size_in_bytes,), np.uint8)
    for field in heap.results():
        at, size = heap.places[field], heap.compiled.problem.tensor(field).size_in_bytes
        after[at:at + size] = before[at:at + size]
    np.testing.assert_array_equal(after, before)
    other = Case(case.desc, None, case.arrays | {"InputTensor": case.arrays["InputTensor"][:, ::-1]})
    heap.buffer.upload(other.arrays["InputTensor"], heap.places["InputTensor"])
    assert recorder._commands._due()[0] == (False,)
    recorder.execute()
    check(other, heap.results())
    changed = random_arrays(case.desc, np.random.default_rng(9))["WeightTensor"]
    heap.buffer.upload(changed, heap.places["WeightTensor"])
    assert recorder._commands._due()[0] == (True,)


def resource(device, size, offset=256):
    """A caller's memory of just this size, somewhere in a buffer full of NaN."""
    buffer = device.upload(np.full((offset + size) // 4, np.nan, np.float32))
    return v.DML_BUFFER_BINDING(buffer, offset, size)


def test_resources_of_the_callers(device, memory, case):
    """Of the sizes that are reported: nothing else is made, and nothing before them is touched."""
    compiled = compiled_of(device, case)
    properties = compiled.get_binding_properties()
    heap = Heap(device, compiled, case)
    table = bound_table(device, heap)
    temporary = resource(device, properties.TemporaryResourceSize)
    persistent = resource(device, properties.PersistentResourceSize)
    table.bind_temporary_resource(temporary)
    table.bind_persistent_resource(v.DML_BINDING_DESC(v.DML_BINDING_TYPE.BUFFER, persistent))
    used = device.gpu.memory.used
    recorder = recorded(device, table)
    for _ in range(2):
        recorder.execute()
        check(case, heap.results())
    assert recorder._commands._due()[0] == (False,)
    assert device.gpu.memory.used == used
    for part in (temporary, persistent):
        assert np.isnan(part.Buffer.download((64,))).all()
        assert not np.isnan(part.Buffer.download((part.SizeInBytes // 4,), offset=256)).all()


def test_a_plan_that_may_give_up_has_its_word_beside_the_callers_resource(device, case):
    """The host looks at it after each execution."""
    compiled = device.compile_operator(device.create_operator(case.desc), options=v.Options(schedule="persistent"))
    assert compiled.plan.timed_out
    heap, properties = Heap(device, compiled, case), compiled.get_binding_properties()
    table = bound_table(device, heap)
    table.bind_temporary_resource(resource(device, properties.TemporaryResourceSize))
    recorded(device, table).execute()
    check(case, heap.results())


def test_a_resource_that_another_plan_does_not_fit(device, case):
    compiled = compiled_of(device, case)
    heap = Heap(device, compiled, case)
    table = bound_table(device, heap)
    table.bind_temporary_resource(resource(device, compiled.get_binding_properties().TemporaryResourceSize))
    table.temporary = replace(table.temporary, size_in_bytes=table.temporary.size_in_bytes - 256)
    with pytest.raises(v.InvalidArgumentError, match="a bound resource: found .* as get_binding_properties says now"):
        recorded(device, table)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(30))
def test_random_problems_in_one_buffer(device, seed):
    """Of DirectML's types, with strides and everything optional. What lies between the tensors stays as it is."""
    case = random_case(seed)
    if not case.element.in_directml or case.clip is not None:
        pytest.skip("not DirectML's")
    case = replace(case, desc=replace(case.desc, **{
        field: replace(getattr(case.desc, field), Flags=v.DML_TENSOR_FLAGS.NONE)
        for field in case.problem.weights if case.problem.has(field)}))
    compiled = compiled_of(device, case)
    heap = Heap(device, compiled, case)
    table = bound_table(device, heap)
    properties = compiled.get_binding_properties()
    table.bind_temporary_resource(resource(device, properties.TemporaryResourceSize))
    table.bind_persistent_resource(resource(device, properties.PersistentResourceSize))
    recorded(device, table).execute()
    dtype = DTYPES[case.element.name]
    check(case, {field: compiled.problem.tensor(field).view(heap.buffer.download(
        (compiled.problem.tensor(field).size_of_elements,), dtype, heap.places[field])).copy()
        for field in compiled.output_fields if field in heap.places})


@pytest.mark.parametrize("bound", [False, True], ids=["the package's own", "bound"])
def test_an_initializer_of_several_operators(device, bound):
    """Of an operator without OWNED_BY_DML weights it takes nothing."""
    operators = [Bound(device, is_owned=cell is not cells.RNN, cell=cell) for cell in (cells.GRU, cells.LSTM, cells.RNN)]
    persistent = [resource(device, operator.size) if bound else None for operator in operators]
    recorded(device, bind(device, device.create_operator_initializer([operator.compiled for operator in operators]),
                          [*(operator.weights(device) for operator in operators[:2]), None], [*persistent[:2], None])).execute()
    for operator, memory in zip(operators, persistent):
        operator.table.bind_persistent_resource(memory)
        recorded(device, operator.table).execute()
        operator.check()


def test_operators_that_are_initialized_into_the_same_memory(device):
    operators = [Bound(device, is_owned=True) for _ in range(2)]
    table = bind(device, device.create_operator_initializer([operator.compiled for operator in operators]),
                 [operator.weights(device) for operator in operators], [resource(device, operators[0].size)] * 2)
    with pytest.raises(v.InvalidArgumentError, match="the persistent resource: found memory of another operator's; expected memory of its own"):
        recorded(device, table)


def test_an_empty_list_unbinds(device):
    operator, owner = Bound(device), Bound(device, is_owned=True)
    operator.table.bind_inputs([])
    owner.initializing.bind_inputs([])
    owner.initializing.bind_outputs([])
    for table, missing in ((operator.table, "InputTensor, WeightTensor, "), (owner.initializing, "WeightTensor, RecurrenceTensor, BiasTensor")):
        with pytest.raises(v.InvalidArgumentError, match=f"record_dispatch: found no binding for {missing}"):
            recorded(device, table)
    operator.table.bind_inputs(operator.inputs(device, is_initializing=False))
    recorded(device, operator.table)


def test_an_initializer_can_be_reset(device):
    first, second = (Bound(device, is_owned=True) for _ in range(2))
    first.initializer.reset([first.compiled, second.compiled])
    recorded(device, bind(device, first.initializer, [operator.weights(device) for operator in (first, second)])).execute()
    assert [operator.compiled.weights(None).origin for operator in (first, second)] == [OWNED, OWNED]


def wrong_bindings(device, compiled, heap):
    """Each wrong use, and what its message must name."""
    buffer, table = heap.buffer, device.create_binding_table(compiled)
    others = heap.bindings(compiled.input_fields)[1:]
    size = compiled.problem.tensor("InputTensor").size_in_bytes

    def x(*binding):
        return lambda: table.bind_inputs([v.DML_BUFFER_BINDING(*binding), *others])

    def typed(kind, desc):
        return lambda: table.bind_inputs([v.DML_BINDING_DESC(kind, desc), *others])

    persistent = compiled.get_binding_properties().PersistentResourceSize
    array = v.DML_BUFFER_ARRAY_BINDING(Bindings=[None])
    initializer = device.create_operator_initializer([compiled])
    initializing = device.create_binding_table(initializer)
    return [
        (x(buffer, 8, size), "InputTensor: Offset: found 8; expected a multiple of"),
        (x(buffer, 0, size - 4), f"InputTensor: found {size - 4} bytes; expected {size} bytes or more"),
        (x(buffer, 256, buffer.size_in_bytes), f"InputTensor: found {buffer.size_in_bytes} bytes from 256 on; expected a part"),
        (x(buffer, 2**31), "InputTensor: found 0 bytes from 2147483648 on; expected a part"),
        (x(buffer, -16), "InputTensor: Offset: found"), (x(buffer, 0, "all"), "InputTensor: SizeInBytes: found"),
        (x(None), "InputTensor: found DML_BUFFER_BINDING; expected a Buffer"),
        (x(np.zeros(3)), "InputTensor: found ndarray; expected a Buffer"),
        (typed(v.DML_BINDING_TYPE.NONE, None), r"InputTensor: found DML_BINDING_DESC\(Type=.*; expected a Buffer"),
        (typed(v.DML_BINDING_TYPE.BUFFER_ARRAY, array), "InputTensor: Type: found .*; expected BUFFER or NONE"),
        (typed(v.DML_BINDING_TYPE.BUFFER, 3), "InputTensor: found int; expected a Buffer"),
        (lambda: table.bind_persistent_resource(device.create_buffer(256)), f"bind_persistent_resource: found 256 bytes; expected {persistent}"),
        (lambda: table.bind_temporary_resource(np.zeros(3)), "bind_temporary_resource: found ndarray"),
        (lambda: initializing.bind_persistent_resource(buffer), "bind_persistent_resource: found Buffer; expected None"),
        (lambda: initializing.bind_inputs([array]), "bind_inputs: found 1 bindings .BindingCount None.; expected 6 or none"),
        (lambda: initializing.bind_inputs([replace(array, BindingCount=np.zeros(2))]), "bind_inputs: found 1 bindings"),
        (lambda: initializing.bind_inputs([[None] * 6]), "bind_inputs: found list; expected a DML_BUFFER_ARRAY_BINDING"),
        (lambda: initializing.bind_inputs([None, None]), "bind_inputs: found 2 bindings; expected 1: one for each operator"),
        (lambda: initializing.bind_outputs([None] * 2), "bind_outputs: found 2 bindings; expected 1: one for each operator"),
        (lambda: device.create_operator_initializer([]), "compiled: found 0 operators; expected one at least"),
        (lambda: initializer.reset([compiled, None]), "reset: compiled: found NoneType; expected CompiledOperator"),
    ]


def test_wrong_bindings_are_refused(device, case):
    compiled = compiled_of(device, case)
    heap = Heap(device, compiled, case)
    for wrong, message in wrong_bindings(device, compiled, heap):
        with pytest.raises(v.InvalidArgumentError, match=message):
            wrong()
    recorded(device, bound_table(device, heap)).execute()
    check(case, heap.results())


def test_a_tensors_own_alignment(device):
    described = tensor(6, GuaranteedBaseOffsetAlignment=1024)
    relu = device.compile_operator(device.create_operator(v.DML_ACTIVATION_RELU_OPERATOR_DESC(described, tensor(6))))
    table, buffer = device.create_binding_table(relu), device.create_buffer(2048)
    with pytest.raises(v.InvalidArgumentError, match="Offset: found 512; expected a multiple of 1024"):
        table.bind_inputs([v.DML_BUFFER_BINDING(buffer, 512)])
    table.bind_inputs([v.DML_BUFFER_BINDING(buffer, 1024)])


@pytest.mark.parametrize("what", ["an output and an input", "an output and the temporary resource", "the resources",
                                  "an input and the persistent resource"])
def test_what_is_written_has_memory_of_its_own(device, case, what):
    compiled = compiled_of(device, case)
    heap, properties = Heap(device, compiled, case), compiled.get_binding_properties()
    table = bound_table(device, heap)
    room = device.create_buffer(8192 + properties.TemporaryResourceSize + properties.PersistentResourceSize)
    inputs, outputs = heap.bindings(compiled.input_fields), heap.bindings(compiled.output_fields)
    if what == "an output and an input":
        at = heap.places["OutputSequenceTensor"] + 256
        table.bind_inputs([v.DML_BUFFER_BINDING(heap.buffer, at), *inputs[1:]])
        found = "OutputSequenceTensor: found memory of InputTensor too"
    elif what == "an output and the temporary resource":
        table.bind_outputs([v.DML_BUFFER_BINDING(room, 256), *outputs[1:]])
        table.bind_temporary_resource(room)
        found = "OutputSequenceTensor: found memory of the temporary resource too"
    elif what == "the resources":
        table.bind_temporary_resource(room)
        table.bind_persistent_resource(v.DML_BUFFER_BINDING(room, 256))
        found = "the temporary resource: found memory of the persistent resource too"
    else:
        table.bind_inputs([v.DML_BUFFER_BINDING(room, 256), *inputs[1:]])
        table.bind_persistent_resource(room)
        found = "the persistent resource: found memory of InputTensor too"
    with pytest.raises(v.InvalidArgumentError, match=found):
        recorded(device, table)


@pytest.mark.parametrize("kind", ["bound", "owned"])
def test_executions_in_parts_of_buffers_are_checked(memory, case, kind):
    """Without the output sequence, which the check has the operator compute too."""
    checking = v.Device(verify=1)
    desc = replace(owned(case.desc) if kind == "owned" else case.desc, OutputSequenceTensor=None)
    case = Case(desc, None, case.arrays)
    compiled = compiled_of(checking, case)
    heap, properties = Heap(checking, compiled, case), compiled.get_binding_properties()
    persistent = resource(checking, properties.PersistentResourceSize)
    bindings = dict(zip(compiled.input_fields, heap.bindings(compiled.input_fields)))
    inputs, weights = ([bindings[field] if (field in compiled.problem.initialized) == is_weight else None for field in bindings]
                       for is_weight in (False, True))
    initializer = checking.create_operator_initializer([compiled])
    recorded(checking, bind(checking, initializer, [v.DML_BUFFER_ARRAY_BINDING(Bindings=weights)], [persistent])).execute()
    table = bind(checking, compiled, inputs, heap.bindings(compiled.output_fields))
    table.bind_temporary_resource(resource(checking, properties.TemporaryResourceSize))
    table.bind_persistent_resource(persistent)
    recorder = recorded(checking, table)
    recorder.execute()
    check(case, heap.results())
    compiled.weights(table.parts[0].persistent).contents["WeightTensor"] = np.zeros(4 * 27 * 6, np.uint8)
    if kind == "owned":  # the check compares with what was packed
        with pytest.raises(v.VerificationError):
            recorder.execute()
