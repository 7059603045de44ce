"""Recurrent nodes with moves between them: one submission, with the results of onnxruntime."""

import io

import numpy as np
import pytest
from onnx import load_from_string

import vkdml
from tests.faces.onnx.support import STACK, B, H, I, T, alone, groups, inputs_of, model, weights
from vkdml.engine.vulkan.gpu import Submission
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

HEAD = "g (float[T,B,3] x) => (float[A,C,D,E] y) {{ zero = Constant <value_ints=[0]> () one = Constant <value_ints=[1]> ()" \
       " two = Constant <value_ints=[2]> () three = Constant <value_ints=[3]> () p, q = GRU <hidden_size=4> (x, W, R, B) {} }}"

# What is between p and q, of a GRU from x, and y; the bidirectional first node's are P and Q
BETWEEN = {
    "squeeze": "a = Squeeze (p, one) y = GRU <hidden_size=4> (a, W1, R1, B1)",
    "transposed twice": "a = Transpose <perm=[1,2,0,3]> (p) b = Squeeze (a, zero) c = Transpose <perm=[1,0,2]> (b) "
                        "y = GRU <hidden_size=4> (c, W1, R1, B1)",
    "rows as steps": "a = Squeeze (p, one) b = Transpose <perm=[1,0,2]> (a) y = GRU <hidden_size=4> (b, W1, R1, B1)",
    "initial state": "a = Identity (q) s = Squeeze (p, one) d = Dropout (s) y = GRU <hidden_size=4> (d, W1, R1, B1, , a)",
    "not from the start": "a = Squeeze (p, one) b = Slice (a, two, three, zero) y = GRU <hidden_size=4> (b, W1, R1, B1)",
    "reversed": "a = Squeeze (p, one) n = Constant <value_ints=[-1,-1]> () m = Constant <value_ints=[-99,-99]> () o = Constant <value_ints=[0,1]> ()"
                " k = Constant <value_ints=[-2,-1]> () b = Slice (a, n, m, o, k) y = GRU <hidden_size=4> (b, W1, R1, B1)",
    "parts of a number": "a = Squeeze (p, one) b, c = Split <num_outputs=2> (a) y = GRU <hidden_size=4> (b, W1, R1, B1)",
    "parts": "a = Squeeze (p, one) n = Constant <value_ints=[2,3]> () b, c = Split <axis=0> (a, n) "
             "d = GRU <hidden_size=4> (b, W1, R1, B1) y = GRU <hidden_size=4> (c, W1, R1, B1)",
    "one of the directions": "n = Constant <value_int=0> () a = Gather <axis=1> (p, n) y = GRU <hidden_size=4> (a, W1, R1, B1)",
    "joined": "a = Squeeze (p, one) r = GRU <hidden_size=4> (x, W, R) b = Squeeze (r, one) c = Concat <axis=0> (a, b, a) "
              "y = GRU <hidden_size=4> (c, W1, R1, B1)",
    "joined with what is fed": "a = Squeeze (p, one) c = Concat <axis=2> (x, a) f = Slice (c, two, five, two) "
                               "five = Constant <value_ints=[6]> () y = GRU <hidden_size=4> (f, W1, R1, B1)",
    "flat": "a = Flatten <axis=3> (p) b = Unsqueeze (a, one) y = GRU <hidden_size=4> (b, W1, R1, B1)",
    "a cast to the same type": "s = Squeeze (p, one) a = Cast <to=1> (s) y = GRU <hidden_size=4> (a, W1, R1, B1)",
    "a computed shape": "s = Shape (p) n = Slice (s, zero, one) m = Slice (s, two, three) k = Mul (n, m) f = Constant <value_ints=[4]> () "
                        "g = Concat <axis=0> (k, one, f) a = Reshape (p, g) y = GRU <hidden_size=4> (a, W1, R1, B1)",
}


def made(between, opset=18):
    return model(HEAD.format(between), weights() | weights(inputs=H, suffix="1"), opset)


def both(proto):
    return InferenceSession(proto), alone(proto)


