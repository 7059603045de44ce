"""The execution provider in onnxruntime's own sessions and in ours: what loads and runs, errors, threads, and ends of a process."""

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import vkdml
from tests.faces.onnx.support import GRU, B, H, I, T, alone, check, groups, model, weights
from tests.programs import run
from tests.threads import together
from vkdml.faces.onnx import exchange, provider, runs
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

NAME = "VkdmlExecutionProvider"
BOTH = [NAME, "CPUExecutionProvider"]
SMALL = "g (float[T,B,3] x) => (float[T,D,B,4] z) { a = Tanh(x) y = GRU <hidden_size=4> (a, W, R, B) z = Neg(y) }"
LENGTHS = "g (float[T,B,3] x, int32[B] n) => (float[T,D,B,4] z) { a = Tanh(x) y = GRU <hidden_size=4> (a, W, R, B, n) z = Neg(y) }"
TWO = "g (float[T,B,3] x) => (float[T,D,B,4] z) { a = GRU <hidden_size=4> (x, W, R, B) b = Sin (x) c = GRU <hidden_size=4> (b, W, R, B)" \
      " d = Cos (a) e = Exp (c) z = Add (d, e) }"
X = np.random.default_rng(0).standard_normal((T, B, I)).astype(np.float32)


@pytest.fixture(scope="module")
def small():
    return model(SMALL, weights()).SerializeToString()


@pytest.fixture(scope="module")
def expected(small):
    return alone(small).run(None, {"x": X})[0]


def quiet(**values):
    options = onnxruntime.SessionOptions()
    for name, value in ({"log_severity_level": 4} | values).items():
        setattr(options, name, value)
    return options


def configured(key, value):
    options = quiet()
    options.add_session_config_entry(key, value)
    return options


# onnxruntime's own sessions

@pytest.mark.parametrize("named", [BOTH, *([(NAME, own), "CPUExecutionProvider"] for own in (
    {"device": "0"}, {"device": None}, {"device_id": 0}, {"device_id": "0"}, {"device_id": None}))])
def test_a_session_of_onnxruntimes(small, expected, named):
    assert NAME in onnxruntime.get_available_providers()
    session = onnxruntime.InferenceSession(small, quiet(), named)
    assert session.get_providers() == BOTH
    with pytest.raises(Exception, match="DriverError: no Vulkan device '-1'"):
        onnxruntime.InferenceSession(small, quiet(), [(NAME, {"device_id": -1})], enable_fallback=0)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, atol=1e-5)
    session = onnxruntime.InferenceSession(model(LENGTHS, weights()).SerializeToString(), quiet(), named)
    with pytest.raises(Exception, match=r"InvalidArgumentError: GRU node: sequence length of row 0: found 6"):  # of onnxruntime's classes
        session.run(None, {"x": X, "n": np.full(B, T + 1, np.int32)})


def test_as_onnxruntime_records_it(small):
    options = configured("session.record_ep_graph_assignment_info", "1")
    session = InferenceSession(model(TWO, weights()).SerializeToString(), options, BOTH)
    theirs = {(part.ep_name == NAME, node.op_type) for part in session.get_provider_graph_assignment_info() for node in part.get_nodes()}
    assert theirs == {(node.runs_on == "device", node.op_type) for node in session.assignment().nodes}


