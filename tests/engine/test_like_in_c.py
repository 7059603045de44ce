"""What is spelled as in C: Microsoft's first sample line by line, counts beside lists, methods' names in C++, and names of objects."""

import numpy as np
import pytest

import vkdml as v
from vkdml_lab.suite.support import gru_desc, tensor


def relu(device):
    tensor = v.DML_BUFFER_TENSOR_DESC(DataType=v.DML_TENSOR_DATA_TYPE_FLOAT32, Sizes=[4])
    return device.compile_operator(device.create_operator(v.DML_ACTIVATION_RELU_OPERATOR_DESC(tensor, tensor)))


def test_hello_directml(device):
    """Structures made empty and filled, tables by their descriptions, counts, and memory that the caller binds."""
    sizes = [1, 2, 3, 4]
    buffer_desc = v.DML_BUFFER_TENSOR_DESC()
    buffer_desc.DataType = v.DML_TENSOR_DATA_TYPE_FLOAT32
    buffer_desc.Flags = v.DML_TENSOR_FLAG_NONE
    buffer_desc.DimensionCount = len(sizes)
    buffer_desc.Sizes = sizes
    buffer_desc.Strides = None
    buffer_desc.TotalTensorSizeInBytes = v.DMLCalcBufferTensorSize(
        buffer_desc.DataType, buffer_desc.DimensionCount, buffer_desc.Sizes, buffer_desc.Strides)
    tensor_desc = v.DML_TENSOR_DESC()
    tensor_desc.Type = v.DML_TENSOR_TYPE_BUFFER
    tensor_desc.Desc = buffer_desc
    identity_desc = v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC()
    identity_desc.InputTensor = tensor_desc
    identity_desc.OutputTensor = tensor_desc
    operator_desc = v.DML_OPERATOR_DESC()
    operator_desc.Type = v.DML_OPERATOR_ELEMENT_WISE_IDENTITY
    operator_desc.Desc = identity_desc
    compiled = device.compile_operator(device.create_operator(operator_desc), v.DML_EXECUTION_FLAG_NONE)
    initializer = device.create_operator_initializer(1, [compiled])
    properties = compiled.get_binding_properties()
    table_desc = v.DML_BINDING_TABLE_DESC()
    table_desc.Dispatchable = initializer
    table_desc.CPUDescriptorHandle = table_desc.GPUDescriptorHandle = object()
    table_desc.SizeInDescriptors = max(initializer.get_binding_properties().RequiredDescriptorCount,
                                       properties.RequiredDescriptorCount)
    table = device.create_binding_table(table_desc)
    recorder = device.create_command_recorder()
    recorder.record_dispatch(initializer, table)
    table_desc.Dispatchable = compiled
    table.reset(table_desc)
    x = np.arange(24, dtype=np.float32)
    source, target = device.upload(x), device.create_buffer(96)
    for bind, buffer in ((table.bind_inputs, source), (table.bind_outputs, target)):
        bind(1, [v.DML_BINDING_DESC(v.DML_BINDING_TYPE_BUFFER, v.DML_BUFFER_BINDING(buffer, 0, 96))])
    recorder.record_dispatch(compiled, table)
    recorder.execute()
    np.testing.assert_array_equal(target.download((24,)), x)
    operator_desc.Desc = identity_desc.InputTensor = buffer_desc.Sizes = None  # an operator has what it was made of
    assert compiled.problem.tensor("InputTensor").sizes == (1, 2, 3, 4)


def test_wrong_counts_and_descriptors(device):
    compiled = relu(device)
    needed = compiled.get_binding_properties().RequiredDescriptorCount
    table = device.create_binding_table(compiled)
    for call, name, found in (
            (lambda: table.bind_inputs(2, [None]), "bind_inputs: count", "2 with a list; expected 1, the list's length"),
            (lambda: table.bind_outputs(1, None), "bind_outputs: count", "1 with a NoneType; expected a list behind it"),
            (lambda: device.create_operator_initializer(1, compiled), "create_operator_initializer: count", "1 with a CompiledOperator"),
            (lambda: device.create_operator_initializer(compiled).reset(0, [compiled]), "reset: count", "0 with a list"),
            (lambda: device.create_binding_table(v.DML_BINDING_TABLE_DESC()), "create_binding_table: dispatchable", "NoneType"),
            (lambda: table.reset(v.DML_BINDING_TABLE_DESC(compiled, SizeInDescriptors=needed - 1)),
             "DML_BINDING_TABLE_DESC: SizeInDescriptors", f"{needed - 1}; expected {needed} or more"),
            (lambda: table.reset(v.DML_BINDING_TABLE_DESC(compiled, SizeInDescriptors="all")),
             "DML_BINDING_TABLE_DESC: SizeInDescriptors", "")):
        with pytest.raises(v.InvalidArgumentError, match=f"^{name}: found {found}"):
            call()
    with pytest.raises(TypeError):
        table.bind_inputs(1, [None], None)


