"""Whole ONNX models, compared with ONNX Runtime alone."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import vkdml
from vkdml.faces.onnx import graphs, steps
from vkdml.onnx import InferenceSession
from vkdml.runtime import network

T, B, I, H = 5, 2, 3, 4


def weights(gates=3, directions=1, inputs=I, suffix=""):
    """Of one node: W, R and B as initializers."""
    rng = np.random.default_rng(len(suffix) + gates)
    shapes = {"W": (directions, gates * H, inputs), "R": (directions, gates * H, H), "B": (directions, 2 * gates * H)}
    return {name + suffix: (rng.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}


def model(text, arrays=None, opset=17, **others):
    """A model of ONNX's text for graphs, with initializers."""
    parsed = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    for name, array in (arrays or {}).items():
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def inputs_of(session, rng, sizes):
    """Random arrays for all inputs; dynamic dimensions have the sizes of their names."""
    dtypes = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_,
              "tensor(float16)": np.float16}
    shapes = {arg.name: (dtypes[arg.type], [sizes.get(size, size) for size in arg.shape]) for arg in session.get_inputs()}
    return {name: rng.standard_normal(shape).astype(dtype) for name, (dtype, shape) in shapes.items()}


def check(proto, feeds=None, sizes=None, atol=1e-5, **given):
    """Ours and ONNX Runtime's results on the same arrays, those in `given` and random ones. Our session, for more questions."""
    ours, theirs = InferenceSession(proto.SerializeToString()), onnxruntime.InferenceSession(proto.SerializeToString())
    for our_args, their_args in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(arg.name, arg.type) for arg in our_args] == [(arg.name, arg.type) for arg in their_args]
        for our_arg, their_arg in zip(our_args, their_args, strict=True):  # each may know sizes that the other has not found out
            both = list(zip(our_arg.shape, their_arg.shape, strict=True))
            assert all(ours == theirs for ours, theirs in both if isinstance(ours, int) and isinstance(theirs, int)), both
    feed = inputs_of(ours, np.random.default_rng(0), sizes or {"T": T, "B": B}) | given
    for result, expected in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=atol)
    return ours


def kinds(session):
    return [type(step).__name__ for step in session._program._steps]


STACK = """g (float[T,B,3] x, int32[B] lengths) => (float[T,B,8] y, float[2,B,4] last) {
    h0, n0 = GRU <hidden_size=4, direction="bidirectional", linear_before_reset=1> (x, W, R, B, lengths)
    t0 = Transpose <perm=[0,2,1,3]> (h0)
    shape = Constant <value_ints=[0,0,-1]> ()
    x1 = Reshape (t0, shape)
    h1, last = GRU <hidden_size=4, direction="bidirectional"> (x1, W1, R1, B1, lengths)
    t1 = Transpose <perm=[0,2,1,3]> (h1)
    y = Reshape (t1, shape) }"""


@pytest.mark.parametrize("sizes", [(5, 2), (1, 1), (9, 3)])
def test_a_stack_with_lengths_and_dynamic_shapes(sizes):
    t, b = sizes
    session = check(model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")),
                    sizes={"T": t, "B": b}, lengths=np.arange(b, dtype=np.int32) % t + 1)
    assert kinds(session) == ["RecurrentStep", "Piece", "RecurrentStep", "Piece"]  # shapes and weights are no piece
    assert session.get_inputs()[0].shape == ["T", "B", 3]
    assert session.get_outputs()[1].shape == [2, "B", 4]


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 14, 16, 21, 22])
@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_opsets(op, gates, opset):
    text = f"g (float[T,B,3] x) => (float[T,D,B,4] z) {{ a = Tanh(x) y = {op} <hidden_size=4> (a, W, R, B) z = Neg(y) }}"
    check(model(text, weights(gates), opset))


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
    assert kinds(session) == ["RecurrentStep"]
    monkeypatch.setattr(network.np, "array_equal", lambda *_: pytest.fail("compared the weights"))
    feed = {"x": np.ones((T, B, I), np.float32)}
    np.testing.assert_array_equal(session.run(None, feed)[0], session.run(None, feed)[0])


