"""How a model is cut into pieces and recurrent nodes, and control flow with recurrent nodes in its bodies."""

import numpy as np
import pytest

import vkdml
from tests.faces.onnx.support import B, H, I, T, check, kinds, model, weights
from vkdml.engine import weights as contents
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device


def test_exporters_chains_around_weights_are_folded_once(monkeypatch):
    """Transposes, slices and the like, in other layouts, as exporters leave them."""
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y) {
        axis = Constant <value_ints=[0]> ()
        a = Transpose <perm=[1,0]> (w_ih)
        W = Unsqueeze (a, axis)
        one = Constant <value_ints=[4]> ()
        two = Constant <value_ints=[8]> ()
        three = Constant <value_ints=[12]> ()
        r0 = Slice (w_hh, axis, one, axis)
        r1 = Slice (w_hh, one, two, axis)
        r2 = Slice (w_hh, two, three, axis)
        r = Concat <axis=0> (r1, r0, r2)
        R = Unsqueeze (r, axis)
        both = Concat <axis=0> (b_ih, b_hh)
        B = Unsqueeze (both, axis)
        y = GRU <hidden_size=4, linear_before_reset=1> (x, W, R, B) }"""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32)
              for name, shape in {"w_ih": (I, 3 * H), "w_hh": (3 * H, H), "b_ih": (3 * H,), "b_hh": (3 * H,)}.items()}
    session = check(model(text, arrays))
    assert kinds(session) == ["DeviceRun"]
    monkeypatch.setattr(contents, "_words", lambda *_: pytest.fail("compared the weights"))
    feed = {"x": np.ones((T, B, I), np.float32)}
    np.testing.assert_array_equal(session.run(None, feed)[0], session.run(None, feed)[0])


IF = """g (float[T,B,3] x, bool c) => (float[D,B,4] y, float[T,B,3] z) {
    a = Tanh(x)
    y, z = If (c) <
        then_branch = then () => (float[1,B,4] yt, float[T,B,3] zt) {
            s = Abs(a) empty, yt = GRU <hidden_size=4> (s, W, R, B) zt = Identity(s) },
        else_branch = else () => (float[1,B,4] ye, float[T,B,3] a2) {
            a2 = Neg(a) s = Exp(a2) empty, ye = GRU <hidden_size=4> (s, W, R, B) } > }"""


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition):
    """Both branches have a value of one name, and take one from around them."""
    session = check(model(IF, weights()), c=np.array(condition))
    assert kinds(session) == ["Piece", "IfStep"]


LOOP = """g (float[T,B,3] x, int64 n, bool c, float[1,B,4] h) => (float[1,B,4] last, float[N,1,B,4] all, int64[N] counted) {
    last, all, counted = Loop (n, c, h) <
        body = body (int64 i, bool going, float[1,B,4] state) => (bool again, float[1,B,4] next, float[1,B,4] copy, int64 ii) {
            empty, next = GRU <hidden_size=4> (x, W, R, B, , state)
            copy = Neg (next)
            ii = Identity (i)
            most = Constant <value_float=0.4> ()
            size = ReduceMax <keepdims=0> (next)
            again = Less (size, most) } > }"""


@pytest.mark.parametrize(("count", "condition"), [(3, True), (50, True), (3, False), (0, True)])
def test_loop(count, condition):
    session = check(model(LOOP, weights()), n=np.array(count), c=np.array(condition), h=np.zeros((1, B, H), np.float32))
    assert kinds(session) == ["LoopStep"]


def test_loop_without_a_count_or_a_condition():
    text = """g (float[1,2,3] x, float[1,2,4] h) => (float[1,2,4] last) {
        last = Loop (, , h) <
            body = body (int64 i, bool going, float[1,2,4] state) => (bool again, float[1,2,4] next) {
                empty, next = GRU <hidden_size=4> (x, W, R, B, , state)
                four = Constant <value_int=4> ()
                again = Less (i, four) } > }"""
    check(model(text, weights()))


@pytest.mark.parametrize("attributes", ["", ", scan_input_axes=[1], scan_output_axes=[2]",
                                        ", scan_input_directions=[1], scan_output_directions=[1]"])
def test_scan(attributes):
    text = f"""g (float[6,6,3] x, float[1,6,4] h) => (float[1,6,4] last, float[X,Y,Z] all) {{
        last, all = Scan <num_scan_inputs=1{attributes},
            body = body (float[1,6,4] state, float[6,3] slice) => (float[1,6,4] next, float[6,4] row) {{
                axis = Constant <value_ints=[0]> ()
                step = Unsqueeze (slice, axis)
                empty, next = GRU <hidden_size=4> (step, W, R, B, , state)
                row = Squeeze (next, axis) }} > (h, x) }}"""
    assert kinds(check(model(text, weights()))) == ["ScanStep"]


def test_names_of_a_body_hide_those_around_it():
    """Also where these are constants, and in a body inside of the body."""
    text = """g (float[5,2,3] x, int64 n, float[1,2,4] h) => (float[1,2,4] last, float[N] z) {
        k = Constant <value_float=9.0> ()
        last, z = Loop (n, , h) <
            body = body (int64 i, bool c, float[1,2,4] k) => (bool again, float[1,2,4] s2, float j) {
                again = Identity (c)
                j = Cast <to=1> (i)
                kn = Neg (k)
                s2 = If (c) < then_branch = t () => (float[1,2,4] e) { d, e = GRU <hidden_size=4> (x, W, R, B, , kn) },
                              else_branch = f () => (float[1,2,4] k2) { k2 = Identity (k) } > } > }"""
    check(model(text, weights() | {"i": np.array(7)}),
          n=np.array(3), h=np.ones((1, B, H), np.float32))


@pytest.mark.parametrize("text", [
    # a state that grows from a declared shape
    """g (float[1,2,3] x, int64 n) => (float[X,2,3] last, float[1,2,4] y) {
        z = Constant <value = float[1,2,4] {0,0,0,0,0,0,0,0}> ()
        last, y = Loop (n, , x, z) < body = body (int64 i, bool c, float[K,2,3] s, float[1,2,4] h) => (bool d, float[L,2,3] s2, float[1,2,4] h2) {
            d = Identity (c) s2 = Concat <axis=0> (s, s) e, h2 = GRU <hidden_size=4> (s2, W, R, B, , h) } > }""",
    # a state that is stacked as it comes in, and used behind the loop
    """g (float[1,2,4] x, int64 n) => (float[A,1,2,4] y) {
        last, all = Loop (n, , x) < body = body (int64 i, bool c, float[1,2,4] s) => (bool d, float[1,2,4] s2, float[1,2,4] s) {
            d = Identity (c) e, s2 = GRU <hidden_size=4> (s, W4, R, B) } >
        y = Neg (all) }""",
    # counters of one dimension
    """g (float[1,2,4] x, int64 n) => (float[1,2,4] last, int64[A,2] y) {
        last, y = Loop (n, , x) < body = body (int64[1] i, bool[1] c, float[1,2,4] s) => (bool[1] d, float[1,2,4] s2, int64[2] j) {
            d = Identity (c) j = Concat <axis=0> (i, i) e, s2 = GRU <hidden_size=4> (s, W4, R, B) } > }""",
])
def test_loops_of_all_sorts(text):
    check(model(text, weights() | {"W4": weights(inputs=4, suffix="4")["W4"]}), n=np.array(3))


def test_a_scan_of_inputs_of_different_lengths_is_refused():
    text = """g (float[N,2,3] x, float[M,2,3] z) => (float[K,2,4] y) {
        y = Scan <num_scan_inputs=2, body = b (float[2,3] s, float[2,3] t) => (float[2,4] r) {
            u = Add (s, t) axis = Constant <value_ints=[0]> () v = Unsqueeze (u, axis)
            e, h = GRU <hidden_size=4> (v, W, R, B) r = Squeeze (h, axis) }> (x, z) }"""
    session = check(model(text, weights()), sizes={"N": 4, "M": 4})
    with pytest.raises(vkdml.InvalidArgumentError, match=r"Scan node '': scanned inputs: found lengths of \[4, 3\]"):
        session.run(None, {"x": np.ones((4, 2, 3), np.float32), "z": np.ones((3, 2, 3), np.float32)})


def test_control_flow_without_recurrent_nodes_stays_in_one_piece():
    text = """g (float[T,B,3] x, bool c) => (float[T,D,B,4] y) {
        a = If (c) < then_branch = then () => (float[T,B,3] p) { p = Neg(x) }, else_branch = else () => (float[T,B,3] q) { q = Abs(x) } >
        y = GRU <hidden_size=4> (a, W, R, B) }"""
    assert kinds(check(model(text, weights()), c=np.array(True))) == ["Piece", "DeviceRun"]


def test_as_few_pieces_as_the_recurrent_nodes_allow():
    """Two nodes side by side need one piece before and one after."""
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y, float[T,B,3] n) {
        a = Tanh(x) b = Abs(x) n = Neg(b)
        ya = GRU <hidden_size=4> (a, W, R, B)
        yb = GRU <hidden_size=4> (b, W, R, B)
        e = Exp(ya) f = Exp(yb) y = Add(e, f) }"""
    assert kinds(check(model(text, weights()))) == ["Piece", "DeviceRun", "Piece"]


