"""DxDispatch's models with operators that have no time loop: each with all of its fields, and a whole model of them."""

import numpy as np
import pytest

import vkdml
from lab.tests.dxdispatch.support import one_operator, zeros
from vkdml_lab.fuzz.json_models import array_resource

RNG = np.random.default_rng(0)
X, Y, BIAS = (RNG.standard_normal(sizes).astype(np.float32) for sizes in ((3, 4), (4, 2), (2,)))
ROWS = np.array([2, -1, 0], np.int32)


def described(*sizes, data_type="FLOAT32", **fields):
    return {"DataType": data_type, "Sizes": list(sizes)} | fields


# Type, fields, resources by what they are bound to, and the output
OPERATORS = [
    ("DML_OPERATOR_GEMM", {
        "ATensor": described(3, 4), "BTensor": described(4, 2), "CTensor": described(3, 2, Strides=[0, 1]), "OutputTensor": described(3, 2),
        "TransA": "DML_MATRIX_TRANSFORM_NONE", "TransB": "NONE", "Alpha": 0.5, "Beta": 2, "FusedActivation": {"Type": "ACTIVATION_RELU"}},
     {"ATensor": X, "BTensor": Y, "CTensor": BIAS}, np.maximum(0.5 * (X @ Y) + 2 * BIAS, 0)),
    ("GEMM", {
        "ATensor": described(3, 4), "BTensor": described(3, 4), "CTensor": None, "OutputTensor": described(4, 4), "TransA": "TRANSPOSE",
        "TransB": "NONE", "Alpha": 1, "Beta": 0, "FusedActivation": None}, {"ATensor": X, "BTensor": X}, X.T @ X),
    ("ELEMENT_WISE_ADD1", {
        "ATensor": described(3, 4), "BTensor": described(3, 4), "OutputTensor": described(3, 4),
        "FusedActivation": {"Type": "DML_OPERATOR_ACTIVATION_LINEAR", "Desc": {"Alpha": 2, "Beta": 1}}},
     {"ATensor": X, "BTensor": -3 * X}, -4 * X + 1),
    ("ELEMENT_WISE_SUBTRACT", {"ATensor": described(3, 4), "BTensor": described(3, 4, Strides=[0, 0]), "OutputTensor": described(3, 4)},
     {"ATensor": X, "BTensor": BIAS}, X - BIAS[0]),
    ("ELEMENT_WISE_IDENTITY", {"InputTensor": described(3, 4), "OutputTensor": described(3, 4), "ScaleBias": {"Scale": 3, "Bias": -1}},
     {"InputTensor": X}, 3 * X - 1),
    ("DML_OPERATOR_SLICE", {
        "InputTensor": described(3, 4), "OutputTensor": described(2, 2), "DimensionCount": 2, "Offsets": [1, 0], "Sizes": [2, 2],
        "Strides": [1, 3]}, {"InputTensor": X}, X[1:, ::3]),
    ("SLICE1", {
        "InputTensor": described(3, 4), "OutputTensor": described(3, 2), "InputWindowOffsets": [0, 0], "InputWindowSizes": [3, 4],
        "InputWindowStrides": [-1, 2]}, {"InputTensor": X}, X[::-1, ::2]),
    ("GATHER", {
        "InputTensor": described(3, 4), "IndicesTensor": described(1, 3, data_type="INT32"), "OutputTensor": described(3, 4), "Axis": 0,
        "IndexDimensions": 1}, {"InputTensor": X, "IndicesTensor": ROWS}, X[ROWS]),
]


@pytest.mark.parametrize(("kind", "desc", "arrays", "expected"), OPERATORS, ids=[kind for kind, *_ in OPERATORS])
def test_all_fields(run_model, kind, desc, arrays, expected):
    resources = {field: array_resource(array) for field, array in arrays.items()} | {"OutputTensor": zeros(expected.size)}
    _, printed = run_model(one_operator({"type": kind, "desc": desc}, resources, printed=["OutputTensor"]))
    np.testing.assert_allclose(printed.values, expected.reshape(-1), rtol=1e-5, atol=1e-6)


def joined(bindings):
    desc = {"InputCount": 2, "InputTensors": [described(2, data_type="INT64"), described(3, data_type="INT64")],
            "OutputTensor": described(5, data_type="INT64"), "Axis": 0}
    resources = {name: array_resource(np.array(values)) for name, values in {"a": [1, 2**62], "b": [-3, 4, 5]}.items()}
    return one_operator({"type": "JOIN", "desc": desc}, resources | {"y": zeros(5, "INT64")},
                        {"InputTensors": bindings, "OutputTensor": "y"}, ["y"])


def test_a_list_of_tensors_is_bound_to_a_list(run_model):
    _, printed = run_model(joined(["a", {"name": "b"}]))
    assert printed.values == [1, 2**62, -3, 4, 5]


@pytest.mark.parametrize(("bindings", "message"), [
    (["a"], r'bindings.InputTensors: found \["a"\]; expected a list of 2'), ("a", 'InputTensors: found "a"; expected a list of 2'),
    (["b", "a"], r"bindings.InputTensors\[1\]: found 16 bytes of a; expected 24 bytes or more")])
def test_wrong_lists(load_model, bindings, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        load_model(joined(bindings))


@pytest.mark.parametrize(("place", "change", "message"), [
    ("Alpha", None, "desc.Alpha: found None; expected a finite float32"), ("TransA", "SIDEWAYS", 'desc.TransA: found "SIDEWAYS"; expected one'),
    ("BTensor", described(5, 2), r"desc.BTensor.Sizes: found \(5, 2\); expected \(4, 2\)"),
    ("Gamma", 1, "desc.Gamma: found an unknown member")])
def test_wrong_fields(load_model, place, change, message):
    kind, desc, arrays, _ = OPERATORS[0]
    resources = {field: array_resource(array) for field, array in arrays.items()} | {"OutputTensor": zeros(6)}
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        load_model(one_operator({"type": kind, "desc": desc | {place: change}}, resources))