def test_weights_that_are_computed_or_fed():
    text = """g (float[T,B,3] x, float[1,12,4] r, float scale) => (float[T,D,B,4] y, float[1,12,3] w) {
        w = Mul (W, scale)
        y = GRU <hidden_size=4> (x, w, r, B) }"""
    session = check(model(text, weights()), scale=np.array(0.5, np.float32))
    feed = {"x": np.ones((T, B, I), np.float32), "r": np.zeros((1, 3 * H, H), np.float32)}
    runs = [session.run(["y"], feed | {"scale": np.array(scale, np.float32)})[0] for scale in (0, 1, 0)]
    np.testing.assert_array_equal(runs[0], runs[2])
    assert np.abs(runs[0] - runs[1]).max() > 0.01


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


def test_nodes_in_any_order():
    proto = model("g (float[T,B,3] x) => (float[T,D,B,4] z) { a = Tanh(x) y = GRU <hidden_size=4> (a, W, R, B) z = Neg(y) }", weights())
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    check(proto)


def test_control_flow_without_recurrent_nodes_stays_in_one_piece():
    text = """g (float[T,B,3] x, bool c) => (float[T,D,B,4] y) {
        a = If (c) < then_branch = then () => (float[T,B,3] p) { p = Neg(x) }, else_branch = else () => (float[T,B,3] q) { q = Abs(x) } >
        y = GRU <hidden_size=4> (a, W, R, B) }"""
    assert kinds(check(model(text, weights()), c=np.array(True))) == ["Piece", "RecurrentStep"]


def test_as_few_pieces_as_the_recurrent_nodes_allow():
    """Two nodes side by side need one piece before and one after."""
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y, float[T,B,3] n) {
        a = Tanh(x) b = Abs(x) n = Neg(b)
        ya = GRU <hidden_size=4> (a, W, R, B)
        yb = GRU <hidden_size=4> (b, W, R, B)
        e = Exp(ya) f = Exp(yb) y = Add(e, f) }"""
    assert kinds(check(model(text, weights()))) == ["Piece", "RecurrentStep", "RecurrentStep", "Piece"]


def test_sequences_cross_pieces():
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y) {
        s = SequenceConstruct(x, x)
        a = Tanh(x)
        y0 = GRU <hidden_size=4> (a, W, R, B)
        m = ReduceMean <axes=[1]> (y0)
        k = Constant <value_int=1> ()
        back = SequenceAt(s, k)
        l = ReduceMean <axes=[2], keepdims=1> (back)
        axis = Constant <value_ints=[1]> ()
        l2 = Unsqueeze(l, axis)
        y = Add(y0, l2) }"""
    check(model(text, weights()))


def test_functions():
    parsed = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
        g (float[T,B,3] x) => (float[T,D,B,4] y) { y = mine.layer (x, W, R) }
        <opset_import: ["" : 17], domain: "mine">
        layer (p, q, r) => (z) { a = Tanh(p) z = GRU <hidden_size=4> (a, q, r) }""")
    for name in ("W", "R"):
        parsed.graph.initializer.append(numpy_helper.from_array(weights()[name], name))
    assert kinds(check(parsed)) == ["Piece", "RecurrentStep"]


def test_defaults_and_opsets_of_functions():
    parsed = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "mine" : 1]>
        g (float[T,B,3] x, bool c) => (float[T,D,B,4] y) {
            y = If (c) < then_branch = t () => (float[T,D,B,4] p) { p = mine.outer (x, W, R) },
                         else_branch = e () => (float[T,D,B,4] q) { q = mine.layer <lbr=0> (x, W, R) } > }
        <opset_import: ["" : 17], domain: "mine"> layer <lbr:int=1> (p, q, r) => (z) {
            z = GRU <hidden_size=4, linear_before_reset:int=@lbr> (p, q, r) }
        <opset_import: ["" : 17, "mine" : 1], domain: "mine"> outer (p, q, r) => (z) {
            a = LeakyRelu <alpha=0.5> (p) z = mine.layer (a, q, r) }""")
    for name in ("W", "R"):
        parsed.graph.initializer.append(numpy_helper.from_array(weights()[name], name))
    for condition in (True, False):
        check(parsed, c=np.array(condition))


