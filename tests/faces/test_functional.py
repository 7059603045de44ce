"""The numpy function: ONNX's shapes and words, reuse between calls, and refusals."""

import gc

import numpy as np
import pytest

import vkdml
from tests.faces.test_layers import B, H, I, T, make, states, weights
from vkdml.faces import functional, sessions
from vkdml.operators import cells, reference
from vkdml_lab.suite.support import ATOL, RTOL

pytestmark = pytest.mark.device


@pytest.fixture
def arrays():
    return {"x": make(T, B, I), "w": make(2, 3 * H, I), "r": make(2, 3 * H, H), "b": make(2, 6 * H), "initial_h": make(2, B, H),
            "sequence_lens": np.array([5, 0, 3], np.int32)}


def one_direction(arrays):
    return {name: array[:1] if name in ("w", "r", "b", "initial_h") else array for name, array in arrays.items()}


def check(arguments):
    y, y_h = vkdml.gru(**arguments)
    expected_y, expected_y_h = reference.gru(**arguments)
    assert y.dtype == y_h.dtype == np.float32
    np.testing.assert_allclose(y, expected_y, rtol=RTOL, atol=ATOL)
    np.testing.assert_allclose(y_h, expected_y_h, rtol=RTOL, atol=ATOL)
    return y, y_h


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_one_direction(arrays, direction):
    arguments = one_direction(arrays) | {"direction": direction}
    y, y_h = check(arguments)
    assert (y.shape, y_h.shape) == ((T, 1, B, H), (1, B, H))
    check({name: arguments[name] for name in ("x", "w", "r", "direction")})


