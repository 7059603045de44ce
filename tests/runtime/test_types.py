"""Element types through the numpy functions and ONNX nodes, and views that need no copy."""

import numpy as np
import onnx
import pytest
from onnx import helper

import vkdml
from tests.support import DTYPES, TOLERANCES, gru_desc, tensor
from vkdml.faces import functional
from vkdml.onnx import prepare, run_node, supports_device
from vkdml.runtime import pairs
from vkdml.runtime.recent import Recent
from vkdml.spec import arguments, cells, element_types, problem, reference

pytestmark = pytest.mark.device

T, B, I, H = 5, 3, 7, 9
NAMES = [element.name for element in element_types.ALL]


def arrays(name, gates=3, d=1):
    rng = np.random.default_rng(0)
    shapes = {"x": (T, B, I), "w": (d, gates * H, I), "r": (d, gates * H, H), "b": (d, 2 * gates * H), "initial_h": (d, B, H)}
    return {key: (rng.standard_normal(shape) * 0.4).astype(DTYPES[name]) for key, shape in shapes.items()}


def check(results, expected, name):
    rtol, atol = TOLERANCES[name]
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == DTYPES[name]
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=rtol, atol=atol)


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


@pytest.mark.parametrize(("name", "value"), [("x", 1e39), ("w", -1e300), ("initial_h", 4e38)])
def test_float64_beyond_pairs_is_refused(name, value):
    given = arrays("float64")
    given[name][0, 0, 0] = value
    argument = {"x": "X", "w": "W"}.get(name, name)
    with pytest.raises(vkdml.InvalidArgumentError, match=f"gru: {argument}: found .*; expected numbers up to 3.4e\\+38"):
        vkdml.gru(**given)


def test_float64_overflow_on_the_way_is_told():
    given = arrays("float64", 1) | {"activations": ["Relu"]}
    given["x"] = np.abs(given["x"]) * 1e30
    given["w"] = np.abs(given["w"]) * 1e30
    with pytest.raises(vkdml.InvalidArgumentError, match="rnn: Y: found numbers out of range on the way"):
        vkdml.rnn(**given)


def test_float64_keeps_what_is_not_finite():
    given = arrays("float64")
    given["x"][1, 1, 0] = np.nan
    with np.errstate(invalid="ignore"):
        check(vkdml.gru(**given), reference.gru(**given), "float64")


def test_float64_small_numbers():
    """Down to 1e-24 all digits; below, errors up to 1e-34, because a product's rest is below what a float32 can hold."""
    given = {name: np.abs(array) for name, array in arrays("float64", 1).items()} | {"activations": ["Relu"]}
    for scale, atol in ((1e-24, 0), (1e-30, 1e-34), (1e-36, 1e-34), (1e-300, 1e-34)):
        scaled = given | {name: given[name] * scale for name in ("x", "b", "initial_h")}
        for result, expected in zip(vkdml.rnn(**scaled), reference.rnn(**scaled), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-10, atol=atol)


def test_a_device_that_cannot_do_float64_says_so(device, monkeypatch):
    monkeypatch.setattr(pairs, "_checked", {device._gpu: False})
    monkeypatch.setattr(functional.shared_sessions, "_sessions", Recent(1))
    with pytest.raises(vkdml.DriverError, match="float64: .* does not keep the rounding of float32"):
        vkdml.gru(**arrays("float64"))
    vkdml.gru(**arrays("float32"))


def test_the_trial_sees_float32_arithmetic(device, monkeypatch):
    """Of a kernel whose results have only a float32's digits."""
    assert pairs._try(device._gpu)
    read = pairs.Buffer.read
    monkeypatch.setattr(pairs.Buffer, "read", lambda *arguments: read(*arguments).astype(np.float32).astype(np.float64))
    assert not pairs._try(device._gpu)


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


def test_layers_of_recurrent_nodes():
    """A model of two nodes."""
    given = arrays("float32")
    second = {name: array[:, :, :H] if name == "w" else array for name, array in arrays("float32", 4).items()}
    second["w"] = second["r"]
    nodes = [helper.make_node("GRU", ["X", "W", "R"], ["", "h"]), helper.make_node("LSTM", ["x2", "W2", "R2", "", "", "h"], ["Y"])]
    shapes = {"X": given["x"], "R": given["r"], "x2": second["initial_h"].repeat(T, 0)}
    graph = helper.make_graph(
        nodes, "layers", [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape) for name, array in shapes.items()],
        [helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, (T, 1, B, H))],
        [onnx.numpy_helper.from_array(array, name) for name, array in (("W", given["w"]), ("W2", second["w"]), ("R2", second["r"]))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    results = prepare(model).run(list(shapes.values()))
    h = reference.gru(given["x"], given["w"], given["r"])[1]
    expected = reference.lstm(shapes["x2"], second["w"], second["r"], initial_h=h.astype(np.float32))[0]
    check(results, [expected], "float32")
    with pytest.raises(vkdml.InvalidArgumentError, match="found 2 arrays; expected 3: X, R, x2"):
        prepare(model).run([1, 2])


def test_supports_device(device):
    assert supports_device("CPU")
    assert supports_device(device.info.name)
    assert not supports_device("CUDA")