def test_maps_cross_pieces():
    text = """g (float[2,2,3] x) => (seq(map(int64,float)) z, float[2,1,2,4] y) {
        y = GRU <hidden_size=4> (x, W, R)
        shape = Constant <value_ints=[2,8]> ()
        flat = Reshape (y, shape)
        z = ai.onnx.ml.ZipMap <classlabels_int64s=[0,1,2,3,4,5,6,7]> (flat) }"""
    proto = model(text, weights())
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    session = InferenceSession(proto)
    assert session.get_outputs()[0].type == "seq(map(int64,tensor(float)))"
    rows, y = session.run(None, {"x": np.ones((2, 2, I), np.float32)})
    np.testing.assert_array_equal([list(row.values()) for row in rows], y.reshape(2, 8))


def test_float16():
    """ONNX Runtime has no GRU in float16 on all machines: its float32 model on the same numbers."""
    text = "g ({0}[T,B,3] x) => ({0}[T,D,B,4] y) {{ a = Tanh(x) h = GRU <hidden_size=4> (a, W, R, B) y = Neg(h) }}"
    halves = {name: array.astype(np.float16) for name, array in weights().items()}
    x = np.random.default_rng(0).standard_normal((T, B, I)).astype(np.float16)
    result = InferenceSession(model(text.format("float16"), halves)).run(None, {"x": x})[0]
    wide = model(text.format("float"), {name: array.astype(np.float32) for name, array in halves.items()})
    expected = onnxruntime.InferenceSession(wide.SerializeToString()).run(None, {"x": x.astype(np.float32)})[0]
    assert result.dtype == np.float16
    np.testing.assert_allclose(result.astype(np.float32), expected, atol=2e-3)


