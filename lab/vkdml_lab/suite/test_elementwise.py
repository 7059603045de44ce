"""The activation operators standing alone, through DirectML's life cycle."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import vkdml
from vkdml.faces.directml.compiled_operator import Operator
from vkdml.operators import activations, element_types, plain_problem
from vkdml.operators.element_types import FLOAT64
from vkdml_lab.suite import recording
from vkdml_lab.suite.guards import guarded
from vkdml_lab.suite.support import (
    DTYPES,
    FLOAT32,
    assert_close,
    assert_same,
    random_activation,
    random_numbers,
    random_strides,
    read_output,
    tensor,
)

WORD: Any = "x"
RELU = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC


def run(device, desc, x, element=element_types.FLOAT32, in_place=False):
    """x: flat, elements and gaps. The output in its sizes; its gaps, and what is behind the buffers, are checked."""
    with guarded() as guards:
        results = run_unguarded(device, desc, x, element, in_place)
        guards.check()
    recording.RUNNING.can_run_again(lambda: {"OutputTensor": run(device, desc, x, element, in_place)})
    return results


def run_unguarded(device, desc, x, element, in_place):
    compiled = device.compile_operator(Operator(plain_problem.elementwise(desc, element)))
    dtype = DTYPES[element.name]
    source = device.upload(x)
    described = compiled.problem.tensor("OutputTensor")
    target = source if in_place else device.upload(np.full(described.size_in_bytes // dtype.itemsize, np.nan, dtype))
    table = device.create_binding_table(compiled)
    table.bind_inputs([source])
    table.bind_outputs([target])
    recorder = device.create_command_recorder()
    recorder.record_dispatch(compiled, table)
    recorder.execute()
    return described.view(target.download((described.size_of_elements,), dtype)) if in_place else read_output(
        compiled, "OutputTensor", target)


def check(desc, x, results, element=element_types.FLOAT32):
    problem = plain_problem.elementwise(desc, element)
    with np.errstate(all="ignore"):
        expected = problem.function(problem.tensor("InputTensor").view(x.astype(np.float64)))
    assert_close("activation", element, [problem.function.activation.operator_type.name], {"OutputTensor": results}, {"OutputTensor": expected})


@pytest.mark.family("each activation in each type")
@pytest.mark.parametrize("row", activations.BY_DESC.values(), ids=lambda row: row.operator_type.name)
@pytest.mark.parametrize("element", element_types.ALL, ids=lambda element: element.name)
def test_every_activation_in_every_type(device, row, element):
    """With DirectML's default parameters, on usual, huge and special values."""
    if element.pairs and not row.has_pairs:
        with pytest.raises(vkdml.InvalidArgumentError, match="found float64; expected another type"):
            plain_problem.elementwise(row.desc(tensor(3, data_type=element.data_type), tensor(3, data_type=element.data_type)), element)
        return
    x = np.concatenate([np.linspace(-12, 12, 331), np.geomspace(1e-4, 1e4, 40), -np.geomspace(1e-4, 1e4, 40),
                        [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(DTYPES[element.name])
    described = tensor(x.size, data_type=element.data_type)
    desc = row.desc(described, described)
    check(desc, x, run(device, desc, x, element), element)


@pytest.mark.family("random shapes, layouts and parameters", first=16)
@pytest.mark.parametrize("seed", range(60))
def test_random(device, seed):
    """1 to 8 dimensions, any strides, odd sizes, any parameters."""
    rng = random_numbers(seed)
    element = element_types.ALL[seed % len(element_types.ALL)]
    sizes = tuple(int(size) for size in rng.integers(1, 5, seed % 8 + 1))
    activation = random_activation(rng, element)
    source, target = (tensor(*sizes, data_type=element.data_type, Strides=random_strides(rng, sizes, is_input) if rng.random() < 0.7 else None)
                      for is_input in (True, False))
    parameters = {field.name: getattr(activation, field.name) for field in fields(activation)[2:]}
    desc = type(activation)(source, target, **parameters)
    count = plain_problem.elementwise(desc, element).tensor("InputTensor").size_of_elements
    x = (rng.standard_normal(count) * 3).astype(DTYPES[element.name])
    check(desc, x, run(device, desc, x, element), element)


@pytest.mark.parametrize("element", element_types.IN_DIRECTML, ids=lambda element: element.name)
def test_in_place(device, element):
    described = tensor(3, 5, data_type=element.data_type, Strides=(7, 1))
    desc = vkdml.DML_ACTIVATION_ELU_OPERATOR_DESC(described, described)
    x = np.linspace(-2, 2, 19).astype(DTYPES[element.name])
    check(desc, x, run(device, desc, x, element, in_place=True), element)


def test_in_place_needs_one_layout(device):
    compiled = device.compile_operator(device.create_operator(RELU(tensor(2, 3), tensor(2, 3, Strides=(1, 2)))))
    buffer = device.create_buffer(24)
    table = device.create_binding_table(compiled)
    table.bind_inputs([buffer])
    table.bind_outputs([buffer])
    with pytest.raises(vkdml.InvalidArgumentError, match="OutputTensor: found memory of InputTensor too"):
        device.create_command_recorder().record_dispatch(compiled, table)


def test_more_elements_than_workgroups(device):
    """A dispatch has at most 65,535 workgroups; the rest is looped over."""
    x = np.linspace(-1, 1, 65535 * 64 + 77, dtype=np.float32)
    desc = RELU(tensor(x.size), tensor(x.size))
    assert_same({"OutputTensor": run(device, desc, x)}, {"OutputTensor": np.maximum(x, 0)})


def test_life_cycle_as_of_any_operator(device):
    """Typed desc, an initializer that has nothing to do, and an activation after a recurrent operator in one recording."""
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
    (RELU(tensor(*[1] * 9), tensor(*[1] * 9)), "InputTensor.DimensionCount: found 9 with 9 sizes; expected 1 to 8"),
    (RELU(tensor(), tensor()), "InputTensor.DimensionCount: found 0"),
    (RELU(tensor(3, data_type=FLOAT64.data_type), tensor(3)), "InputTensor.DataType: found FLOAT64; expected FLOAT32 or FLOAT16"),
    (RELU(tensor(3), tensor(3, data_type=vkdml.DML_TENSOR_DATA_TYPE.FLOAT16)), "OutputTensor.DataType: found FLOAT16; expected FLOAT32"),
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
    """As C has them."""
    assert device.create_operator(RELU(tensor(3, data_type=1), tensor(3))).problem.tensor("InputTensor").data_type is FLOAT32