@pytest.mark.parametrize("attributes", [
    {"linear_before_reset": True, "clip": 0.3}, {"activations": [vkdml.DML_ACTIVATION_GELU_OPERATOR_DESC()] * 4},
    {"activations": ["Relu", "tanh", "HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3], "activation_beta": [0.4]},
])
def test_attributes(arrays, attributes):
    check(arrays | {"direction": "bidirectional"} | attributes)


def test_a_descriptor_that_is_filled_again_between_calls(arrays):
    leaky = vkdml.DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC()
    for leaky.Alpha in (0.3, 0.9, 0.3):
        check(one_direction(arrays) | {"activations": [vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(), leaky]})


def test_layout_1_is_the_same_batch_first(arrays):
    arguments = arrays | {"direction": "bidirectional"}
    y, y_h = check(arguments)
    batch_first = arguments | {"layout": 1, "x": arrays["x"].transpose(1, 0, 2), "initial_h": arrays["initial_h"].transpose(1, 0, 2)}
    y_1, y_h_1 = check(batch_first)
    assert y_1.shape == (B, T, 2, H)
    np.testing.assert_array_equal(y_1, y.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(y_h_1, y_h.transpose(1, 0, 2))


def test_calls_alike_share_what_is_compiled(arrays, monkeypatch):
    arguments = one_direction(arrays)
    check(arguments)
    monkeypatch.setattr(sessions.Session, "_made", lambda *arguments: pytest.fail("compiled again"))
    check(arguments | {"x": arguments["x"] * 2, "b": arguments["b"] * 2})
    for device in (vkdml.Device(), 0, vkdml.Device().info.name):
        vkdml.gru(**arguments, device=device)


def test_errors_name_the_call_at_hand(arrays):
    """Two nodes alike share a session, but not a name."""
    wrong = {"InputTensor": arrays["x"], "WeightTensor": arrays["w"][:1], "RecurrenceTensor": arrays["r"][:1],
             "SequenceLengthsTensor": np.array([9, 9, 9])}
    for name in ("first", "second"):
        with pytest.raises(vkdml.InvalidArgumentError, match=f"{name}: sequence length of row 0"):
            sessions.shared_session.run(name, sessions.Settings(name, cells.GRU, {}, (True, True), None, vkdml.Options()), wrong)


@pytest.mark.family("each direction with each layout and cell")
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", ["lstm", "rnn"])
def test_lstm_and_rnn(name, direction, layout):
    d = 2 if direction == "bidirectional" else 1
    given = weights(name.upper(), d) | states(name.upper(), d=d) | {"x": make(T, B, I)}
    if layout:
        given |= {key: given[key].transpose(1, 0, 2) for key in ("x", "initial_h", "initial_c") if key in given}
    given |= {"sequence_lens": np.array([5, 0, 2]), "direction": direction, "clip": 0.8, "layout": layout}
    for result, wanted in zip(getattr(vkdml, name)(**given), getattr(reference, name)(**given), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=RTOL, atol=ATOL)


def test_results_are_not_overwritten_by_the_next_call(arrays):
    arguments = one_direction(arrays)
    first = vkdml.gru(**arguments)[0]
    kept = first.copy()
    vkdml.gru(**(arguments | {"x": arguments["x"] + 1}))
    np.testing.assert_array_equal(first, kept)


def test_what_is_kept_is_bounded(monkeypatch):
    """Whatever the operators and the shapes; weights are kept once for all shapes of calls with them."""
    few = sessions.Session(kept=6)
    monkeypatch.setattr(functional, "shared_session", few)
    for h in range(1, 6):
        for t in range(1, 5):
            vkdml.rnn(np.zeros((t, 1, 1), np.float32), np.zeros((1, h, 1), np.float32), np.zeros((1, h, h), np.float32))
    assert [(problem.hidden, problem.steps) for problem in few.problems()] == [(4, 3), (4, 4), (5, 1), (5, 2), (5, 3), (5, 4)]
    gc.collect()
    assert len(few._contents) == 2


def test_lengths_of_one_size_class_share_pipelines(arrays, device):
    arguments = one_direction({name: array for name, array in arrays.items() if name != "sequence_lens"})
    made = []
    for t in (20, 21, 22, 23):
        check(arguments | {"x": np.resize(arrays["x"], (t, B, I))})
        made.append(device.gpu.pipelines_made)
    assert made == made[:1] * 4


class NoArray:
    """As a tensor that cannot become an array."""

    def __array__(self, *_, **__):
        raise RuntimeError("no numbers")


@pytest.mark.parametrize(("changes", "message"), [
    ({"x": None}, "vkdml.gru: X: found None"),
    ({"options": {"schedule": "stepped"}}, "vkdml.gru: options: found dict; expected vkdml.Options"),
    ({"x": NoArray()}, r"vkdml.gru: X: found NoArray \(no numbers\); expected an array"),
    ({"x": np.zeros((T, B), np.float32)}, r"vkdml.gru: X: found the shape \(5, 3\); expected \[T, B, I\], none of them 0$"),
    ({"x": np.zeros((0, B, I), np.float32)}, "vkdml.gru: X: .* none of them 0"),
    ({"w": np.zeros((1, 3 * H, I))}, "vkdml.gru: W: found float64; expected float32, the type of X, or one that converts to it exactly"),
    ({"x": np.zeros((T, B, I), np.float16)}, "vkdml.gru: W: found float32; expected float16, the type of X"),
    ({"x": np.zeros((T, B, I), np.complex64)}, "vkdml.gru: X: found complex64; expected one of float32, float16, bfloat16, float64"),
    ({"x": np.zeros((T, B, I + 1), np.float32)}, r"vkdml.gru: X: found \(5, 3, 4\); expected \(5, 3, 3\), that is \[T, B, I\]"),
    ({"w": np.zeros((1, 3 * H + 1, I), np.float32)}, r"vkdml.gru: W: found \(1, 13, 3\); expected \(1, 12, 3\), that is \[D, 3\*H, I\]"),
    ({"w": np.zeros((1, I, 3 * H), np.float32)}, r"vkdml.gru: W: found \(1, 3, 12\); expected \(1, 12, 3\)"),
    ({"r": np.zeros((1, H, 3 * H), np.float32)}, r"vkdml.gru: R: found \(1, 4, 12\); expected \(1, 12, 4\)"),
    ({"x": np.zeros((T, B, I))}, r"vkdml.gru: X: found float64; expected float32, the type of W: np.asarray\(x, 'float32'\)"),
    ({"x": [[[1.0] * I] * B]}, r"vkdml.gru: X: found float64; expected float32, the type of W: np.asarray\(x, 'float32'\)"),
    ({"r": np.zeros((3 * H, H), np.float32)}, r"vkdml.gru: R: found the shape .* expected \[D, 3\*H, H\]"),
    ({"b": np.zeros((1, 3 * H), np.float32)}, r"vkdml.gru: B: found \(1, 12\); expected \(1, 24\)"),
    ({"initial_h": np.zeros((B, 1, H), np.float32)}, "vkdml.gru: initial_h: found"),
    ({"sequence_lens": np.array([5.0, 0, 3])}, "vkdml.gru: sequence_lens: found float64; expected an integer type"),
    ({"sequence_lens": np.array([5, 0])}, r"vkdml.gru: sequence_lens: found \(2,\); expected \(3,\)"),
    ({"sequence_lens": np.array([5, 6, 3])}, "vkdml.gru: sequence length of row 1: found 6; expected 0 to T = 5"),
    ({"sequence_lens": np.array([5, 0, -1])}, "vkdml.gru: sequence length of row 2: found -1"),
    ({"direction": "backward"}, "vkdml.gru: direction: found 'backward'; expected one of forward, reverse, bidirectional"),
    ({"direction": "bidirectional"}, "vkdml.gru: W: found .* D = 2"),
    ({"layout": 2}, "vkdml.gru: layout: found 2; expected 0 or 1"),
    ({"activations": ["Tanh"]}, "vkdml.gru: activations: found .* expected a list of 2"),
    ({"activations": ["Tanh", "Cosine"]}, r"vkdml.gru: activations\[1\]: found 'Cosine'; expected one of Affine"),
    ({"activations": [vkdml.DML_ACTIVATION_ELU_OPERATOR_DESC(Alpha=np.nan)] * 2}, r"vkdml.gru: activations\[0\].Alpha: found nan"),
    ({"activations": ["Elu", "Tanh"], "activation_alpha": [np.inf]}, r"vkdml.gru: activation_alpha\[0\]: found inf"),
    ({"activations": [vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()] * 2, "activation_alpha": [1.0]}, "vkdml.gru: activation_alpha"),
    ({"x": [[1, 2], [3]]}, "vkdml.gru: X: found lists of different lengths"),
    ({"x": np.ma.masked_array(np.zeros((2, 1, 3), np.float32), [[[False, False, True]]] * 2)}, "vkdml.gru: X: found an array with masked elements"),
    ({"layout": 1.0}, "vkdml.gru: layout: found 1.0"),
    ({"clip": 10**400}, "clip: found 1000"),
    ({"device": []}, r"vkdml.gru: device: found \[\]; expected a Device"),
    ({"activation_alpha": 1.0}, "vkdml.gru: activation_alpha: found 1.0; expected a list of numbers"),
    ({"device": "none such"}, "no Vulkan device 'none such'"),
    ({"clip": -1.0}, "vkdml.gru: clip: found -1.0"),
    ({"linear_before_reset": 1.5}, "linear_before_reset: found 1.5; expected a whole number, of which 0 is false"),
])
def test_wrong_arguments(arrays, changes, message):
    arguments = one_direction(arrays)
    with pytest.raises(vkdml.VkdmlError, match=message):
        vkdml.gru(**(arguments | changes))
    check(arguments)


def test_what_onnx_runtime_ignores_is_ignored():
    """A second activation of one direction's RNN, values that no activation takes, and which number is true."""
    x, w, r = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((T, B, I), (1, H, I), (1, H, H)))
    elu = {"activations": ["Elu"], "activation_alpha": [0.5]}
    expected = vkdml.rnn(x, w, r, **elu)[0]
    for more in ({"activations": ["Elu", "Tanh"]}, {"activation_alpha": [0.5, np.nan]}, {"activation_beta": [0.0, 1.0]}):
        np.testing.assert_array_equal(vkdml.rnn(x, w, r, **elu | more)[0], expected)
        np.testing.assert_array_equal(vkdml.RNN(w, r, **elu | more)(x)[0], expected)
    w, r = np.repeat(w, 3, 1), np.repeat(r, 3, 1)
    for true in (2, -1, np.int64(3)):
        np.testing.assert_array_equal(vkdml.gru(x, w, r, linear_before_reset=true)[0], vkdml.gru(x, w, r, linear_before_reset=True)[0])


@pytest.mark.parametrize(("name", "hint"), [
    ("DML_CONVOLUTION_OPERATOR_DESC", "; it has .*DML_GEMM_OPERATOR_DESC.*DML_LSTM.*"), ("DML_OPERATOR_CONVOLUTION", "; it has .*DML_GRU_OPERATOR_DESC.*"),
    ("Gru", ""), ("DMLCreateDevice1", r"; here it is Device\(\)"), ("DML_CREATE_DEVICE_FLAG_DEBUG", r"; Device\(\) takes no flags"),
    ("DML_SIZE_2D", "; docs/faces/directml-api.md lists what is here"), ("IDMLDevice1", "; here it has no prefix.*"),
])
def test_a_name_that_is_absent(name, hint):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'{hint}$"):
        getattr(vkdml, name)