@pytest.mark.parametrize("make", [onnxruntime.InferenceSession, InferenceSession])
def test_a_list_without_it(make, small, expected, no_sessions):
    session = make(small, quiet(), ["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)
    if make is InferenceSession:
        assert session.assignment().headline == "no node runs on a Vulkan device: the session's providers lack VkdmlExecutionProvider"


def test_devices_in_the_options(small, expected):
    options = quiet()
    options.add_provider_for_devices([one for one in onnxruntime.get_ep_devices() if one.ep_name == NAME], {"device": "0"})
    for make in (onnxruntime.InferenceSession, InferenceSession):
        session = make(small, options)
        assert session.get_providers() == BOTH
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, atol=1e-5)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"providers": [(NAME, {"id": 1})]}, "options of VkdmlExecutionProvider: found .*; expected device or device_id"),
    ({"providers": [(NAME, {"device": "no such"})]}, "no such"), ({"device": "no such"}, "no such"),
    ({"providers": [NAME], "provider_options": [{"device_id": 77}]}, "no Vulkan device '77'"),
    ({"sess_options": configured("ep.context_enable", "1")}, "ep.context_enable: found 1; expected 0: nodes on the device cannot be saved"),
    ({"device": 0, "providers": ["CPUExecutionProvider"]}, "providers: found .*; expected VkdmlExecutionProvider among them"),
    ({"options": 3}, "options: found int; expected vkdml.Options"),
])
def test_wrong_arguments(small, arguments, message, capfd):
    with pytest.raises((vkdml.InvalidArgumentError, vkdml.DriverError), match=message):
        InferenceSession(small, **arguments)
    assert "Falling back" not in capfd.readouterr().out


def test_it_is_registered_once_and_again_where_a_session_misses_it(small):
    session = InferenceSession(small)
    onnxruntime.unregister_execution_provider_library("vkdml")
    assert NAME not in onnxruntime.get_available_providers()
    together(8, lambda _: exchange.register())
    assert onnxruntime.get_available_providers().count(NAME) == 1
    onnxruntime.unregister_execution_provider_library("vkdml")
    again = InferenceSession(small)
    assert again.assignment() == session.assignment()
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], session.run(None, {"x": X})[0])


@pytest.mark.parametrize("version", ["1.24.4", "1.9.0"])
def test_an_onnxruntime_that_is_too_old(monkeypatch, version):
    monkeypatch.setattr(onnxruntime, "__version__", version)
    with pytest.raises(vkdml.MissingPackageError, match=f"needs onnxruntime 1.25 or newer; found {version}: pip install"):
        exchange.register()


# What loads and runs

def test_weights_are_what_onnxruntime_feeds():
    """Those in the options take the place of the model's, also small parameters, and in bodies."""
    own = weights() | {"axes": np.array([1])}
    text = "g (float[T,B,3] x) => (float[A,C,E,4] z) { y = GRU <hidden_size=4> (x, W, R, B) s = Squeeze (y, axes) z = GRU <hidden_size=4> (s, V, R, B) }"
    others = {"W": own["W"] * 3, "V": own["R"] * 2}
    options = quiet()
    for name, array in others.items():
        options.add_initializer(name, value := onnxruntime.OrtValue.ortvalue_from_numpy(array))
        others[name] = value, array  # which onnxruntime does not keep
    expected = alone(model(text, own | {name: array for name, (_, array) in others.items()})).run(None, {"x": X})[0]
    session = InferenceSession(model(text, own | {"V": own["R"]}).SerializeToString(), options, BOTH)
    session.warm_up(T, B)
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, atol=1e-5)


def test_a_dropout_that_the_options_make_drop():
    """It is refused at each run."""
    options = quiet(graph_optimization_level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.array(True))
    options.add_initializer("training", value)
    text = "g (float[T,B,3] x) => (float[T,D,B,4] z) { y = GRU <hidden_size=4> (x, W, R) s = Squeeze (y) d = Dropout (s, half, training)" \
           " z = GRU <hidden_size=4> (d, R, R) }"
    arrays = weights() | {"half": np.array(0.5, np.float32), "training": np.array(False)}
    session = InferenceSession(model(text, arrays), options)
    for _ in range(2):
        with pytest.raises(vkdml.InvalidArgumentError, match="Dropout node: initializers: found others than the model has"):
            session.run(None, {"x": X})


def test_constants_of_types_that_the_device_does_not_have(expected):
    text = "g (float[T,B,3] x, string[N] q) => (float[T,D,B,4] z, string[M] s) { a = Tanh(x) y = GRU <hidden_size=4> (a, W, R, B) z = Neg(y) s = Concat <axis=0> (q, k) }"
    proto = model(text, weights())
    proto.graph.initializer.append(helper.make_tensor("k", TensorProto.STRING, [1], [b"k"]))
    z, s = InferenceSession(proto.SerializeToString()).run(None, {"x": X, "q": np.array(["q"], object)})
    np.testing.assert_allclose(z, expected, atol=1e-5)
    assert list(s) == ["q", "k"]


