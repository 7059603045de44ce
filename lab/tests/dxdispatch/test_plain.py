"""DxDispatch's models with operators that have no time loop: each with all of its fields, and a whole model of them."""

import numpy as np
import pytest

import vkdml
from lab.tests.dxdispatch.support import one_operator, zeros
from vkdml.operators import element_types, reference
from vkdml_lab.fuzz.json_models import array_resource
from vkdml_lab.suite.support import assert_close

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


def test_a_whole_model(run_model):
    """An embedding, a bidirectional GRU, another one of its output, and a linear head."""
    t, b, v, e, h, c = 4, 2, 9, 3, 5, 2
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal(sizes).astype(np.float32) * np.float32(0.5) for name, sizes in {
        "table": (v, e), "w1": (2, 3 * h, e), "r1": (2, 3 * h, h), "w2": (1, 3 * h, 2 * h), "r2": (1, 3 * h, h), "head": (c, h),
        "bias": (c,)}.items()}
    words = rng.integers(0, v, (t, b)).astype(np.uint32)
    sequences = {"x1": t * b * e, "y1": t * 2 * b * h, "x2": t * b * 2 * h, "y2": t * b * h, "scores": t * b * c}
    resources = {name: array_resource(array) for name, array in {**arrays, "words": words}.items()}

    def gru(inputs, directions, direction):
        fused = [{"Type": "ACTIVATION_SIGMOID"}, {"Type": "ACTIVATION_TANH"}] * directions
        return {"type": "GRU", "desc": {
            "InputTensor": described(1, t, b, inputs), "WeightTensor": described(1, directions, 3 * h, inputs),
            "RecurrenceTensor": described(1, directions, 3 * h, h), "OutputSequenceTensor": described(t, directions, b, h),
            "ActivationDescs": fused, "Direction": direction, "LinearBeforeReset": True}}

    dispatchables = {
        "embedding": {"type": "GATHER", "desc": {
            "InputTensor": described(1, v, e), "IndicesTensor": described(1, t, b, data_type="UINT32"), "OutputTensor": described(t, b, e),
            "Axis": 1, "IndexDimensions": 2}},
        "first": gru(e, 2, "BIDIRECTIONAL"),
        "beside": {"type": "ELEMENT_WISE_IDENTITY", "desc": {  # {T, 2, B, H} -> {T, B, 2, H}
            "InputTensor": described(t, b, 2, h, Strides=[2 * b * h, h, b * h, 1]), "OutputTensor": described(t, b, 2, h)}},
        "second": gru(2 * h, 1, "FORWARD"),
        "head": {"type": "GEMM", "desc": {
            "ATensor": described(t * b, h), "BTensor": described(c, h), "CTensor": described(t * b, c, Strides=[0, 1]),
            "OutputTensor": described(t * b, c), "TransA": "NONE", "TransB": "TRANSPOSE", "Alpha": 1, "Beta": 1,
            "FusedActivation": {"Type": "ACTIVATION_SIGMOID"}}}}
    bindings = {
        "embedding": {"InputTensor": "table", "IndicesTensor": "words", "OutputTensor": "x1"},
        "first": {"InputTensor": "x1", "WeightTensor": "w1", "RecurrenceTensor": "r1", "OutputSequenceTensor": "y1"},
        "beside": {"InputTensor": "y1", "OutputTensor": "x2"},
        "second": {"InputTensor": "x2", "WeightTensor": "w2", "RecurrenceTensor": "r2", "OutputSequenceTensor": "y2"},
        "head": {"ATensor": "y2", "BTensor": "head", "CTensor": "bias", "OutputTensor": "scores"}}
    commands = [{"type": "dispatch", "dispatchable": name, "bindings": bound} for name, bound in bindings.items()]
    *_, printed = run_model({"resources": resources | {name: zeros(size) for name, size in sequences.items()},
                             "dispatchables": dispatchables, "commands": [*commands, {"type": "print", "resource": "scores"}]})
    y = reference.gru(arrays["table"][words], arrays["w1"], arrays["r1"], direction="bidirectional", linear_before_reset=True)[0]
    y = reference.gru(np.concatenate([y[:, 0], y[:, 1]], -1), arrays["w2"], arrays["r2"], linear_before_reset=True)[0]
    expected = 1 / (1 + np.exp(-(y.reshape(t * b, h) @ arrays["head"].T + arrays["bias"])))
    result = np.array(printed.values, np.float32).reshape(t * b, c)
    assert_close("model", element_types.FLOAT32, [], {"scores": result}, {"scores": expected})
