"""Streams of layers: a sequence in pieces gives what it gives as a whole, and its state is what the layer takes."""

import numpy as np
import pytest

import vkdml
from tests.faces.test_layers import GATES, B, H, I, make, states, weights
from vkdml.engine.execution import Turn
from vkdml_lab.suite.support import DTYPES, TOLERANCES, options

pytestmark = pytest.mark.device

T = 9


def whole(layer, x, **initial):
    """y [T, B, H] and the states, by name."""
    y, *last = layer(x, **initial)
    return y[:, 0], dict(zip(("initial_h", "initial_c"), last))


def check(result, expected, name="float32"):
    rtol, atol = TOLERANCES[name]
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", GATES)
def test_steps_one_by_one_and_several_at_once(name):
    layer, x = getattr(vkdml, name)(**weights(name)), make(T, B, I)
    y, last = whole(layer, x)
    stream = layer.stream(B)
    for start, end in ((0, 1), (1, 4), (4, 6), (6, 7)):
        check(stream.step(np.asfortranarray(x[start:end])), y[start:end])
    check(np.stack([stream.step(x[7]), stream.step(np.asfortranarray(x[8]))]), y[7:])
    for key, state in stream.state.items():
        check(state, last[key])


@pytest.mark.family("schedules", first=3)
@pytest.mark.parametrize("schedule", ["projected", "stepped, fused", "plain persistent", "default", "fused", "stepped"])
def test_every_schedule_can_keep_its_state_in_place(device, schedule):
    layer, x = vkdml.LSTM(**weights("LSTM"), options=options(device, schedule)), make(T, B, I)
    y, _ = whole(vkdml.LSTM(**weights("LSTM")), x)
    stream = layer.stream(B)
    check(np.concatenate([stream.step(x[:4]), stream.step(x[4:5]), stream.step(x[5:])]), y)


@pytest.mark.family("types", first=2)
@pytest.mark.parametrize("name", ["float16", "float64", "bfloat16"])
def test_types(name):
    given = {key: array.astype(DTYPES[name]) for key, array in weights("GRU").items()}
    layer, x = vkdml.GRU(**given), make(5, 1, I).astype(DTYPES[name])
    y, last = whole(layer, x)
    stream = layer.stream()
    result = np.stack([stream.step(row) for row in x])
    assert result.dtype == DTYPES[name]
    check(result, y, name)
    check(stream.state["initial_h"], last["initial_h"], name)


def test_batch_first():
    layer, x = vkdml.LSTM(**weights("LSTM"), layout=1), make(B, T, I)
    y, h, _ = layer(x)
    stream = layer.stream(B)
    check(stream.step(x[:, :4]), y[:, :4, 0])
    check(stream.step(x[:, 4]), y[:, 4, 0])
    check(stream.step(x[:, 5:]), y[:, 5:, 0])
    assert stream.state["initial_c"].shape == h.shape
    check(stream.state["initial_h"], h)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("name", GATES)
def test_one_step_reads_no_more_than_y_and_c(monkeypatch, name, layout):
    """The last h is y, which is the caller's own."""
    stream, x, sizes, view = getattr(vkdml, name)(**weights(name), layout=layout).stream(B), make(B, I), [], Turn.view
    monkeypatch.setattr(Turn, "view", lambda turn, name, shape, dtype: (
        sizes.extend([np.prod(shape)] * name.startswith("Output")), view(turn, name, shape, dtype))[1])
    for given in (x, x[None] if layout == 0 else x[:, None], np.asfortranarray(x)):
        sizes.clear()
        y = stream.step(given).reshape(B, H)
        assert sizes.count(B * H) == len(stream.state)
        expected = y.copy()
        y[...] = 7
        np.testing.assert_array_equal(stream.state["initial_h"].reshape(B, H), expected)


def test_a_state_can_be_saved_and_set():
    layer, x = vkdml.LSTM(**weights("LSTM")), make(T, B, I)
    first, second = layer.stream(B), layer.stream(B)
    first.step(x[:5])
    saved = first.state
    rest = first.step(x[5:])
    check(layer(x[5:], **saved)[0][:, 0], rest)
    second.step(x[:2])
    second.state = saved
    for name, state in second.state.items():
        np.testing.assert_array_equal(state, saved[name])
    np.testing.assert_array_equal(second.step(x[5:]), rest)
    third = {name: state.copy() for name, state in saved.items()}
    first.state = third
    third["initial_h"][...] = 7  # the caller's own: the stream has a copy
    assert not (first.state["initial_h"] == 7).any()