def test_bfloat16_between_pieces():
    """onnxruntime hands out no bfloat16 arrays; what goes between pieces is cast there."""
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y) {
        a = Cast <to=16> (x)
        h = GRU <hidden_size=4> (a, W, R, B)
        y = Cast <to=1> (h) }"""
    few = {name: array.astype(ml_dtypes.bfloat16) for name, array in weights().items()}
    x = np.random.default_rng(0).standard_normal((T, B, I)).astype(ml_dtypes.bfloat16).astype(np.float32)
    result = InferenceSession(model(text, few, 22)).run(None, {"x": x})[0]
    wide = model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R, B) }",
                 {name: array.astype(np.float32) for name, array in few.items()})
    expected = onnxruntime.InferenceSession(wide.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(result, expected, atol=1e-2)


def test_a_model_without_recurrent_nodes():
    assert kinds(check(model("g (float[T,B,3] x) => (float[T,B,3] y) { y = Neg(x) }"))) == ["Piece"]


def test_constants_and_inputs_as_outputs():
    text = "g (float[T,B,3] x) => (float[T,B,3] x, float[1,12,3] W, float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }"
    feed = {"x": np.ones((T, B, I), np.float32)}
    results = InferenceSession(model(text, weights())).run(None, feed)
    np.testing.assert_array_equal(results[0], feed["x"])
    np.testing.assert_array_equal(results[1], weights()["W"])
    for result in results:
        result[...] = 0  # the caller's own
    assert feed["x"].all()


def test_the_model_may_change_after_loading():
    proto = model(GRU.format("GRU <hidden_size=4>"), weights())
    session = InferenceSession(proto)
    proto.graph.node[0].input[0] = "nothing"
    session.run(None, {"x": np.ones((T, B, I), np.float32)})


def test_from_a_file_with_external_data(tmp_path):
    proto = model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1"))
    expected = onnxruntime.InferenceSession(proto.SerializeToString())
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0)
    session = InferenceSession(tmp_path / "model.onnx")
    feed = inputs_of(session, np.random.default_rng(0), {"T": T, "B": B}) | {"lengths": np.array([5, 2], np.int32)}
    for output in ("last", "y"):
        np.testing.assert_allclose(session.run([output], feed)[0], expected.run([output], feed)[0], atol=1e-5)
    for path in tmp_path.iterdir():
        if path.name != "model.onnx":
            path.unlink()
    with pytest.raises(vkdml.InvalidArgumentError, match="path_or_bytes: .*model.onnx"):
        InferenceSession(tmp_path / "model.onnx")


def test_what_was_compiled_is_bounded():
    session = InferenceSession(model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }", weights()))
    for t in range(1, 12):
        session.run(None, {"x": np.ones((t, 1, I), np.float32)})
    sessions = session._program._steps[0]._node._sessions
    assert (len(sessions._sessions), len(sessions._shared)) == (steps._SESSIONS_KEPT, 1)


@pytest.mark.parametrize("schedule", ["sequence", "stepped", "persistent"])
def test_shapes_in_turn(schedule):
    """Networks of other lengths use the same buffers, one after the other."""
    proto = model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1"))
    ours = InferenceSession(proto, options=vkdml.Options(schedule=schedule))
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    rng = np.random.default_rng(0)
    for t, b in [(9, 2), (12, 2), (5, 2), (9, 2), (40, 1), (3, 5), (12, 2), (64, 1), (40, 1), (9, 2)]:
        feed = inputs_of(ours, rng, {"T": t, "B": b}) | {"lengths": rng.integers(1, t + 1, b).astype(np.int32)}
        for result, expected in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-4)


def test_like_lengths_share_kernels(monkeypatch):
    session = InferenceSession(model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }", weights()))
    theirs = onnxruntime.InferenceSession(
        model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }", weights()).SerializeToString())
    for t in (42, 36, 40):
        feed = {"x": np.random.default_rng(t).standard_normal((t, 1, I)).astype(np.float32)}
        np.testing.assert_allclose(session.run(None, feed)[0], theirs.run(None, feed)[0], atol=1e-5)
        monkeypatch.setattr("vkdml.device.Gpu.create_kernel", lambda *_: pytest.fail("compiled again"))


GRU = "g (float[T,B,3] x) => (float[T,D,B,4] y) {{ y = {} (x, W, R, B) }}"


@pytest.mark.parametrize(("text", "message"), [
    (GRU.format('GRU <name="mine", hidden_size=4, activations=["Swish", "Tanh"]>'), "Swish"),
    (GRU.format("GRU <hidden_size=4, wrong=1>"), "attribute wrong"),
    (GRU.format("GRU <hidden_size=5>"), "hidden_size: found 5"),
])
def test_wrong_attributes(text, message):
    """Named at load, or at the first run where shapes decide."""
    proto = model(text.replace('name="mine", ', ""), weights())
    proto.graph.node[-1].name = "mine"
    with pytest.raises(vkdml.InvalidArgumentError, match=message) as error:
        InferenceSession(proto).run(None, {"x": np.ones((T, B, I), np.float32)})
    assert "GRU node 'mine'" in str(error.value)


@pytest.mark.parametrize(("text", "message"), [
    ("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, nothing) }",
     "GRU node '': input: found 'nothing'; expected a value of"),
    ("g (float[T,B,3] x) => (float[T,B,3] y) { y = Add (x, nothing) }", "Add node '': input: found 'nothing'"),
    ("g (float[T,B,3] x) => (float[T,B,3] y) { z = Neg (x) }", "graph 'g': output: found 'y'; expected a value of the graph"),
    ("g (float[1,2,3] x, bool c) => (float[1,2,4] y) { y = If (c) < then_branch = t () => (float[1,2,4] a) "
     "{ e, a = GRU <hidden_size=4> (x, W, R) } > }", "If node '': else_branch: found nothing; expected a graph"),
    ("g (float[6,6,3] x) => (float[6,6,4] y) { y = Scan < body = b (float[6,3] s) => (float[6,4] r) "
     "{ e, r = GRU <hidden_size=4> (s, W, R) } > (x) }", "Scan node '': num_scan_inputs: found nothing"),
])
def test_broken_models(text, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        InferenceSession(model(text, weights()))


@pytest.mark.parametrize("name", ["tensor(float)", "seq(tensor(int64))", "optional(seq(tensor(bfloat16)))", "tensor(string)"])
def test_names_of_types(name):
    assert graphs.type_name(graphs.parse_type(name)) == name


def test_a_body_of_another_operator_is_refused():
    text = """g (seq(float[1,2,3]) x) => (seq(float[1,1,2,4]) y) {
        y = SequenceMap (x) < body = body (float[1,2,3] s) => (float[1,1,2,4] t) { t = GRU <hidden_size=4> (s, W, R, B) } > }"""
    with pytest.raises(vkdml.InvalidArgumentError, match="SequenceMap node '': a body with recurrent nodes.*If, Loop, Scan"):
        InferenceSession(model(text, weights()))


@pytest.mark.parametrize(("names", "feed", "message"), [
    (None, {}, "input_feed: found nothing for 'x'; expected all of x, lengths"),
    (None, {"x": 0, "lengths": 0, "z": 0}, "input_feed: found 'z'; expected one of x, lengths"),
    ("y", {"x": 0, "lengths": 0}, "output_names: found 'y'; expected a list of names"),
    (["nothing"], {"x": 0, "lengths": 0}, "output_names: found 'nothing'; expected one of y, last"),
])
def test_wrong_names(names, feed, message):
    session = InferenceSession(model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")))
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        session.run(names, feed)


@pytest.mark.parametrize("source", ["/no/such.onnx", b"", b"no model", 3])
def test_no_model(source):
    with pytest.raises(vkdml.InvalidArgumentError, match=r"path_or_bytes: .* an ONNX model"):
        InferenceSession(source)


def test_errors_of_a_run_leave_the_session_usable():
    session = InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights()))
    good = {"x": np.ones((T, B, I), np.float32)}
    first = session.run(None, good)[0]
    for wrong, message in ((np.ones((T, B, I + 1), np.float32), r"input_feed: x: found the shape \(5, 2, 4\); expected"),
                           (np.ones((B, I), np.float32), "input_feed: x: found the shape"),
                           (np.ones((T, B, I)), "input_feed: x: found float64; expected float32"),
                           (np.ones((0, B, I), np.float32), "GRU node: X: found the shape")):
        with pytest.raises(vkdml.InvalidArgumentError, match=message):
            session.run(None, {"x": wrong})
    with pytest.raises(vkdml.InvalidArgumentError, match="input_feed: found list; expected a dictionary"):
        session.run(None, [good["x"]])
    np.testing.assert_array_equal(session.run(None, good)[0], first)


def test_types_and_shapes_of_inputs_and_outputs():
    """Of an input that no piece takes, and of an output whose type the model does not tell."""
    node = helper.make_node("GRU", ["x", "W", "R"], ["y"], hidden_size=H)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", None, I])],
                              [helper.make_empty_tensor_value_info("y")],
                              [numpy_helper.from_array(weights()[name], name) for name in ("W", "R")])
    session = InferenceSession(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert session.get_inputs()[0].shape == ["T", None, I]
    assert (session.get_outputs()[0].type, session.get_outputs()[0].shape) == ("tensor(float)", ["T", 1, None, H])