def expect_alike(ours, theirs, feed, atol=1e-5):
    for result, expected in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
        assert result.dtype == expected.dtype
        assert result.flags.c_contiguous
        assert result.flags.writeable
        np.testing.assert_allclose(result, expected, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("name", BETWEEN)
def test_one_submission(name, submitted):
    ours, theirs = both(made(BETWEEN[name]))
    assert not ours.assignment().on("onnxruntime")
    assert len(groups(ours)) == 1
    rng = np.random.default_rng(0)
    for sizes in ({"T": T, "B": B}, {"T": T, "B": 3}):  # an odd T
        feed = inputs_of(ours, rng, sizes)
        expect_alike(ours, theirs, feed)
        submitted.clear()
        expect_alike(ours, theirs, feed)
        assert len(submitted) == 1


@pytest.mark.parametrize("share", [0, 1])
def test_constant_lengths(share):
    """In each run, and refused in the first where they are above T. With all calls verified, too."""
    graph = model("g (float[T,B,3] x) => (float[T,D,B,4] y) { n = Constant <value_ints=[2,5]> ()"
                  " l = Cast <to=6> (n) y = GRU <hidden_size=4> (x, W, R, B, l) }", weights())
    ours, theirs = InferenceSession(graph, device=vkdml.Device(verify=share)), alone(graph)
    for seed in range(2):
        expect_alike(ours, theirs, inputs_of(ours, np.random.default_rng(seed), {"T": 5, "B": 2}))
    with pytest.raises(vkdml.InvalidArgumentError, match="sequence length of row 1"):
        ours.run(None, inputs_of(ours, np.random.default_rng(0), {"T": 4, "B": 2}))


@pytest.mark.parametrize("share", [0, 1])
def test_the_directions_of_a_row_lie_side_by_side(submitted, share):
    """Then nothing is copied between the layers of a bidirectional stack. With all calls verified, too."""
    ours = InferenceSession(model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")),
                            device=vkdml.Device(verify=share))
    ours.run(None, inputs_of(ours, np.random.default_rng(0), {"T": T, "B": B}) | {"lengths": np.array([5, 2], np.int32)})
    (run,) = ours._provider.runs
    (call,) = run._calls.values()
    assert [type(compiled.problem).__name__ for compiled, _ in call.execution._nodes] == ["Problem", "Problem"]


@pytest.mark.family("moves of each type")
@pytest.mark.parametrize("name", ["joined with what is fed", "one of the directions", "not from the start", "reversed"])
@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_other_types(name, dtype):
    """Copies of 2 and 8 bytes, checked by verification; onnxruntime runs the float32 model on the same numbers."""
    arrays = weights() | weights(inputs=H, suffix="1")
    text, kind = HEAD.format(BETWEEN[name]), np.dtype(dtype)
    narrow = {key: array.astype(np.float16) for key, array in arrays.items()}
    ours = InferenceSession(model(text.replace("float[", f"{dtype}["), {key: array.astype(kind) for key, array in narrow.items()}),
                            device=vkdml.Device(verify=1))
    theirs = alone(model(text, {key: array.astype(np.float32) for key, array in narrow.items()}))
    x = np.random.default_rng(0).standard_normal((T, B, I)).astype(np.float16)
    (result,), (expected,) = ours.run(None, {"x": x.astype(kind)}), theirs.run(None, {"x": x.astype(np.float32)})
    assert len(groups(ours)) == 1
    assert result.dtype == kind
    np.testing.assert_allclose(result.astype(np.float32), expected, atol=4e-3 if dtype == "float16" else 1e-6)


def test_what_others_use_comes_back():
    """Also in the middle of a run, twice the same, and between two runs with a node of the host's."""
    text = """g (float[T,B,3] x) => (float[T,D,B,4] p, float[T,B,4] a, float[T,B,4] same, float[D,B,4] q, int64[4] s, float[T,D,B,4] y) {
        one = Constant <value_ints=[1]> ()
        p, q = GRU <hidden_size=4> (x, W, R, B)
        s = Shape (p)
        a = Squeeze (p, one)
        same = Identity (a)
        b, n = GRU <hidden_size=4> (same, W1, R1, B1)
        e = Exp (n)
        r = Reshape (b, t)
        t = Concat <axis=0> (u, v)
        u = Slice (s, zero, one)
        zero = Constant <value_ints=[0]> ()
        v = Constant <value_ints=[-1,4]> ()
        y = GRU <hidden_size=4> (r, W1, R1, B1, , e) }"""
    proto = model(text, weights() | weights(inputs=H, suffix="1"))
    ours, theirs = both(proto)
    feed = inputs_of(ours, np.random.default_rng(0), {"T": T, "B": B})
    expect_alike(ours, theirs, feed)
    assert len(groups(ours)) == 2
    results = ours.run(None, feed)
    for place, result in enumerate(results):
        assert not any(np.shares_memory(result, other) for other in results[place + 1:])


@pytest.mark.parametrize("shape", [(0, B), (T, 0)])
def test_empty_tensors_run_node_by_node(submitted, shape):
    ours, _ = both(model(HEAD.format(BETWEEN["squeeze"]), weights() | weights(inputs=H, suffix="1")))
    assert ours.run(None, {"x": np.zeros((*shape, I), np.float32)})[0].shape == (shape[0], 1, shape[1], H)
    assert not submitted


def test_shapes_that_another_group_computed():
    """Their contents may change where no size does: node by node."""
    text = HEAD.format("k = Shape (p) e = Exp (q) n = Slice (k, zero, one) m = Constant <value_ints=[-1,4]> () w = Concat <axis=0> (n, m)"
                       " c = GRU <hidden_size=4> (u, W1, R1, B1, , e) a = Reshape (c, w) y = GRU <hidden_size=4> (a, W1, R1, B1)")
    ours, theirs = both(model(text.replace("float[T,B,3] x)", "float[T,B,3] x, float[U,B,4] u)"), weights() | weights(inputs=H, suffix="1")))
    assert len(groups(ours)) == 2
    for t in (6, 3, 6):
        expect_alike(ours, theirs, inputs_of(ours, np.random.default_rng(t), {"T": t, "B": B, "U": 6}))


def test_moves_that_are_no_views():
    """Of places counted from the end, on both sides of it."""
    ours, theirs = both(made("a = Squeeze (p, one) k = Constant <value_ints=[-1,0,1]> () b = Gather (a, k) y = GRU <hidden_size=4> (b, W1, R1, B1)"))
    assert len(groups(ours)) == 1
    expect_alike(ours, theirs, inputs_of(ours, np.random.default_rng(0), {"T": T, "B": B}))


@pytest.mark.parametrize(("op", "moves"), [
    ("Reshape", "k = Constant <value_ints=[7,1,-1]> () a = Reshape (p, k)"),
    ("Gather", "s = Squeeze (p, one) k = Constant <value_ints=[3,4,5]> () a = Gather (s, k)"),
    ("Split", "s = Squeeze (p, one) a, b = Split (s)"),
    ("Split", "s = Squeeze (p, one) k = Constant <value_ints=[2,2]> () a, b = Split (s, k)"),
    ("Split", "s = Squeeze (p, one) k = Constant <value_ints=[6,-1]> () a, b = Split (s, k)")])
def test_moves_that_are_wrong_name_the_node(op, moves):
    proto = made(f"{moves} y = GRU <hidden_size=4> (a, W1, R1, B1)", 17)
    next(node for node in proto.graph.node if node.op_type == op).name = "folding"
    session = InferenceSession(proto)
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{op} node 'folding': input: found the shape"):
        session.run(None, {"x": np.ones((T, B, I), np.float32)})
    if op == "Reshape":
        with pytest.raises(vkdml.InvalidArgumentError, match="GRU node: .*224"):
            session.run(None, {"x": np.ones((49, 8, I), np.float32)})


def test_warm_up_prepares_the_run(submitted):
    session = InferenceSession(model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")))
    session.warm_up(T, B)
    submitted.clear()
    session.run(None, inputs_of(session, np.random.default_rng(0), {"T": T, "B": B}) | {"lengths": np.array([5, 2], np.int32)})
    assert len(submitted) == 1
    assert [len(problems) for problems in session.explain().values()] == [1, 1]


def test_a_stream_of_a_stack():
    text = """g (float[T,B,3] x, float[D,B,4] h, float[D,B,4] g) => (float[T,D,B,4] y, float[D,B,4] hn, float[D,B,4] gn) {
        one = Constant <value_ints=[1]> ()
        p, hn = GRU <hidden_size=4> (x, W, R, B, , h)
        a = Squeeze (p, one)
        y, gn = GRU <hidden_size=4> (a, W1, R1, B1, , g) }"""
    ours, theirs = both(model(text, weights() | weights(inputs=H, suffix="1")))
    x = np.random.default_rng(0).standard_normal((6, 1, I)).astype(np.float32)
    zeros = np.zeros((1, 1, H), np.float32)
    stream = ours.stream({"hn": "h", "gn": "g"})
    pieces = [stream.step({"x": x[start:start + 2]})[0] for start in (0, 2, 4)]
    np.testing.assert_allclose(np.concatenate(pieces), theirs.run(None, {"x": x, "h": zeros, "g": zeros})[0], atol=1e-5)


@pytest.mark.family("each of PyTorch's stacks", first=2)
@pytest.mark.parametrize(("mode", "bidirectional", "batch_first"), [
    ("LSTM", False, False), ("GRU", True, True),
    *[(mode, both, batch) for mode in ("LSTM", "GRU", "RNN") for both in (False, True) for batch in (False, True)
      if (mode, both, batch) not in (("LSTM", False, False), ("GRU", True, True))]])
def test_stacks_as_pytorch_exports_them(mode, bidirectional, batch_first, submitted):
    torch = pytest.importorskip("torch", reason="its exporter")
    module = getattr(torch.nn, mode)(I, H, 3, bidirectional=bidirectional, batch_first=batch_first, dropout=0.1).eval()
    file = io.BytesIO()
    torch.onnx.export(module, (torch.zeros(2, 2, I),), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "T", 1: "B"}})
    ours, theirs = both(load_from_string(file.getvalue()))
    for shape in ((5, 2, I), (3, 4, I)):
        feed = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        expect_alike(ours, theirs, feed)
    submitted.clear()
    ours.run(None, feed)
    assert len(submitted) == 1


