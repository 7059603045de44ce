"""Layers that hold their weights: the same results as the functions', with nothing done twice."""

import copy
import pickle
import re

import numpy as np
import pytest

import vkdml
from tests.faces.support import packed_bytes
from tests.faces.ways_in import numbers as make
from vkdml.engine import weights as weight_contents
from vkdml.engine.commands import Commands
from vkdml.operators import reference
from vkdml_lab.suite.support import ATOL, DTYPES, RTOL

pytestmark = pytest.mark.device

T, B, I, H = 5, 3, 3, 4
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
FUNCTIONS = {"GRU": reference.gru, "LSTM": reference.lstm, "RNN": reference.rnn}


def weights(name, d=1):
    gates = GATES[name]
    return {"w": make(d, gates * H, I), "r": make(d, gates * H, H), "b": make(d, 2 * gates * H)} | (
        {"p": make(d, 3 * H)} if name == "LSTM" else {})


def states(name, b=B, d=1):
    return {"initial_h": make(d, b, H)} | ({"initial_c": make(d, b, H)} if name == "LSTM" else {})


def check(results, expected):
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize(("name", "attributes"), [
    ("GRU", {"linear_before_reset": True, "direction": "bidirectional"}), ("LSTM", {"input_forget": True, "clip": 0.5}),
    ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.3], "direction": "reverse"})])
def test_shapes_may_change(name, attributes):
    d = 2 if attributes.get("direction") == "bidirectional" else 1
    given = weights(name, d)
    layer = getattr(vkdml, name)(**given, **attributes)
    for t, b in ((5, 3), (1, 1), (4, 2), (5, 3)):
        x = make(t, b, I)
        check(layer(x), FUNCTIONS[name](x, **given, **attributes))
        others = states(name, b, d) | {"sequence_lens": np.arange(b) % (t + 1)}
        check(layer(x, **others), FUNCTIONS[name](x, **given, **attributes, **others))


def test_what_is_shown():
    """In a notebook too: of an error, the caller's frames and ours that was called."""
    w, r = np.zeros((2, 12, 3), np.float16), np.zeros((2, 12, 4), np.float16)
    layer = vkdml.GRU(w, r, direction="bidirectional")
    assert repr(layer) == "<GRU: I 3, H 4, float16, bidirectional on the default device>"
    layer(np.zeros((2, 1, 3), np.float16))
    assert repr(layer) == f"<GRU: I 3, H 4, float16, bidirectional on {vkdml.Device().info.name}>"
    for wrong in (lambda: layer(np.zeros((2, 1, 4), np.float16)), lambda: vkdml.GRU(w, r), lambda: vkdml.gru(None, w, r)):
        with pytest.raises(vkdml.InvalidArgumentError) as raised:
            wrong()
        first, *frames, last = raised.value._render_traceback_()
        assert (first, last) == ("Traceback (most recent call last):", f"vkdml.InvalidArgumentError: {raised.value}")
        assert len(frames) == 3
        assert all(__file__ in frame for frame in frames[:2])


def test_weights_are_not_compared(monkeypatch):
    layer = vkdml.LSTM(**weights("LSTM"))
    layer(make(T, B, I))
    monkeypatch.setattr(weight_contents, "_words", lambda array: pytest.fail("compared"))
    layer(make(T, B, I))
    layer(make(T + 1, B, I))


@pytest.mark.parametrize(("name", "narrower"), [("float16", "float16"), ("bfloat16", "bfloat16"), ("float64", "float16"), ("float32", "float16")])
def test_types(name, narrower):
    """The type of w is the layer's. Arrays of a narrower type are converted to it."""
    given = {key: array.astype(DTYPES[narrower]) for key, array in weights("GRU").items()} | {"w": weights("GRU")["w"].astype(DTYPES[name])}
    x = make(T, B, I).astype(DTYPES[narrower])
    y, y_h = vkdml.GRU(**given)(x)
    expected = vkdml.gru(x.astype(DTYPES[name]), **given)
    assert y.dtype == y_h.dtype == DTYPES[name]
    np.testing.assert_array_equal(y.astype(np.float64), expected[0].astype(np.float64))


@pytest.mark.parametrize("layout", [0, 1])
def test_nothing_is_made_after_a_warm_up(device, layout):
    layer = vkdml.RNN(**weights("RNN"), layout=layout, device=device)
    for flags in ({}, {"initial_states": True, "sequence_lens": True}):
        layer.warm_up([1, 7], range(1, 3), **flags)
    made, packed = device.gpu.pipelines_made, packed_bytes(device)
    for t, b in ((1, 1), (1, 2), (7, 1), (7, 2)):
        x, given = make(t, b, I), states("RNN", b)
        if layout:
            x, given = x.swapaxes(0, 1).copy(), {name: array.swapaxes(0, 1).copy() for name, array in given.items()}
        for view in (x, np.asfortranarray(x), np.pad(x, ((0, 0), (0, 0), (3, 4)))[..., 3:-4], x[::-1], np.broadcast_to(x[:1], x.shape)):
            layer(view)
        layer(x, **given, sequence_lens=np.ones(b, np.int64))
    assert (device.gpu.pipelines_made, packed_bytes(device)) == (made, packed)


