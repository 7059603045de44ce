"""The table of activations: complete, and its rows agree with the descriptors."""

import copy
import pickle
from dataclasses import fields

import numpy as np
import pytest

import vkdml
from vkdml.operators import cells
from vkdml.operators.activations import BY_DESC, BY_ONNX_NAME, BY_TYPE, ParametrizedActivation, from_onnx
from vkdml.operators.header import descs


def test_every_descriptor_has_its_row():
    structures = {value for name, value in vars(descs).items() if name.startswith("DML_ACTIVATION_")}
    assert set(BY_DESC) == structures
    assert len(structures) == 19


@pytest.mark.parametrize("row", BY_TYPE.values(), ids=lambda row: row.operator_type.name)
def test_row(row):
    assert row.desc.__name__ == f"DML_{row.operator_type.name}_OPERATOR_DESC"
    assert row.fields == tuple(field.name for field in fields(row.desc))[2:]
    assert [other.shader_id for other in BY_TYPE.values()].count(row.shader_id) == 1
    assert len(row.onnx_defaults) <= len(row.fields)


@pytest.mark.parametrize("row", [*BY_TYPE.values(), *cells.BY_DESC.values()], ids=lambda row: row.desc.__name__)
def test_a_row_stays_itself_when_it_is_pickled(row):
    assert pickle.loads(pickle.dumps(row)) is row
    assert copy.deepcopy(row) is row


# Values worked out by hand from the formulas in DirectML's and ONNX's texts
@pytest.mark.parametrize(("name", "params", "x", "expected"), [
    ("ELU", (2.0,), -1.0, 2 * (np.exp(-1) - 1)),
    ("CELU", (2.0,), -1.0, 2 * (np.exp(-0.5) - 1)),
    ("HARD_SIGMOID", (0.2, 0.5), 1.0, 0.7),
    ("IDENTITY", (), -3.0, -3.0),
    ("LEAKY_RELU", (0.1,), -2.0, -0.2),
    ("LINEAR", (2.0, 1.0), 3.0, 7.0),
    ("PARAMETRIC_SOFTPLUS", (2.0, 3.0), 0.5, 2 * np.log(1 + np.exp(1.5))),
    ("RELU", (), -1.0, 0.0),
    ("SCALED_ELU", (2.0, 3.0), -1.0, 6 * (np.exp(-1) - 1)),
    ("SCALED_TANH", (2.0, 0.5), 1.0, 2 * np.tanh(0.5)),
    ("SHRINK", (0.25, 1.0), 2.0, 1.75),
    ("SHRINK", (0.25, 1.0), -2.0, -1.75),
    ("SHRINK", (0.25, 1.0), 0.5, 0.0),
    ("SIGMOID", (), 2.0, 1 / (1 + np.exp(-2))),
    ("SOFTPLUS", (2.0,), 1.0, np.log(1 + np.exp(2)) / 2),
    ("SOFTSIGN", (), -3.0, -0.75),
    ("TANH", (), 0.5, np.tanh(0.5)),
    ("THRESHOLDED_RELU", (1.0,), 1.0, 0.0),
    ("THRESHOLDED_RELU", (1.0,), 1.5, 1.5),
    ("GELU", (), 1.0, 0.8413447460685429),
    ("GELU", (), -10.0, -7.619853024160527e-23),
    ("SWISH", (2.0,), -1.5, -1.5 / (1 + np.exp(3))),
    ("HARD_SWISH", (0.25, 0.5), -1.0, -0.25),
    ("HARD_SWISH", (0.25, 0.5), 3.0, 3.0),
    ("HARD_SWISH", (0.25, 0.5), -3.0, 0.0),
])
def test_value(name, params, x, expected):
    row = BY_TYPE[vkdml.DML_OPERATOR_TYPE[f"ACTIVATION_{name}"]]
    np.testing.assert_allclose(ParametrizedActivation(row, params)(np.array([x])), [expected], rtol=1e-12)


def test_onnx_parameters_are_consumed_in_order_by_those_that_take_one():
    """What is left over is ignored, whatever it is."""
    names = ["TANH", "LeakyRelu", "hardsigmoid", "Elu"]
    expected = [descs.DML_ACTIVATION_TANH_OPERATOR_DESC(), descs.DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC(Alpha=0.25),
                descs.DML_ACTIVATION_HARD_SIGMOID_OPERATOR_DESC(Alpha=0.5, Beta=0.75), descs.DML_ACTIVATION_ELU_OPERATOR_DESC(Alpha=1.0)]
    assert from_onnx("GRU", names, [0.25, 0.5], [0.75]) == expected
    assert from_onnx("GRU", names, [0.25, 0.5, 1.0, np.nan], [0.75, 3.0]) == expected


def test_onnx_defaults():
    found = {name: from_onnx("GRU", [name], [], [])[0] for name in BY_ONNX_NAME}
    assert found["scaledtanh"] == descs.DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC(Alpha=1.0, Beta=1.0)
    assert found["thresholdedrelu"] == descs.DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC(Alpha=1.0)
    assert found["leakyrelu"] == descs.DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC(Alpha=0.01)
    assert found["hardsigmoid"] == descs.DML_ACTIVATION_HARD_SIGMOID_OPERATOR_DESC(Alpha=0.2, Beta=0.5)
    assert found["elu"] == descs.DML_ACTIVATION_ELU_OPERATOR_DESC(Alpha=1.0)
    assert found["affine"] == descs.DML_ACTIVATION_LINEAR_OPERATOR_DESC(Alpha=1.0, Beta=0.0)
    assert found["softplus"] == descs.DML_ACTIVATION_SOFTPLUS_OPERATOR_DESC(Steepness=1.0)
    assert len(found) == 11


@pytest.mark.parametrize(("names", "alphas", "field"), [
    (["Swish"], [], r"activations\[0\]"), (["LeakyRelu", "Elu"], [1.0, np.nan], r"activation_alpha\[1\]")])
def test_wrong_onnx_activations(names, alphas, field):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"GRU: {field}: found"):
        from_onnx("GRU", names, alphas, [])
