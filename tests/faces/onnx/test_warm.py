"""What a session makes before its first run, what it shares with others, and runs in other threads."""

import threading

import numpy as np
import onnxruntime
import pytest

import vkdml
from tests.faces.onnx.support import GRU, STACK, B, H, I, T, inputs_of, model, weights
from vkdml.engine.vulkan.gpu import Submission
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

TWO_LAYERS = """g (float[T,B,5] x) => (float[T,B,128] y) {
    h0 = LSTM <hidden_size=64, direction="bidirectional"> (x, W, R, B)
    t0 = Transpose <perm=[0,2,1,3]> (h0)
    shape = Constant <value_ints=[0,0,-1]> ()
    x1 = Reshape (t0, shape)
    h1 = LSTM <hidden_size=64, direction="bidirectional"> (x1, W1, R1, B1)
    t1 = Transpose <perm=[0,2,1,3]> (h1)
    y = Reshape (t1, shape) }"""


def lstm_weights():
    rng = np.random.default_rng(0)
    shapes = {f"{name}{suffix}": shape for suffix, size in (("", 5), ("1", 128))
              for name, shape in {"W": (2, 256, size), "R": (2, 256, 64), "B": (2, 512)}.items()}
    return {name: rng.standard_normal(shape, np.float32) * np.float32(0.1) for name, shape in shapes.items()}


def made(device):
    """What a run may not add to."""
    return device.gpu.pipelines_made, device.gpu.store.sizes().get("packed weights")


def test_nothing_is_made_after_a_warm_up(device):
    """Nodes with lengths, in both directions, and in a body."""
    text = STACK.replace("y = Reshape (t1, shape)", """y0 = Reshape (t1, shape)
        up = Constant <value_int=1> ()
        yes = Cast <to=9> (up)
        y = If (yes) <then_branch = a () => (float[T,B,8] y1) { y1 = Identity (y0) },
                      else_branch = b () => (float[T,B,8] y2) { h2 = RNN <hidden_size=8> (y0, W2, R2)
                                                                axis = Constant <value_ints=[1]> ()
                                                                y2 = Squeeze (h2, axis) }>""")
    few = {"W2": np.ones((1, 8, 8), np.float32), "R2": np.zeros((1, 8, 8), np.float32)}
    session = InferenceSession(model(text, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1") | few))
    session.warm_up(T=[3, 5], B=B)
    before = made(device)
    for t in (5, 3):
        session.run(None, inputs_of(session, np.random.default_rng(0), {"T": t, "B": B}) | {"lengths": np.array([t, 1], np.int32)})
    assert made(device) == before


def test_nodes_whose_weights_are_fed_are_left_out(device):
    text = "g (float[T,B,3] x, float[1,12,3] W) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }"
    session = InferenceSession(model(text, {"R": weights()["R"]}))
    before = made(device)
    session.warm_up(T=5)
    assert made(device) == before


@pytest.mark.parametrize(("sizes", "message"), [((0, 1), "InferenceSession: warm_up: T: found 0"), ((1, [1, -2]), "warm_up: B: found -2"),
                                                ((), "InferenceSession: warm_up: T: found None; expected whole numbers from 1")])
def test_wrong_sizes(sizes, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights())).warm_up(*sizes)


def test_a_second_session_of_a_model_makes_nothing(device):
    proto = model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")).SerializeToString()
    feed = {"x": np.ones((T, B, I), np.float32), "lengths": np.array([T, 1], np.int32)}
    first = InferenceSession(proto).run(None, feed)
    before = made(device)
    second = InferenceSession(proto).run(None, feed)
    assert made(device) == before
    for result, expected in zip(second, first, strict=True):
        np.testing.assert_array_equal(result, expected)


def pipelines_of_random_shapes(device, count):
    """How many there are after each of the calls, but for those before."""
    proto = model(TWO_LAYERS, lstm_weights()).SerializeToString()
    ours, theirs = InferenceSession(proto), onnxruntime.InferenceSession(proto)
    rng = np.random.default_rng(0)
    before, after = device.gpu.pipelines_made, []
    for number in range(count):
        x = rng.standard_normal((rng.integers(1, 200), rng.integers(1, 40), 5), np.float32)
        y, = ours.run(None, {"x": x})
        after.append(device.gpu.pipelines_made - before)
        if number % 10 == 0:
            np.testing.assert_allclose(y, theirs.run(None, {"x": x})[0], atol=1e-5)
    return after


def test_random_shapes_share_pipelines(device):
    """At most 16, and none for shapes that were there before."""
    assert pipelines_of_random_shapes(device, 40)[-1] <= 16
    assert pipelines_of_random_shapes(device, 10)[-1] == 0


def test_random_shapes_share_pipelines_long(device):
    """At most 16, and none of them in the second half."""
    after = pipelines_of_random_shapes(device, 600)
    assert after[-1] <= 16
    assert after[-1] == after[300]


def run_async(session, feed, names=None):
    """What the callback gets, and whether it was in another thread."""
    heard, done = [], threading.Event()

    def callback(results, user_data, error):
        heard.append((results, user_data, error, threading.current_thread() is not threading.main_thread()))
        done.set()

    data = object()
    session.run_async(names, feed, callback, data)
    assert done.wait(60)
    (results, user_data, error, elsewhere), = heard
    assert user_data is data
    assert elsewhere
    return results, error


def test_runs_in_other_threads():
    session = InferenceSession(model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")))
    feed = inputs_of(session, np.random.default_rng(0), {"T": T, "B": B}) | {"lengths": np.array([T, 2], np.int32)}
    expected = session.run(None, feed)
    results, error = run_async(session, feed)
    assert error == ""
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    (last,), _ = run_async(session, feed, ["last"])
    np.testing.assert_array_equal(last, expected[1])


def test_it_returns_before_the_run_has_ended():
    session = InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights()))
    returned, called = threading.Event(), threading.Event()

    def callback(*_):
        if returned.wait(60):
            called.set()

    session.run_async(None, {"x": np.ones((T, B, I), np.float32)}, callback, None)
    returned.set()
    assert called.wait(60)