@pytest.mark.parametrize("version", [4, 8])
def test_initializers_that_may_be_fed(version):
    text = "g (float[T,B,3] x) => (float[T,1,B,4] y) { r = Reshape (R, shape) y = GRU <hidden_size=4> (x, W, r, , , h) }"
    proto = model(text, weights() | {"shape": np.array([1, 12, 4]), "h": np.zeros((1, B, H), np.float32)})
    proto.ir_version = version
    for name, sizes in (("W", [1, 12, 3]), ("h", [1, "B", 4])):
        proto.graph.input.append(helper.make_tensor_value_info(name, 1, sizes))
    session, theirs = InferenceSession(proto), alone(proto)
    assert [arg.name for arg in session.get_overridable_initializers()] == ["W", "h"]
    for fed in ({}, {"W": weights()["W"] * 2}, {"h": np.ones((1, B, H), np.float32)}, {}):
        np.testing.assert_allclose(session.run(None, {"x": X, **fed})[0], theirs.run(None, {"x": X, **fed})[0], atol=1e-5)


@pytest.mark.parametrize(("name", "sizes"), [("W", "1,12,3"), ("R", "1,12,4")])
def test_a_hidden_size_that_only_one_constant_says(name, sizes):
    """Which onnxruntime does not take."""
    own = weights()
    text = f"g (float[T,B,3] x, float[{sizes}] {name}) => (float[T,D,B,4] y) {{ y = GRU (x, W, R, B) }}"
    session = InferenceSession(model(text, {key: array for key, array in own.items() if key != name}))
    expected = alone(model(GRU.format("GRU <hidden_size=4>"), own)).run(None, {"x": X})[0]
    np.testing.assert_allclose(session.run(None, {"x": X, name: own[name]})[0], expected, atol=1e-5)


CONTROL = {
    "If": "g (float[T,B,3] x, bool c) => (float[D,B,4] y) { a = Tanh(x) y = If (c) <"
          "then_branch = t () => (float[1,B,4] p) { s = Abs(a) q, p = GRU <hidden_size=4> (s, W, R, B) }, "
          "else_branch = f () => (float[1,B,4] u) { n = Neg(a) v, u = GRU <hidden_size=4> (n, W, R, B) } > }",
    "If in Loop": "g (float[T,B,3] x, bool c, int64 n, float[1,B,4] h) => (float[1,B,4] last, float[N,1,B,4] all) {"
                  "last, all = Loop (n, c, h) < body = b (int64 i, bool going, float[1,B,4] s) => (bool on, float[1,B,4] t, float[1,B,4] r) {"
                  "on = Identity (going) t = If (going) < then_branch = y () => (float[1,B,4] k) { e, k = GRU <hidden_size=4> "
                  "(x, W, R, B, , s) }, else_branch = z () => (float[1,B,4] l) { l = Identity (s) } > r = Neg (t) } > }",
    "Scan": "g (float[T,B,3] x, float[1,B,4] h, bool c) => (float[1,B,4] last, float[T,1,B,4] all) { last, all = Scan <num_scan_inputs=1, "
            "body = b (float[1,B,4] s, float[B,3] piece) => (float[1,B,4] t, float[1,B,4] r) { k = Constant <value_ints=[0]> () "
            "step = Unsqueeze (piece, k) e, t = GRU <hidden_size=4> (step, W, R, B, , s) r = Neg (t) } > (h, x) }",
    "after a body": "g (float[T,B,3] x, bool c) => (float[T,D,B,4] y) { a, h = GRU <hidden_size=4> (x, W, R, B) b = If (c) <"
                    "then_branch = t () => (float[1,B,4] p) { p = Exp (h) }, else_branch = f () => (float[1,B,4] q) { q = Neg (h) } > "
                    "y = GRU <hidden_size=4> (x, W, R, B, , b) }",
    "around it": "g (float[T,B,3] x, bool c) => (float[T,D,B,4] y, seq(float[T,D,B,4]) q) { a = com.microsoft.Gelu (x) "
                 "z = GRU <hidden_size=4> (a, W, R, B) q = SequenceConstruct (z, z) y = com.microsoft.Gelu (z) }",
    "given back": "g (float[T,B,3] x, bool c) => (float[T,B,3] x, float[1,12,3] W, float[T,1,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }",
}


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("name", CONTROL)
def test_bodies_and_other_nodes(name, flag):
    proto = model(CONTROL[name], weights())
    proto.opset_import.add(domain="com.microsoft", version=1)
    check(proto, n=np.array(3), nodes=1 + (name in ("If", "after a body")), c=np.array(flag))