def test_nothing_is_copied_between_nodes(monkeypatch):
    """With memory of the device's own: the outputs come down, and a small input needs no copy, in one submission."""
    device, copied = vkdml.Device(), []
    monkeypatch.setattr(device.gpu, "host_memory", False)
    for name in ("upload", "readback", "run"):
        whole = getattr(Submission, name)
        monkeypatch.setattr(Submission, name, lambda *given, name=name, whole=whole: (copied.append(name), whole(*given))[1])
    session = InferenceSession(model(HEAD.format(BETWEEN["squeeze"]), weights() | weights(inputs=H, suffix="1")), device=device)
    session.run(None, {"x": np.ones((T, B, I), np.float32)})
    copied.clear()
    session.run(None, {"x": np.ones((T + 1, B, I), np.float32)})  # of other sizes, so that it is recorded again
    assert copied == ["readback", "run"]


@pytest.mark.family("each kind in each direction")
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["plain", "batch first", "lengths"])
def test_the_last_state_of_one_step_comes_down_with_y(monkeypatch, direction, kind):
    """It is y's, unless rows have lengths: a row of length 0 keeps its state."""
    device, copied, d = vkdml.Device(), [], 1 + (direction == "bidirectional")
    monkeypatch.setattr(device.gpu, "host_memory", False)
    readback = Submission.readback
    monkeypatch.setattr(Submission, "readback", lambda *given: (copied.append(1), readback(*given))[1])
    text = "g (float[A,C,3] x, float[E,F,4] h, int32[G] lengths) => (float[K,L,M,4] y, float[N,O,4] last) {{ " \
           "y, last = GRU <hidden_size=4, direction=\"{}\", layout={}> (x, W, R, B, {}, h) }}"
    texts = [text.format(direction, layout, "lengths" * (kind == "lengths")) for layout in (int(kind == "batch first"), 0)]
    ours, theirs = (model(one, weights(directions=d)) for one in texts)
    rng, axes = np.random.default_rng(0), (1, 0, 2) if kind == "batch first" else (0, 1, 2)
    feed = {"x": rng.standard_normal((1, B, I), np.float32), "h": rng.standard_normal((d, B, H), np.float32)}
    lengths = {"lengths": np.array([0, 1], np.int32)}
    y, last = InferenceSession(ours, device=device).run(None, {name: array.transpose(axes) for name, array in feed.items()} | lengths)
    expected, state = alone(theirs).run(None, feed | lengths)
    np.testing.assert_allclose(y, expected.transpose(2, 0, 1, 3) if axes[0] else expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, state.transpose(axes), rtol=1e-4, atol=1e-5)
    assert len(copied) == 1 + (kind == "lengths")