def test_writes_to_what_state_returns_are_refused():
    """They would change a copy, and not the stream."""
    stream = vkdml.GRU(**weights("GRU")).stream(B)
    with pytest.raises(TypeError, match="does not support item assignment"):
        stream.state["initial_h"] = np.ones((1, B, H), np.float32)
    with pytest.raises(ValueError, match="read-only"):
        stream.state["initial_h"][...] = 1


def test_reset_and_streams_side_by_side():
    layer, x = vkdml.GRU(**weights("GRU")), make(T, B, I)
    first, second = layer.stream(B), layer.stream(B)
    assert not first.state["initial_h"].any()
    y = first.step(x)
    np.testing.assert_array_equal(second.step(x), y)
    first.step(x)
    first.reset()
    assert not first.state["initial_h"].any()
    np.testing.assert_array_equal(first.step(x), y)


def test_it_goes_on_after_all_that_is_kept_was_dropped(device):
    stream, x = vkdml.GRU(**weights("GRU")).stream(B), make(T, B, I)
    other = vkdml.GRU(**weights("GRU")).stream(B)
    expected = [other.step(x[0]), other.step(x[1])]
    first = stream.step(x[0])
    limit = device.cache_limit
    try:
        device.cache_limit = 0
    finally:
        device.cache_limit = limit
    np.testing.assert_array_equal([first, stream.step(x[1])], expected)


def test_float64_out_of_range():
    layer = vkdml.RNN(*(array.astype(np.float64) for array in weights("RNN").values()), activations=["Relu"])
    stream, x = layer.stream(), np.ones((1, I))
    stream.step(x)
    before = stream.state
    with pytest.raises(vkdml.InvalidArgumentError, match="RNN.stream: X: found 1e\\+39"):
        stream.step(x * 1e39)
    np.testing.assert_array_equal(stream.state["initial_h"], before["initial_h"])
    stream.step(x * np.inf)
    stream.step(x)  # what is not finite now comes of what was not


def test_only_forward():
    for direction, d in (("reverse", 1), ("bidirectional", 2)):
        with pytest.raises(vkdml.InvalidArgumentError, match=f"GRU.stream: direction: found {direction}; expected forward"):
            vkdml.GRU(**weights("GRU", d), direction=direction).stream()


@pytest.mark.parametrize("batch", [0, 1.5, "a", None])
def test_wrong_batch(batch):
    with pytest.raises(vkdml.InvalidArgumentError, match="GRU.stream: batch: found .* expected a whole number from 1"):
        vkdml.GRU(**weights("GRU")).stream(batch)


@pytest.mark.parametrize(("x", "message"), [
    (make(B + 1, I), r"GRU.stream: X: found the shape \(4, 3\); expected \[3, 3\] or \[T, 3, 3\]"),
    (make(B, I + 1), "GRU.stream: X: found the shape"), (make(I), "GRU.stream: X: found the shape"),
    (np.zeros((0, B, I), np.float32), "GRU.stream: X: found the shape"), (None, "GRU.stream: X: found None"),
    (np.zeros((B, I)), "GRU.stream: X: found float64; expected float32, the type of W")])
def test_wrong_steps_leave_it_as_it_was(x, message):
    stream, good = vkdml.GRU(**weights("GRU")).stream(B), make(B, I)
    stream.step(good)
    state = stream.state["initial_h"]
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        stream.step(x)
    np.testing.assert_array_equal(stream.state["initial_h"], state)


@pytest.mark.parametrize(("state", "message"), [
    ({}, "LSTM.stream: state: found ; expected a dictionary with initial_h and initial_c"), (None, "state: found NoneType"),
    (states("GRU"), "state: found initial_h; expected"), (states("LSTM", B + 1), r"initial_h: found the shape \(1, 4, 4\); expected \(1, 3, 4\)"),
    (states("LSTM") | {"initial_c": None}, "initial_c: found None"), (states("LSTM") | {"initial_h": np.zeros((1, B, H))}, "initial_h: found float64")])
def test_wrong_states(state, message):
    stream = vkdml.LSTM(**weights("LSTM")).stream(B)
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        stream.state = state