def test_functions():
    """With defaults and opsets of their own, and one within another."""
    parsed = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "mine" : 1]>
        g (float[T,B,3] x, bool c) => (float[T,D,B,4] y) {
            y = If (c) < then_branch = t () => (float[T,D,B,4] p) { p = mine.outer (x, W, R) },
                         else_branch = e () => (float[T,D,B,4] q) { q = mine.layer <lbr=0> (x, W, R) } > }
        <opset_import: ["" : 17], domain: "mine"> layer <lbr:int=1> (p, q, r) => (z) {
            z = GRU <hidden_size=4, linear_before_reset:int=@lbr> (p, q, r) }
        <opset_import: ["" : 17, "mine" : 1], domain: "mine"> outer (p, q, r) => (z) {
            a = LeakyRelu <alpha=0.5> (p) z = mine.layer (a, q, r) }""")
    parsed.graph.initializer.extend(numpy_helper.from_array(weights()[name], name) for name in ("W", "R"))
    for condition in (True, False):
        check(parsed, nodes=2, c=np.array(condition))


@pytest.mark.parametrize("late", "01")
def test_functions_of_which_onnxruntime_takes_a_node_between(late):
    """The CPU has Squeeze already when the functions' nodes are put in their place: a group with it would be dropped as a whole."""
    parsed = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "mine" : 1]>
        g (float[T,B,3] x) => (float[T,1,B,4] y) { a = mine.layer (x, W, R) s = Squeeze (a, one) y = mine.layer (s, W4, R) }
        <opset_import: ["" : 17], domain: "mine"> layer (p, q, r) => (z) { z = GRU <hidden_size=4> (p, q, r) }""")
    arrays = weights() | weights(inputs=H, suffix="4") | {"one": np.array([1])}
    parsed.graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in ("W", "R", "W4", "one"))
    check(parsed, nodes=2, options=configured("session.disable_aot_function_inlining", late))


@pytest.mark.filterwarnings("ignore::vkdml.NothingOnDeviceWarning")
def test_a_domain_that_is_alike_up_to_a_nul():
    """Its GRU is not ONNX's."""
    parsed = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "Qmine" : 1]>
        g (float[T,B,3] x) => (float[T,D,B,4] y) { y = Qmine.GRU <hidden_size=4> (x, W, R) }
        <opset_import: ["" : 17], domain: "Qmine"> GRU <hidden_size> (p, q, r) => (z) {
            a = Neg (p) z = GRU <hidden_size:int=@hidden_size> (a, q, r) }""")
    parsed.graph.initializer.extend(numpy_helper.from_array(weights()[name], name) for name in ("W", "R"))
    data = parsed.SerializeToString().replace(b"Qmine", b"\0mine")
    session = InferenceSession(data, quiet())
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], alone(data).run(None, {"x": X})[0])
    assert "equal up to a NUL" in session.assignment().refused[0]


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_LAYOUT", "ENABLE_ALL"])
def test_levels_of_optimization(level):
    """Exporters' moves around weights, and nodes that an optimizer removes."""
    text = """g (float[T,B,3] x) => (float[T,D,B,4] y) { zero = Constant <value_ints=[0]> () a = Transpose <perm=[1,0]> (w)
        W = Unsqueeze (a, zero) i = Identity (x) y0 = GRU <hidden_size=4, linear_before_reset=1> (i, W, R, B) two = Constant <value_float=2.0> ()
        t = Transpose <perm=[1,0,2,3]> (y0) u = Transpose <perm=[1,0,2,3]> (t) c = Cast <to=1> (u) y = Mul (c, two) }"""
    arrays = weights()
    check(model(text, {"w": arrays["W"][0].T, "R": arrays["R"], "B": arrays["B"]}),
          options=quiet(graph_optimization_level=getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")))


@pytest.mark.parametrize(("text", "reason"), [
    (GRU.format('GRU <hidden_size=4, activations=["Swish","Tanh"]>'), r"activations\[0\]: found 'Swish'"),
    (GRU.format("GRU <hidden_size=4, clip=-1.0>"), "clip"), (GRU.format("GRU <hidden_size=5>"), "hidden_size: found 5"),
    ("g (float[T,B,3] x, float[A,C,D] W, float[E,F,G] R) => (float[T,D,B,H] y) { y = GRU <hidden_size=1000000000> (x, W, R) }",
     "'W' has 12000000000 bytes, of at most"),
])
@pytest.mark.filterwarnings("ignore::vkdml.NothingOnDeviceWarning")
def test_what_cannot_run_is_not_claimed(text, reason):
    """Whether it loads and runs is onnxruntime's to say then, in the same words."""
    proto, said = model(text, weights()), []

    def outcome(make):
        try:
            session = make()
            said.extend(session.assignment().refused if make is ours else ())
            return session.run(None, {"x": X})[0].shape
        except Exception as error:
            said.extend(getattr(error, "__notes__", ()))
            return str(error)

    def ours():
        return InferenceSession(proto.SerializeToString(), quiet(), BOTH)

    assert outcome(ours) == outcome(lambda: alone(proto))
    assert all(re.search(f"GRU node '': .*{reason}", found) for found in said)
    assert len(said) == 1


def test_bfloat16():
    """Arrays that onnxruntime does not take, and what is between nodes."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    few = {name: array.astype(ml_dtypes.bfloat16) for name, array in weights().items()}
    x, wide = X.astype(ml_dtypes.bfloat16), {name: array.astype(np.float32) for name, array in few.items()}
    expected = alone(model(GRU.format("GRU <hidden_size=4>"), wide)).run(None, {"x": x.astype(np.float32)})[0]
    session = InferenceSession(model(GRU.format("GRU <hidden_size=4>").replace("float[", "bfloat16["), few, 22))
    value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), TensorProto.BFLOAT16)
    for fed in (x, value, np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)):
        result, = session.run(None, {"x": fed})
        assert result.dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(result.astype(np.float32), expected, atol=1e-2)
    between = "g (float[T,B,3] x) => (float[T,D,B,4] y) { a = Cast <to=16> (x) h = GRU <hidden_size=4> (a, W, R, B) y = Cast <to=1> (h) }"
    result, = InferenceSession(model(between, few, 22)).run(None, {"x": x.astype(np.float32)})
    np.testing.assert_allclose(result, expected, atol=1e-2)


def test_external_data(tmp_path):
    """Onnxruntime reads them: nothing of what is not the device's is read a second time."""
    rng = np.random.default_rng(0)
    text = "g (float[T,B,3] x) => (float[T,1,B,N] z) { y = GRU <hidden_size=4> (x, W, R, B) z = MatMul (y, large) }"
    proto = model(text, weights() | {"large": rng.standard_normal((4, 2**22)).astype(np.float32)})  # 64 MiB
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    (tmp_path / "small.onnx").write_bytes(model(SMALL, weights()).SerializeToString())
    del proto
    script = """
import os, re, numpy, onnx, vkdml
is_theirs = not os.fork()  # with a peak of its own
if not is_theirs:
    os.wait()
import onnxruntime, vkdml.onnx
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
x = {"x": numpy.ones((1, 1, 3), numpy.float32)}
vkdml.onnx.InferenceSession("small.onnx").run(None, x)  # with which the driver has compiled
before = peak()
session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"]) if is_theirs else vkdml.onnx.InferenceSession("model.onnx")
z, = session.run(None, x)
print(peak() - before, float(numpy.abs(z).sum()), file=open("found", "a"))"""  # as Vulkan layers print, too
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    (theirs, their_sum), (ours, our_sum) = (line.split() for line in (tmp_path / "found").read_text().splitlines())
    np.testing.assert_allclose(float(our_sum), float(their_sum), rtol=1e-4)
    assert int(ours) < 1.3 * int(theirs)


def test_models_of_onnxruntimes_own_format_and_optimized_ones(small, expected, tmp_path):
    alone_options = quiet(optimized_model_filepath=str(tmp_path / "model.ort"))
    onnxruntime.InferenceSession(small, alone_options, ["CPUExecutionProvider"])
    np.testing.assert_allclose(InferenceSession(tmp_path / "model.ort").run(None, {"x": X})[0], expected, atol=1e-5)
    with pytest.raises(Exception, match="contains compiled nodes"):  # of onnxruntime's
        InferenceSession(small, quiet(optimized_model_filepath=str(tmp_path / "model.onnx")), BOTH)


def test_many_nodes():
    """They are looked at once each; a group has at most 256 of them."""
    nodes = " ".join(f", h{i + 1} = GRU <hidden_size=4> (x, W, R, B, , h{i})" for i in range(300))
    proto = model(f"g (float[1,1,3] x, float[1,1,4] h0) => (float[1,1,4] h300) {{ {nodes} }}", weights())
    session = InferenceSession(proto)
    assert groups(session) == [256, 44]
    feed = {"x": X[:1, :1], "h0": np.zeros((1, 1, H), np.float32)}
    np.testing.assert_allclose(session.run(None, feed)[0], alone(proto).run(None, feed)[0], atol=1e-5)


# Errors

def raised_by(session, feed, how):
    """What reaches the caller."""
    if how == "async":
        heard, done = [], threading.Event()
        session.run_async(None, feed, lambda results, data, error: (heard.append((results, error)), done.set()), None)
        assert done.wait(60)
        assert heard[0][0] == []
        return heard[0][1]
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("z")
    calls = {"run": lambda: session.run(None, feed), "binding": lambda: session.run_with_iobinding(binding), "values": lambda: session.
             run_with_ort_values(None, {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()})}
    with pytest.raises(BaseException, match=".*") as error:
        calls[how]()
    return error.value


@pytest.fixture(scope="module", params=["ORT_SEQUENTIAL", "ORT_PARALLEL"])
def in_mode(request, small):
    return InferenceSession(small, quiet(execution_mode=getattr(onnxruntime.ExecutionMode, request.param), inter_op_num_threads=2,
                                         intra_op_num_threads=2), BOTH)


@pytest.mark.parametrize("how", ["run", "binding", "values", "async"])
@pytest.mark.parametrize("error", [ValueError("no"), vkdml.DriverError("lost"), MemoryError(), KeyboardInterrupt(), SystemExit(3)],
                         ids=lambda error: type(error).__name__)
def test_exceptions_reach_the_caller_as_they_are(in_mode, expected, monkeypatch, how, error):
    with monkeypatch.context() as patched:
        patched.setattr(runs.DeviceRun, "__call__", lambda *_: (_ for _ in ()).throw(error))
        assert raised_by(in_mode, {"x": X}, how) is error
    assert error.__traceback__ is not None
    np.testing.assert_allclose(in_mode.run(None, {"x": X})[0], expected, atol=1e-5)


def test_what_a_node_cannot_take_leaves_the_session_usable():
    """Its name says nothing to a terminal, and is not taken for an error of ours."""
    proto = model(LENGTHS, weights())
    proto.graph.node[1].name = "[vkdml error 1] \x1b"
    session = InferenceSession(proto, quiet())
    feed = {"x": X, "n": np.array([T, 1], np.int32)}
    first = session.run(None, feed)[0]
    for how in ("run", "binding", "values", "async"):
        error = raised_by(session, feed | {"n": np.array([T, T + 1], np.int32)}, how)
        assert isinstance(error, vkdml.InvalidArgumentError)
        assert str(error).isprintable()
        assert f"sequence length of row 1: found {T + 1}" in str(error)
        frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == runs.__file__]
        assert len(frames) > 0
        assert not any(frames)  # arrays in onnxruntime's memory
    np.testing.assert_array_equal(session.run(None, feed)[0], first)


@pytest.mark.parametrize(("results", "message"), [
    (lambda made: [], "another number of results than of outputs"), (lambda made: [*made, *made], "another number"),
    (lambda made: [array.astype(np.float64) for array in made], "of another type or size"),
    (lambda made: [array.astype(np.float16) for array in made], "of another type or size")])
def test_wrong_results_are_errors(small, monkeypatch, results, message):
    session, call = InferenceSession(small, quiet(), BOTH), runs.DeviceRun.__call__
    monkeypatch.setattr(runs.DeviceRun, "__call__", lambda self, arrays: results(call(self, arrays)))
    with pytest.raises(Exception, match=message):
        session.run(None, {"x": X})


def test_memory_of_another_shape_is_not_written():
    session = InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights()).SerializeToString(), quiet(), BOTH)
    binding, memory = session.io_binding(), np.zeros((T, 1, B, 2), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    with pytest.raises(Exception, match="dimensions"):
        session.run_with_iobinding(binding)
    assert not memory.any()


@pytest.mark.parametrize("make", [onnxruntime.InferenceSession, InferenceSession])
@pytest.mark.parametrize("place", ["groups", "DeviceRun"])
def test_errors_while_it_claims_or_compiles(small, monkeypatch, capfd, make, place):
    """Nothing runs on the CPU in silence."""
    def wrong(*_):
        raise vkdml.DriverError("it broke")
    monkeypatch.setattr(provider, place, wrong)
    for text in (small, model(GRU.format("GRU <hidden_size=4>"), weights()).SerializeToString()):
        if make is InferenceSession:
            with pytest.raises(vkdml.DriverError, match="it broke"):
                make(text, None, BOTH)
        else:
            with pytest.raises(Exception, match="DriverError: it broke"):
                make(text, quiet(), BOTH, enable_fallback=0)


def test_groups_are_convex():
    """onnxruntime would only log one that is not: here a node of its own stands between two recurrent ones, beside a move."""
    text = TWO.replace("e = Exp (c)", "k = Exp (a) f = Add (c, k) e = GRU <hidden_size=4> (g, W4, R, B) one = Constant <value_ints=[1]> () g = Squeeze (f, one)")
    session = check(model(text, weights() | {"W4": weights(inputs=4, suffix="4")["W4"]}), nodes=3)
    assert sum(groups(session)) == len(session.assignment().on("device"))


# Threads, processes and memory

@pytest.mark.parametrize("mode", ["ORT_SEQUENTIAL", "ORT_PARALLEL"])
def test_threads(mode):
    proto = model(TWO, weights())
    options = quiet(execution_mode=getattr(onnxruntime.ExecutionMode, mode), inter_op_num_threads=2, intra_op_num_threads=2)
    session, expected = InferenceSession(proto.SerializeToString(), options, BOTH), alone(proto).run(None, {"x": X})[0]
    found = together(8, lambda _: [session.run(None, {"x": X})[0] for _ in range(4)])
    np.testing.assert_allclose(found, np.broadcast_to(expected, np.shape(found)), atol=1e-5)


def test_first_runs_together_wait_for_the_weights_that_are_fed(small, monkeypatch):
    own, options, build = weights(), quiet(), runs.DeviceRun._build
    options.add_initializer("W", value := onnxruntime.OrtValue.ortvalue_from_numpy(own["W"] * 3))
    session = InferenceSession(small, options, BOTH)
    monkeypatch.setattr(runs.DeviceRun, "_build", lambda *given: (time.sleep(0.1), build(*given)))
    found = together(4, lambda _: session.run(None, {"x": X})[0])
    expected = alone(model(SMALL, own | {"W": value.numpy()})).run(None, {"x": X})[0]
    np.testing.assert_allclose(found, [expected] * 4, atol=1e-5)


def test_options_may_be_shared_by_threads(small, expected):
    options = quiet()
    together(8, lambda _: InferenceSession(small, options, BOTH).run(None, {"x": X}))
    np.testing.assert_allclose(onnxruntime.InferenceSession(small, options, ["CPUExecutionProvider"]).run(None, {"x": X})[0], expected)


def test_sessions_let_go_of_all_that_they_have(small):
    def resident():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    for count in (30, 100):
        before = resident()
        for _ in range(count):
            session = InferenceSession(small)
            session.run(None, {"x": X})
    kept = weakref.ref(session._provider.runs[0])
    del session
    gc.collect()
    assert kept() is None
    assert resident() - before < 5e6


def test_a_session_that_is_dropped_while_it_runs(small, expected):
    heard, done = [], threading.Event()
    session = InferenceSession(small)
    session.run_async(None, {"x": X.copy()}, lambda results, _, error: (heard.append((results, error)), done.set()), None)
    del session
    gc.collect()
    assert done.wait(60)
    np.testing.assert_allclose(heard[0][0][0], expected, atol=1e-5)


START = """
import warnings
from vkdml.onnx import InferenceSession  # onnxruntime has threads from its import on
warnings.simplefilter("default")
def loop():
    while True: session.run(None, x)
session = InferenceSession("model.onnx")
x = {"x": np.ones((2000, 8, 3), np.float32)}
session.run(None, x)
"""
ENDS = {  # with a session in a global
    "an exit": ("sys.exit(5)", 5),
    "an exit with a daemon": ("threading.Thread(target=loop, daemon=True).start(); time.sleep(0.05); sys.exit(5)", 5),
    "daemons": ("x['x'] = x['x'][:100]; [threading.Thread(target=loop, daemon=True).start() for _ in range(4)]; time.sleep(0.1)", 0),
    "a run under way": ("session.run_async(None, x, lambda *_: None, None); time.sleep(0.01)", 0),
    "a run that does not end": ("""from vkdml.faces.onnx import provider
provider._FOR_CALLBACKS = 0.3
InferenceSession("endless.onnx").run_async(None, {"x": np.ones((1, 1, 4), np.float32)}, lambda *_: None, None); time.sleep(0.1)""", 0),
    "a fork, and a run at exit": (
        "pid = os.fork()\nif not pid:\n    signal.alarm(20)\n    try: session.run(None, x)\n    except Exception as error: os._exit(type(error).__name__ "
        "!= 'DriverError')\n    os._exit(9)\nassert os.waitpid(pid, 0)[1] == 0\nimport atexit; atexit.register(lambda: session.run(None, x))", 0),
    "an interrupt": ("threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\ntry: loop()\nexcept KeyboardInterrupt: session.run(None, x)", 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_ends_of_a_process(tmp_path, end):
    onnx.save(model(TWO, weights()), tmp_path / "model.onnx")
    onnx.save(model("g (float[1,1,4] x) => (float[1,1,4] y) { n = Constant <value_int=9000000000000000000> () y = Loop (n, , x) <"
                    "body = b (int64 i, bool c, float[1,1,4] s) => (bool d, float[1,1,4] t) { d = Identity (c) v, t = GRU <hidden_size=4> "
                    "(s, W, R) } > }", weights(inputs=4)), tmp_path / "endless.onnx")
    code, status = ENDS[end]
    run(f"os.chdir({str(tmp_path)!r})\n{START}{code}", status, "import onnx", 60, unless="[E:onnxruntime")  # of what was raised


@pytest.mark.family("moments", first=4)
@pytest.mark.parametrize("moment", [moment for first in range(15) for moment in range(first, 60, 15)])
def test_an_interrupt_is_a_keyboard_interrupt(long_session, moment):
    session, feed, seconds = long_session
    timer = threading.Timer(seconds * moment / 60, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  (in one of the runs)
        timer.start()
        while True:
            session.run(None, feed)
    timer.join()
    assert np.isfinite(session.run(None, feed)[0]).all()


@pytest.fixture(scope="module")
def long_session():
    session, feed = InferenceSession(model(TWO, weights()).SerializeToString(), quiet(), BOTH), {"x": np.ones((2000, 8, 3), np.float32)}
    session.run(None, feed)
    begin = time.perf_counter()
    session.run(None, feed)
    return session, feed, time.perf_counter() - begin
