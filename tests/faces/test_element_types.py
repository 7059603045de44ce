"""Element types through the numpy functions and ONNX nodes, and views that need no copy."""

import numpy as np
import pytest
from onnx import helper

import vkdml
from tests.faces.support import B, H, I, T, arrays, check
from vkdml.onnx import run_node
from vkdml.operators import arguments, cells, element_types, problem, reference
from vkdml_lab.suite.support import DTYPES, gru_desc, tensor

pytestmark = pytest.mark.device

NAMES = [element.name for element in element_types.ALL]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("function", "gates"), [("gru", 3), ("lstm", 4), ("rnn", 1)])
def test_numpy_functions(name, function, gates):
    given = arrays(name, gates, 2) | {"direction": "bidirectional", "sequence_lens": np.array([5, 0, 3])}
    check(getattr(vkdml, function)(**given), getattr(reference, function)(**given), name)


@pytest.mark.parametrize("name", NAMES)
def test_onnx_nodes(name):
    node = helper.make_node("LSTM", ["X", "W", "R", "B", "", "h"], ["Y", "", "Y_c"], hidden_size=H)
    given = arrays(name, 4)
    results = run_node(node, list(given.values()))
    expected = reference.lstm(**given)
    check(results, [expected[0], expected[2]], name)


@pytest.mark.parametrize(("opset", "allowed"), [(7, "float32 or float16 or float64"), (14, "float32 or float16 or float64")])
def test_bfloat16_came_with_version_22(opset, allowed):
    node = helper.make_node("GRU", ["X", "W", "R"], ["Y"])
    given = arrays("bfloat16")
    with pytest.raises(vkdml.InvalidArgumentError, match=f"X: found bfloat16; expected {allowed}"):
        run_node(node, [given["x"], given["w"], given["r"]], opset_version=opset)


def test_narrower_arrays_are_taken_with_a_wider_x():
    given = arrays("float32")
    given["w"] = given["w"].astype(np.float16)
    given["initial_h"] = given["initial_h"].astype(DTYPES["bfloat16"])
    check(vkdml.gru(**given), reference.gru(**given), "float32")


def test_16_bit_results_are_rounded_once():
    """A long sum carried in float16 would be off by its own rounding; the last rounding alone is left."""
    given = arrays("float16")
    given["x"] = np.tile(given["x"], (40, 1, 1))
    result, expected = vkdml.gru(**given)[0], reference.gru(**given)[0]
    half_a_unit = np.spacing(np.abs(expected).astype(np.float16)).astype(np.float64) / 2
    assert (np.abs(result.astype(np.float64) - expected) <= 1.01 * half_a_unit + 1e-6).all()


@pytest.mark.parametrize("data_type", [vkdml.DML_TENSOR_DATA_TYPE.FLOAT64, vkdml.DML_TENSOR_DATA_TYPE.UNKNOWN])
def test_directml_has_two_types(device, data_type):
    with pytest.raises(vkdml.InvalidArgumentError, match="InputTensor.DataType: found .*; expected FLOAT32 or FLOAT16"):
        device.create_operator(gru_desc(InputTensor=tensor(1, 3, 2, 4, data_type=data_type)))


def test_tensors_of_16_bits():
    half = vkdml.DML_TENSOR_DATA_TYPE.FLOAT16
    checked = problem.from_desc(gru_desc(3, 3, 3, 5, data_type=half))
    assert checked.tensor("InputTensor").size_in_bytes == 56  # 27 elements, rounded up to 4 bytes
    with pytest.raises(vkdml.InvalidArgumentError, match="GuaranteedBaseOffsetAlignment: found 1; expected 0 or a power of two, at least the element's 2"):
        problem.from_desc(gru_desc(InputTensor=tensor(1, 3, 2, 4, data_type=half, GuaranteedBaseOffsetAlignment=1)))


# Views, and whether their memory goes to the device as it lies
VIEWS = {
    "batch first": (lambda x: np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2), True),
    "columns": (np.asfortranarray, True),
    "a part of the inputs": (lambda x: np.concatenate([x, x[:, :, :2]], 2)[:, :, :-2], True),
    "every second row": (lambda x: np.repeat(x, 2, 1)[:, ::2], True),
    "broadcast": (lambda x: np.broadcast_to(x[:1], x.shape), True),
    "windows": (lambda x: np.lib.stride_tricks.sliding_window_view(np.arange(float(T + B * I), dtype=x.dtype), B * I)[:T].reshape(x.shape), True),
    "backward": (lambda x: x[::-1], False),
    "one in four": (lambda x: np.repeat(x, 4, 2)[:, :, ::4], False),
    "a field of records": (lambda x: np.array([(value, 0) for value in x.flat], [("x", x.dtype), ("tag", "i1")])["x"].reshape(x.shape), False),
    "another byte order": (lambda x: x.astype(x.dtype.newbyteorder()), False),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["float32", "float16", "float64"])
def test_views(name, view):
    make, as_it_lies = VIEWS[view]
    given = arrays(name)
    given["x"] = make(given["x"])
    given["w"] = np.ascontiguousarray(given["w"].transpose(0, 2, 1)).transpose(0, 2, 1)
    converted = arguments.convert("gru", cells.GRU, {"InputTensor": given["x"], "WeightTensor": given["w"], "RecurrenceTensor": given["r"]})[0]
    assert np.shares_memory(converted["InputTensor"], given["x"]) == as_it_lies
    assert np.shares_memory(converted["WeightTensor"], given["w"])
    check(vkdml.gru(**given), reference.gru(**given), name)


def test_views_of_lengths():
    given = arrays("float32") | {"sequence_lens": np.array([9, 5, 9, 0, 9, 3])[:0:-2]}
    check(vkdml.gru(**given), reference.gru(**given), "float32")