def test_a_warm_up_runs_what_it_compiled(device, monkeypatch, caplog):
    """Drivers may leave most of their compiling for the first dispatch. The log tells what it took in all."""
    ran, execute = [], Commands.execute
    monkeypatch.setattr(Commands, "execute", lambda commands: (ran.append(commands), execute(commands)))
    layer = vkdml.RNN(make(1, 13, I), make(1, 13, 13))  # of a size that no other test has
    layer.warm_up(20, 2)
    ran.clear()
    with caplog.at_level("INFO", "vkdml"):
        layer.warm_up(20, [1, 9, 2], sequence_lens=True)
    logged = [re.fullmatch(r"DML_RNN_OPERATOR_DESC: ([\d.]+) s in all for \d+ compiled kernels, with the first run", record.getMessage())
            for record in caplog.records if record.name == "vkdml.engine.execution"]
    assert len(ran) == len(logged) > 0
    assert all(logged)
    ran.clear()
    layer.warm_up(20, [1, 9, 2], sequence_lens=True)
    assert ran == []


@pytest.mark.parametrize("activations", [["Sigmoid", "LeakyRelu"], [vkdml.DML_ACTIVATION_SIGMOID_OPERATOR_DESC(),
                                         vkdml.DML_OPERATOR_DESC(vkdml.DML_OPERATOR_TYPE.ACTIVATION_LEAKY_RELU,
                                                                 vkdml.DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC(Alpha=0.3))]])
def test_a_layer_has_the_attributes_that_it_was_made_with(activations):
    """Whatever its maker does with the lists and descriptors, and whatever sizes come."""
    activations = copy.deepcopy(activations)
    alpha = [0.3] if activations[0] == "Sigmoid" else None
    layer, expected = (vkdml.GRU(**weights("GRU"), activations=copy.deepcopy(activations) if is_copy else activations,
                                 activation_alpha=copy.deepcopy(alpha) if is_copy else alpha) for is_copy in (False, True))
    layer(make(T, B, I))
    if alpha:
        alpha[0] = 0.9
    else:
        activations[1].Desc.Alpha = 0.9
    activations[0] = "Relu"
    for made in (layer, pickle.loads(pickle.dumps(layer))):
        for x in (make(T, B, I), make(T + 1, B, I)):
            np.testing.assert_array_equal(made(x)[0], expected(x)[0])


def test_layers_with_the_same_weights_share_them(device):
    given, x = weights("GRU"), make(T, B, I)
    first, second = vkdml.GRU(**given), vkdml.GRU(**given)
    first(x)
    made, size = device.gpu.pipelines_made, device.gpu.store.size
    second(x)
    assert (device.gpu.pipelines_made, device.gpu.store.size) == (made, size)


@pytest.mark.parametrize(("changes", "message"), [
    ({"w": None}, "GRU: W: found None; expected an array"),
    ({"w": make(3 * H, I)}, r"GRU: W: found the shape \(12, 3\); expected \[D, 3\*H, I\], .* vkdml.torch takes them"),
    ({"w": I, "r": H}, r"GRU: W: found 3, no array; expected one of float32, .*\(vkdml.torch.GRU takes sizes"),
    ({"r": np.zeros((1, 3 * H, H))}, "GRU: R: found float64; expected float32, the type of W, or one that converts to it exactly"),
    ({"b": make(1, 3 * H)}, r"GRU: B: found \(1, 12\); expected \(1, 24\)"),
    ({"direction": "bidirectional"}, "GRU: W: found .* D = 2"),
    ({"clip": -1.0}, "GRU: clip: found -1.0"),
    ({"options": {}}, "GRU: options: found dict"),
    ({"device": "none such"}, "no Vulkan device 'none such'"),
])
def test_wrong_weights_and_attributes(changes, message):
    with pytest.raises(vkdml.VkdmlError, match=message):
        vkdml.GRU(**(weights("GRU") | changes))


@pytest.mark.parametrize(("arguments", "message"), [
    ((None,), "GRU: X: found None"),
    ((np.zeros((T, B, I)),), "GRU: X: found float64; expected float32, the type of W"),
    ((make(T, B),), r"GRU: X: found the shape \(5, 3\); expected \[T, B, I\]"),
    ((make(T, B, I + 1),), r"GRU: X: found \(5, 3, 4\); expected \(5, 3, 3\)"),
    ((make(T, B, I), make(1, B + 1, H)), r"GRU: initial_h: found \(1, 4, 4\); expected \(1, 3, 4\)"),
    ((make(T, B, I), None, np.array([1, 2, 9])), "GRU: sequence length of row 2: found 9"),
])
def test_wrong_arguments_of_a_call_leave_it_usable(arguments, message):
    given = weights("GRU")
    layer = vkdml.GRU(**given)
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        layer(*arguments)
    x = make(T, B, I)
    check(layer(x), reference.gru(x, **given))


@pytest.mark.parametrize(("sizes", "message"), [
    ((0,), "GRU: warm_up: T: found 0; expected whole numbers from 1"), (([1, 2.5],), "warm_up: T: found 2.5"),
    ((1, "a"), "warm_up: B: found 'a'"), ((1, None), "warm_up: B: found None"), ((), "GRU: warm_up: T: found None")])
def test_wrong_sizes_of_a_warm_up(sizes, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        vkdml.GRU(**weights("GRU")).warm_up(*sizes)
