"""Tests activation operators that are not fused into others, through DirectML's objects."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import vkdml
from vkdml.operators import activations, element_types, plain_problem
from vkdml.operators.element_types import FLOAT64
from vkdml_lab.suite.sharpest import drawn
from vkdml_lab.suite.support import (
    DTYPES,
    FLOAT32,
    assert_close,
    assert_same,
    random_activation,
    random_numbers,
    random_strides,
    tensor,
)
from vkdml_lab.suite.test_plain import run

WORD: Any = "x"
RELU = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC


def check(device, desc, x, element, in_place=None):
    """Run an activation and check its output. x: flat, with gaps. in_place: the input's name if its buffer gets the output."""
    results = run(device, desc, {"InputTensor": x}, in_place, element)
    problem = plain_problem.elementwise(desc, element)
    with np.errstate(all="ignore"):
        expected = problem.function(problem.tensor("InputTensor").view(x.astype(np.float64)))
    assert_close("activation", element, [problem.function.activation.operator_type.name], {"OutputTensor": results}, {"OutputTensor": expected})


@pytest.mark.family("each activation in each type")
@pytest.mark.parametrize("row", activations.BY_DESC.values(), ids=lambda row: row.operator_type.name)
@pytest.mark.parametrize("element", element_types.ALL, ids=lambda element: element.name)
def test_every_activation_in_every_type(device, row, element):
    """Activations with default parameters are right for usual, huge and special inputs, or refused in float64."""
    if element.pairs and not row.has_pairs:
        with pytest.raises(vkdml.InvalidArgumentError, match="found float64; expected another type"):
            plain_problem.elementwise(row.desc(tensor(3, data_type=element.data_type), tensor(3, data_type=element.data_type)), element)
        return
    x = np.concatenate([np.linspace(-12, 12, 331), np.geomspace(1e-4, 1e4, 40), -np.geomspace(1e-4, 1e4, 40),
                        [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(DTYPES[element.name])
    described = tensor(x.size, data_type=element.data_type)
    check(device, row.desc(described, described), x, element)


@drawn("random shapes, layouts and parameters", 60)
def test_random_activation(device, seed):
    """Activations are right with 1 to 8 dimensions, any strides and any parameters."""
    rng = random_numbers(seed)
    element = element_types.ALL[seed % len(element_types.ALL)]
    sizes = tuple(int(size) for size in rng.integers(1, 5, seed % 8 + 1))
    activation = random_activation(rng, element)
    source, target = (tensor(*sizes, data_type=element.data_type, Strides=random_strides(rng, sizes, is_input) if rng.random() < 0.7 else None)
                      for is_input in (True, False))
    parameters = {field.name: getattr(activation, field.name) for field in fields(activation)[2:]}
    desc = type(activation)(source, target, **parameters)
    count = plain_problem.elementwise(desc, element).tensor("InputTensor").size_of_elements
    check(device, desc, (rng.standard_normal(count) * 3).astype(DTYPES[element.name]), element)


@pytest.mark.parametrize("element", element_types.IN_DIRECTML, ids=lambda element: element.name)
def test_in_place(device, element):
    described = tensor(3, 5, data_type=element.data_type, Strides=(7, 1))
    desc = vkdml.DML_ACTIVATION_ELU_OPERATOR_DESC(described, described)
    check(device, desc, np.linspace(-2, 2, 19).astype(DTYPES[element.name]), element, in_place="InputTensor")


def test_life_cycle_as_of_any_operator(device):
    """An activation can be made from a DML_OPERATOR_DESC, initialized (to no effect), and run twice in one recording."""
    desc = vkdml.DML_OPERATOR_DESC(vkdml.DML_OPERATOR_TYPE.ACTIVATION_RELU, RELU(tensor(4), tensor(4)))
    compiled = device.compile_operator(device.create_operator(desc))
    initializer = device.create_operator_initializer(compiled)
    recorder = device.create_command_recorder()
    table = device.create_binding_table(initializer)
    recorder.record_dispatch(initializer, table)
    x, y = device.upload(np.array([-1, 2, -3, 4], np.float32)), device.create_buffer(16)
    for source, target in ((x, y), (y, x)):
        table.reset(compiled)
        table.bind_inputs([source])
        table.bind_outputs([target])
        recorder.record_dispatch(compiled, table)
    recorder.execute()
    assert_same({"OutputTensor": x.download((4,))}, {"OutputTensor": np.array([0, 2, 0, 4], np.float32)})


@pytest.mark.parametrize(("desc", "message"), [
    (RELU(), "InputTensor: found NoneType; expected DML_TENSOR_DESC"),
    (RELU(tensor(3), None), "OutputTensor: found NoneType"),
    (RELU(tensor(3), tensor(4)), r"OutputTensor.Sizes: found \(4,\); expected \(3,\), as InputTensor has"),
    (RELU(tensor(*[1] * 9), tensor(*[1] * 9)), "InputTensor.DimensionCount: found 9; expected 1 to 8"),
    (RELU(tensor(), tensor()), "InputTensor.DimensionCount: found 0"),
    (RELU(tensor(3, data_type=FLOAT64.data_type), tensor(3)), "InputTensor.DataType: found DML_TENSOR_DATA_TYPE.FLOAT64; expected FLOAT32 or FLOAT16"),
    (RELU(tensor(3), tensor(3, data_type=vkdml.DML_TENSOR_DATA_TYPE.FLOAT16)), "OutputTensor.DataType: found DML_TENSOR_DATA_TYPE.FLOAT16; expected FLOAT32"),
    (RELU(tensor(3), tensor(3, Strides=(0,))), "OutputTensor.Strides: found .* its own place"),
    (vkdml.DML_ACTIVATION_SOFTPLUS_OPERATOR_DESC(tensor(3), tensor(3), Steepness=0), "Steepness: found 0; expected a number other"),
    (vkdml.DML_ACTIVATION_ELU_OPERATOR_DESC(tensor(3), tensor(3), Alpha=WORD), "DESC: Alpha: found 'x'; expected a finite float32"),
])
def test_wrong_descriptors(device, desc, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        device.create_operator(desc)


def test_a_clip_is_not_for_activations(device):
    with pytest.raises(vkdml.InvalidArgumentError, match="clip: found 1.0"):
        device.create_operator(RELU(tensor(3), tensor(3)), clip=1.0)


def test_data_types_by_number(device):
    assert device.create_operator(RELU(tensor(3, data_type=1), tensor(3))).problem.tensor("InputTensor").data_type is FLOAT32
