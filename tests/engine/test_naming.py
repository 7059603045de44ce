"""Objects' names and what repr tells."""

import pytest

import vkdml
from vkdml_lab.suite.support import gru_desc, tensor


@pytest.fixture
def relu(device):
    described = tensor(3)
    return device.create_operator(vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(described, described))


def test_errors_tell_an_operators_name(device, relu):
    relu.set_name("output")
    assert relu.name == "output"
    compiled = device.compile_operator(relu)
    with pytest.raises(vkdml.InvalidArgumentError, match="^DML_ACTIVATION_RELU_OPERATOR_DESC 'output': bind_inputs: found 2"):
        device.create_binding_table(compiled).bind_inputs([None, None])
    compiled.set_name("last")
    with pytest.raises(vkdml.InvalidArgumentError, match="^DML_ACTIVATION_RELU_OPERATOR_DESC 'last': "):
        device.create_binding_table(compiled).bind_inputs([None, None])
    compiled.set_name("")
    with pytest.raises(vkdml.InvalidArgumentError, match="^DML_ACTIVATION_RELU_OPERATOR_DESC: "):
        device.create_binding_table(compiled).bind_inputs([None, None])


def test_a_named_operator_is_planned_as_any_other(device):
    plain, named = (device.create_operator(gru_desc()) for _ in range(2))
    named.set_name("encoder")
    assert device.compile_operator(named).plan.execute == device.compile_operator(plain).plan.execute


def test_repr_tells_the_name_and_the_device(device, relu):
    on, structure = f"on {device.info.name}", "DML_ACTIVATION_RELU_OPERATOR_DESC"
    compiled = device.compile_operator(relu)
    compiled.set_name("last")
    of_compiled = f"<CompiledOperator 'last' of {structure} {on}>"
    recorder = device.create_command_recorder()
    recorder.set_name("loop")
    assert [repr(thing) for thing in (
        relu, compiled, device.create_operator_initializer(compiled), device.create_binding_table(compiled), recorder,
        device.create_buffer(16), vkdml.Device())] == [
        f"<Operator of {structure}>", of_compiled, f"<OperatorInitializer of {of_compiled}>", f"<BindingTable of {of_compiled}>",
        f"<CommandRecorder 'loop' {on}>", f"<Buffer of 16 bytes {on}>", f"<Device {on}>"]


def test_a_name_is_a_string(relu):
    with pytest.raises(vkdml.InvalidArgumentError, match="set_name: name: found int; expected str"):
        relu.set_name(3)
