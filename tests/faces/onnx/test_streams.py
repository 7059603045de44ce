"""Streams of a session: the same as runs of onnxruntime that are fed the outputs of the run before."""

import numpy as np
import pytest

import vkdml
from tests.faces.onnx.support import B, H, I, alone, inputs_of, model, weights
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

HEAD = "g (float[T,B,3] x, float[D,B,4] h, float[D,B,4] c) => (float[T,D,B,4] y, float[D,B,4] hn, float[D,B,4] cn) { "
LSTM = HEAD + "y, hn, cn = LSTM <hidden_size=4> (x, W, R, B, , h, c) }"
BOTH = {"hn": "h", "cn": "c"}

# Models, and what is carried
CASES = {
    "all on the device": (LSTM, BOTH),
    "one of two states": (LSTM, {"hn": "h"}),
    "crossed": (LSTM, {"hn": "c", "cn": "h"}),
    "through another node": (HEAD + """y, h1, cn = LSTM <hidden_size=4> (x, W, R, B, , h, c)
        hn = Tanh (h1) }""", BOTH),
    "from another node": (HEAD + """h1 = Tanh (h)
        y, hn, cn = LSTM <hidden_size=4> (x, W, R, B, , h1, c) }""", BOTH),
    "the input is used elsewhere": (HEAD + """y0, hn, cn = LSTM <hidden_size=4> (x, W, R, B, , h, c)
        y = Add (y0, h) }""", BOTH),
    "the output is used elsewhere": (HEAD + """y0, hn, cn = LSTM <hidden_size=4> (x, W, R, B, , h, c)
        y = Add (y0, cn) }""", BOTH),
    "two nodes begin with it": (HEAD + """y0, hn, cn = LSTM <hidden_size=4> (x, W, R, B, , h, c)
        y1, h1, c1 = LSTM <hidden_size=4> (x, W, R, B, , h, c)
        y = Add (y0, y1) }""", BOTH),
    "the other node's": (HEAD + """y0, hn, c0 = LSTM <hidden_size=4> (x, W, R, B, , h)
        y, h1, cn = LSTM <hidden_size=4> (x, W, R, B, , , c) }""", BOTH),
    "in a branch": ("g (float[T,B,3] x, float[D,B,4] h, bool up) => (float[D,B,4] hn) { hn = If (up) <"
                    "then_branch = a () => (float[D,B,4] h1) { y1, h1, c1 = LSTM <hidden_size=4> (x, W, R, B, , h) }, "
                    "else_branch = b () => (float[D,B,4] h2) { h2 = Tanh (h) }> }", {"hn": "h"}),
    "no recurrent node's": ("""g (float[T,B,3] x, float[T,B,4] h, float[T,B,4] c) => (float[T,D,B,4] y, float[T,B,4] hn, float[T,B,4] cn) {
        y = RNN <hidden_size=4> (x, W0, R0)
        hn = Tanh (h)
        cn = Add (h, c) }""", BOTH),
}


def case(text):
    """Ours, and onnxruntime's of the same model."""
    rng = np.random.default_rng(1)
    few = {"W0": rng.standard_normal((1, H, I), np.float32), "R0": rng.standard_normal((1, H, H), np.float32),
           "W4": rng.standard_normal((1, 4 * H, H), np.float32), "one": np.array([1])}
    proto = model(text, weights(4) | few)
    return InferenceSession(proto), alone(proto)


def feed_of(session, carried, rng, steps):
    feed = inputs_of(session, rng, {"T": steps, "B": B, "D": 1}) | {"up": np.array(rng.random() < 0.7)}
    return {arg.name: feed[arg.name] for arg in session.get_inputs() if arg.name not in carried.values()}


def initial(session, carried):
    sizes = {"T": 1, "B": B, "D": 1}
    return {arg.name: np.full([sizes.get(size, size) for size in arg.shape], 0.25, np.float32)
            for arg in session.get_inputs() if arg.name in carried.values()}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime_fed_by_hand(name):
    text, carried = CASES[name]
    ours, theirs = case(text)
    stream = ours.stream(carried)
    stream.state = state = initial(ours, carried)
    rng = np.random.default_rng(0)
    names = [arg.name for arg in theirs.get_outputs()]
    returned = [output for output in names if output not in carried]
    for steps in (1, 1, 1) if "float[T,B,4] h" in text else (1, 3, 1, 2):
        feed = feed_of(ours, carried, rng, steps)
        expected = dict(zip(names, theirs.run(None, feed | state)))
        for result, output in zip(stream.step(feed), returned, strict=True):
            np.testing.assert_allclose(result, expected[output], atol=1e-5, rtol=1e-4)
        state = {key: expected[output] for output, key in carried.items()}
        for key, array in stream.state.items():
            np.testing.assert_allclose(array, state[key], atol=1e-5, rtol=1e-4)