def test_the_spelling_of_c_is_told(device):
    compiled, table = relu(device), device.create_binding_table(relu(device))
    for thing, name, here in ((device, "CreateOperator", "create_operator"), (device, "GetDeviceRemovedReason", "get_device_removed_reason"),
                              (compiled, "GetBindingProperties", "get_binding_properties"), (table, "BindInputs", "bind_inputs"),
                              (table, "Reset", "reset"), (compiled, "SetName", "set_name"),
                              (device.create_operator_initializer(compiled), "Reset", "reset"),
                              (device.create_command_recorder(), "RecordDispatch", "record_dispatch")):
        with pytest.raises(AttributeError, match=f"^{type(thing).__name__} has no attribute '{name}'; here it is {here}$"):
            getattr(thing, name)
    for thing, name, hint in ((device, "MakeResident", "; it has cache_limit, .*, upload, verify"), (device, "create_operators", ""), (device, "_Name", ""),
                              (device.create_command_recorder(), "Close", "; it has .*execute, execute_async, .*record_upload, .*")):
        with pytest.raises(AttributeError, match=f"^{type(thing).__name__} has no attribute '{name}'{hint}$"):
            getattr(thing, name)


# Names and repr

@pytest.fixture
def named_relu(device):
    described = tensor(3)
    return device.create_operator(v.DML_ACTIVATION_RELU_OPERATOR_DESC(described, described))


def test_errors_tell_an_operators_name(device, named_relu):
    named_relu.set_name("output")
    assert named_relu.name == "output"
    compiled = device.compile_operator(named_relu)
    with pytest.raises(v.InvalidArgumentError, match="^DML_ACTIVATION_RELU_OPERATOR_DESC 'output': bind_inputs: found 2"):
        device.create_binding_table(compiled).bind_inputs([None, None])
    compiled.set_name("last")
    with pytest.raises(v.InvalidArgumentError, match="^DML_ACTIVATION_RELU_OPERATOR_DESC 'last': "):
        device.create_binding_table(compiled).bind_inputs([None, None])
    compiled.set_name("")
    with pytest.raises(v.InvalidArgumentError, match="^DML_ACTIVATION_RELU_OPERATOR_DESC: "):
        device.create_binding_table(compiled).bind_inputs([None, None])


def test_a_named_operator_is_planned_as_any_other(device):
    plain, named = (device.create_operator(gru_desc()) for _ in range(2))
    named.set_name("encoder")
    assert device.compile_operator(named).plan.execute == device.compile_operator(plain).plan.execute


def test_repr_tells_the_name_and_the_device(device, named_relu):
    on, structure = f"on {device.info.name}", "DML_ACTIVATION_RELU_OPERATOR_DESC"
    compiled = device.compile_operator(named_relu)
    compiled.set_name("last")
    of_compiled = f"<CompiledOperator 'last' of {structure} {on}>"
    recorder = device.create_command_recorder()
    recorder.set_name("loop")
    assert [repr(thing) for thing in (
        named_relu, compiled, device.create_operator_initializer(compiled), device.create_binding_table(compiled), recorder,
        device.create_buffer(16), v.Device())] == [
        f"<Operator of {structure}>", of_compiled, f"<OperatorInitializer of {of_compiled}>", f"<BindingTable of {of_compiled}>",
        f"<CommandRecorder 'loop' {on}>", f"<Buffer of 16 bytes {on}>", f"<Device {on}>"]


def test_a_name_is_a_string(named_relu):
    with pytest.raises(v.InvalidArgumentError, match="set_name: name: found int; expected str"):
        named_relu.set_name(3)