def test_a_model_without_recurrent_nodes(no_sessions):
    with pytest.warns(vkdml.NothingOnDeviceWarning):
        assert kinds(check(model("g (float[T,B,3] x) => (float[T,B,3] y) { y = Neg(x) }"))) == ["Piece"]


@pytest.mark.parametrize(("text", "message"), [
    ("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, nothing) }",
     "Node input 'nothing' is not"),
    ("g (float[T,B,3] x) => (float[T,B,3] y) { y = Add (x, nothing) }", "Node input 'nothing' is not"),
    ("g (float[T,B,3] x) => (float[T,B,3] y) { z = Neg (x) }", r"Graph output \(y\) does not exist"),
    ("g (float[1,2,3] x, bool c) => (float[1,2,4] y) { y = If (c) < then_branch = t () => (float[1,2,4] a) "
     "{ e, a = GRU <hidden_size=4> (x, W, R) } > }", "If.*Required attribute 'else_branch' is missing"),
    ("g (float[6,6,3] x) => (float[6,6,4] y) { y = Scan < body = b (float[6,3] s) => (float[6,4] r) "
     "{ e, r = GRU <hidden_size=4> (s, W, R) } > (x) }", "Scan.*Required attribute 'num_scan_inputs' is missing"),
])
def test_broken_models(text, message):
    with pytest.raises(vkdml.errors.OnnxRuntimeError, match=message):
        InferenceSession(model(text, weights()))


def test_a_body_of_another_operator_is_refused():
    text = """g (seq(float[1,2,3]) x) => (seq(float[1,1,2,4]) y) {
        y = SequenceMap (x) < body = body (float[1,2,3] s) => (float[1,1,2,4] t) { t = GRU <hidden_size=4> (s, W, R, B) } > }"""
    with pytest.raises(vkdml.InvalidArgumentError, match="SequenceMap node '': a body with recurrent nodes.*If, Loop, Scan"):
        InferenceSession(model(text, weights()))
