"""What is spelled as in C: Microsoft's first sample line by line, counts beside lists, and methods' names in C++."""

import numpy as np
import pytest

import vkdml as v


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
    for name in ("MakeResident", "create_operators", "_Name"):
        with pytest.raises(AttributeError, match=f"^Device has no attribute '{name}'$"):
            getattr(device, name)