def test_other_threads_go_on_meanwhile(monkeypatch):
    """While the device works, not only before and after."""
    count, grown = 0, []
    run = Submission.run

    def counted(submission):
        before = count
        run(submission)
        grown.append(count - before)

    monkeypatch.setattr(Submission, "run", counted)
    rng = np.random.default_rng(0)
    session = InferenceSession(model("g (float[T,B,64] x) => (float[T,D,B,128] y) { y = GRU <hidden_size=128> (x, W, R) }", {
        "W": rng.standard_normal((1, 384, 64), np.float32), "R": rng.standard_normal((1, 384, 128), np.float32)}))
    session.warm_up(100, 16)
    grown.clear()
    done = threading.Event()
    session.run_async(None, {"x": np.zeros((100, 16, 64), np.float32)}, lambda *_: done.set(), None)
    while not done.is_set():
        count += 1
    assert grown
    assert min(grown) > 0


def test_many_runs_at_once():
    session = InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights()))
    feeds = [{"x": np.full((t, B, I), t / 10, np.float32)} for t in range(1, 9)]
    expected = [session.run(None, feed)[0] for feed in feeds]
    heard, done = {}, threading.Semaphore(0)
    for number, feed in enumerate(feeds):
        session.run_async(None, feed, lambda results, number, error: (heard.update({number: results[0]}), done.release()), number)
    assert all(done.acquire(timeout=60) for _ in feeds)
    for number, wanted in enumerate(expected):
        np.testing.assert_array_equal(heard[number], wanted)


def test_what_fails_is_told_to_the_callback():
    """As onnxruntime does: no results, and what was wrong."""
    session = InferenceSession(model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")))
    feed = {"x": np.ones((T, B, I), np.float32), "lengths": np.array([T, T + 1], np.int32)}
    results, error = run_async(session, feed)
    assert results == []
    assert f"sequence length of row 1: found {T + 1}" in error


@pytest.mark.parametrize(("feed", "callback", "options", "message"), [
    ({}, print, None, "input_feed: found nothing for 'x'"), ({"x": np.ones((T, B, I))}, print, None, "x: found float64"),
    ({"x": np.ones((T, B, I), np.float32)}, None, None, "run_async: callback: found NoneType; expected a function"),
    ({"x": np.ones((T, B, I), np.float32)}, print, {}, "run_async: run_options: found dict; expected onnxruntime.RunOptions"),
])
def test_wrong_arguments_are_refused_at_once(feed, callback, options, message):
    session = InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights()))
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        session.run_async(None, feed, callback, None, options)