def test_what_is_carried_may_be_returned_too():
    ours, _ = case(LSTM)
    x = np.ones((1, 1, I), np.float32)
    whole, stream = ours.stream(BOTH, ["y", "hn"]), ours.stream(BOTH)
    for _ in range(3):
        y, h = whole.step({"x": x})
        np.testing.assert_array_equal(h, y[-1])
        np.testing.assert_allclose(stream.step({"x": x})[0], y, atol=1e-6)
        h[...] = 7  # the caller's own


def test_a_step_of_several_layers_is_one_submission(submitted):
    ours, _ = case(HEAD + """y0, h1, cn = LSTM <hidden_size=4> (x, W, R, B, , h, c)
        y1 = Squeeze (y0, one)
        y, hn, c1 = LSTM <hidden_size=4> (y1, W4, R, B, , h, c) }""")
    stream, x = ours.stream(BOTH), np.ones((1, 1, I), np.float32)
    stream.step({"x": x})
    submitted.clear()
    stream.step({"x": x})
    assert len(submitted) == 1


def test_reset_and_saved_states():
    ours, _ = case(LSTM)
    stream, x = ours.stream(BOTH), np.ones((1, B, I), np.float32)
    assert {key: array.shape for key, array in stream.state.items()} == {"h": (1, 1, H), "c": (1, 1, H)}
    stream.state = {key: np.zeros((1, B, H), np.float32) for key in "hc"}
    results = [stream.step({"x": x})[0] for _ in range(3)]
    saved = stream.state
    after = stream.step({"x": x})[0]
    stream.reset()
    np.testing.assert_array_equal([stream.step({"x": x})[0] for _ in range(3)], results)
    other = ours.stream(BOTH)
    other.state = saved
    np.testing.assert_array_equal(other.step({"x": x})[0], after)


@pytest.mark.parametrize(("carried", "outputs", "message"), [
    ({"no": "h"}, None, "carried: found 'no'; expected one of y, hn, cn"),
    ({"hn": "no"}, None, "carried: found 'no'; expected one of x, h, c"),
    ({"hn": "h", "cn": "h"}, None, "carried: hn: found .* for h, which is the input of another output; expected an input of its own"),
    (["hn"], None, r"carried: found \['hn'\]; expected a dictionary"), ({}, None, "carried: found {}; expected a dictionary of at least one"),
    ({"hn": "h"}, ["no"], "output_names: found 'no'; expected one of y, hn, cn"),
])
def test_wrong_names(carried, outputs, message):
    ours, _ = case(LSTM)
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        ours.stream(carried, outputs)


def test_wrong_types():
    ours = InferenceSession(model("""g (float[T,B,3] x, int32[B] lengths) => (float[T,D,B,4] y, int32[B] next, float[D,B,4] last) {
        y, last = GRU <hidden_size=4> (x, W, R, , lengths)
        next = Identity (lengths) }""", weights()))
    ours.stream({"next": "lengths"})
    with pytest.raises(vkdml.InvalidArgumentError, match=r"carried: last: found tensor\(float\) .* for lengths, which is another type"):
        ours.stream({"last": "lengths"})


@pytest.mark.parametrize("changed", ["float[B,4] h", "float[1,B,5] h"])
def test_shapes_that_cannot_agree(changed):
    ours = InferenceSession(model(f"g (float[T,B,3] x, {changed}) => (float[T,1,B,4] y, float[1,B,4] last, float z) {{"
                                  "y, last = GRU <hidden_size=4> (x, W, R) z = ReduceSum <keepdims=0> (h) }", weights()))
    with pytest.raises(vkdml.InvalidArgumentError, match=r"carried: last: found .*\[1, 'B', 4\] for h, which is another shape"):
        ours.stream({"last": "h"})


@pytest.mark.parametrize(("feed", "message"), [
    ({}, "Required inputs"), (np.ones((1, 1, I), np.float32), "input_feed: found ndarray; expected a dictionary of arrays by input"),
    ({"x": np.ones((1, 1, I), np.float32), "h": 0}, "input_feed: found h; expected inputs that are not carried"),
    ({"x": np.ones((1, 1, I))}, "x.*double"),
    ({"x": np.ones((1, B, I), np.float32)}, r"LSTM node: initial_h: found \(1, 1, 4\); expected \(1, 2, 4\)")])
def test_wrong_feeds_leave_it_as_it_was(feed, message):
    ours, _ = case(LSTM)
    stream = ours.stream(BOTH)
    stream.step({"x": np.ones((1, 1, I), np.float32)})
    before = stream.state
    with pytest.raises(Exception, match=message):
        stream.step(feed)
    for key, array in stream.state.items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize(("state", "message"), [
    ({"h": 0}, "state: found h; expected a dictionary with h and c"), (None, "state: found NoneType"),
    ({"h": np.zeros((1, 1, H)), "c": np.zeros((1, 1, H), np.float32)}, "h: found float64 .*; expected float32"),
    ({"h": np.zeros((1, 1, H + 1), np.float32), "c": np.zeros((1, 1, H), np.float32)}, r"h: found float32 \(1, 1, 5\)")])
def test_wrong_states(state, message):
    stream = case(LSTM)[0].stream(BOTH)
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        stream.state = state
