"""Whole ONNX models through onnxruntime's calls, compared with ONNX Runtime alone."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime.capi import onnxruntime_pybind11_state

import vkdml
from tests.faces.onnx.support import GRU, STACK, B, H, I, T, check, inputs_of, kinds, model, weights
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device


@pytest.mark.parametrize("sizes", [(5, 2), (1, 1), (9, 3)])
def test_a_stack_with_lengths_and_dynamic_shapes(sizes):
    t, b = sizes
    session = check(model(STACK, weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")),
                    sizes={"T": t, "B": b}, lengths=np.arange(b, dtype=np.int32) % t + 1)
    assert kinds(session) == ["DeviceRun", "Piece"]  # shapes and weights are no piece
    assert session.get_inputs()[0].shape == ["T", "B", 3]
    assert session.get_outputs()[1].shape == [2, "B", 4]


@pytest.mark.family("each operator in each opset")
@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 14, 16, 21, 22])
@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_opsets(op, gates, opset):
    text = f"g (float[T,B,3] x) => (float[T,D,B,4] z) {{ a = Tanh(x) y = {op} <hidden_size=4> (a, W, R, B) z = Neg(y) }}"
    check(model(text, weights(gates), opset))


def test_functions():
    parsed = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
        g (float[T,B,3] x) => (float[T,D,B,4] y) { y = mine.layer (x, W, R) }
        <opset_import: ["" : 17], domain: "mine">
        layer (p, q, r) => (z) { a = Tanh(p) z = GRU <hidden_size=4> (a, q, r) }""")
    for name in ("W", "R"):
        parsed.graph.initializer.append(numpy_helper.from_array(weights()[name], name))
    assert kinds(check(parsed)) == ["Piece", "DeviceRun"]


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
    with pytest.raises(vkdml.InvalidArgumentError, match="external_data of tensor .*No such file"):
        InferenceSession(tmp_path / "model.onnx")


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


def test_like_lengths_share_pipelines(device):
    made = None
    session = InferenceSession(model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }", weights()))
    theirs = onnxruntime.InferenceSession(
        model("g (float[T,B,3] x) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }", weights()).SerializeToString())
    for t in (42, 36, 40):
        feed = {"x": np.random.default_rng(t).standard_normal((t, 1, I)).astype(np.float32)}
        np.testing.assert_allclose(session.run(None, feed)[0], theirs.run(None, feed)[0], atol=1e-5)
        made = made or device.gpu.pipelines_made
        assert device.gpu.pipelines_made == made


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
                           (np.ones((T, B, I)), "input_feed: x: found float64; expected float32")):
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


# What else onnxruntime's sessions have

SMALL = "g (float[T,B,3] x) => (float[T,D,B,4] z) { a = Tanh(x) y = RNN <hidden_size=4> (a, W, R, B) z = Neg(y) }"
X = np.ones((2, 1, I), np.float32)


def test_what_a_model_says_of_itself():
    described = model(SMALL, weights(1))
    described.producer_name, described.model_version, described.doc_string, described.domain = "me", 7, "small", "mine"
    described.graph.doc_string = "a graph"
    helper.set_model_props(described, {"author": "me"})
    data = described.SerializeToString()
    found, expected = InferenceSession(data).get_modelmeta(), onnxruntime.InferenceSession(data).get_modelmeta()
    for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map"):
        assert getattr(found, name) == getattr(expected, name)


def test_providers_and_options():
    options = onnxruntime.SessionOptions()
    session = InferenceSession(model(SMALL, weights(1)), options, [("CPUExecutionProvider", {})])
    assert session.get_providers() == ["VkdmlExecutionProvider", "CPUExecutionProvider"]
    assert session.get_provider_options() == {"VkdmlExecutionProvider": {"device": session.device.info.name},
                                              "CPUExecutionProvider": {}}
    assert session.get_session_options().log_severity_level == options.log_severity_level
    assert session.get_overridable_initializers() == []


@pytest.mark.parametrize(("told", "given", "asked", "hidden"), [
    ("1", None, [], True), ("1", False, [], False), ("", True, ["CPUExecutionProvider"], True), ("0", None, [], False),
    ("", True, ["VkdmlExecutionProvider"], False), ("1", None, ["VkdmlExecutionProvider", "CPUExecutionProvider"], False),
])
def test_a_hidden_provider(monkeypatch, told, given, asked, hidden):
    monkeypatch.setenv("VKDML_HIDE_PROVIDER", told)
    session = InferenceSession(model(SMALL, weights(1)).SerializeToString(), providers=asked, hide_provider=given)
    for _ in range(2):
        assert session.get_providers() == ["VkdmlExecutionProvider"] * (not hidden) + ["CPUExecutionProvider"]
        assert len(session.assignment().on("device")) == 1
        session.set_providers(asked)


def test_a_wrong_word_about_hiding(monkeypatch):
    monkeypatch.setenv("VKDML_HIDE_PROVIDER", "yes")
    with pytest.raises(vkdml.InvalidArgumentError, match="VKDML_HIDE_PROVIDER in the environment: found 'yes'; expected 0 or 1"):
        InferenceSession(model(SMALL, weights(1)))


def test_run_options_reach_onnxruntime():
    session, run_options = InferenceSession(model(SMALL, weights(1))), onnxruntime.RunOptions()
    expected, = session.run(None, {"x": X}, None)
    np.testing.assert_array_equal(session.run(None, {"x": X}, run_options)[0], expected)
    run_options.terminate = True
    with pytest.raises(vkdml.OnnxRuntimeError, match="terminate"):
        session.run(None, {"x": X}, run_options)
    for call in (lambda: session.run(None, {"x": X}, {}), lambda: session.run_async(None, {"x": X}, print, None, {})):
        with pytest.raises(vkdml.InvalidArgumentError, match=r"run_options: found dict; expected onnxruntime.RunOptions or None"):
            call()


def test_ort_values():
    session = InferenceSession(model(SMALL, weights(1)))
    expected, = session.run(None, {"x": X})
    result, = session.run_with_ort_values(["z"], {"x": onnxruntime.OrtValue.ortvalue_from_numpy(X)})
    np.testing.assert_array_equal(result.numpy(), expected)


def echo(kind, sizes):
    return InferenceSession(model(f"g (float[T,B,3] x, {kind}[{sizes}] n) => (float[T,D,B,4] y, {kind}[{sizes}] m) "
                                  "{ y = RNN <hidden_size=4> (x, W, R) m = Identity (n) }", weights(1)))


@pytest.mark.parametrize(("kind", "sizes", "given", "expected"), [
    ("int32", "N", [3, 2], np.array([3, 2], np.int32)), ("float", "N", [1, 2.5], np.array([1, 2.5], np.float32)),
    ("float16", "N,M", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.float16)), ("bool", "N", [True, False], np.array([True, False])),
    ("int32", "", 3, np.array(3, np.int32)), ("float", "", 0.1, np.array(0.1, np.float32)), ("float", "N", [], np.array([], np.float32)),
    ("int64", "N", [True], np.array([1])), ("float", "N", [float("inf")], np.array([np.inf], np.float32)),
])
def test_lists_and_numbers_become_what_is_declared(kind, sizes, given, expected):
    result = echo(kind, sizes).run(["m"], {"x": X, "n": given})[0]
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("kind", "given", "found"), [
    ("int32", [1.5], "1.5"), ("int32", [2**40], str(2**40)), ("uint8", [-1], "-1"), ("float16", [1e6], "1000000.0"), ("int32", ["a"], "<U1"),
    ("int64", [float("nan")], "nan"), ("bool", [2], "2"),
])
def test_lists_that_the_declared_type_does_not_hold(kind, given, found):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"input_feed: n: found {found}; expected"):
        echo(kind, "N").run(["m"], {"x": X, "n": given})


def bound(session):
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    return binding


def test_bound_inputs_and_outputs():
    session = InferenceSession(model(SMALL, weights(1)))
    expected, = session.run(None, {"x": X})
    binding = bound(session)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), expected)


def test_pointers_and_ort_values_are_bound():
    session = InferenceSession(model(SMALL, weights(1)))
    expected, = session.run(None, {"x": X})
    x, z = X.copy(), np.zeros_like(expected)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("z", "cpu", 0, np.float32, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(z, expected)
    x *= 2
    session.run_with_iobinding(binding)  # what is there now
    np.testing.assert_array_equal(z, session.run(None, {"x": 2 * X})[0])
    given = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(expected))
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("z", given)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(given.numpy(), expected)


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda binding: binding.bind_cpu_input("y", X), "bind_cpu_input: found 'y'; expected one of x"),
    (lambda binding: binding.bind_output("x"), "bind_output: found 'x'; expected one of z"),
    (lambda binding: binding.bind_output("z", "cuda"), "device_type: found 'cuda'; expected 'cpu'"),
    (lambda binding: binding.bind_input("x", "cuda", 0, np.float32, (1,), 1), "device_type: found 'cuda'; expected 'cpu'"),
    (lambda binding: binding.bind_output("z", "cpu", 0, "no type", (1,), X.ctypes.data), "element_type: found 'no type'"),
    (lambda binding: binding.bind_output("z", "cpu", 0, np.float32, (1,), X.ctypes.data), r"z: found bound as tensor\(float\) \[1\]"),
    (lambda binding: None, "iobinding: found no outputs"),
])
def test_wrong_bindings(wrong, message):
    session = InferenceSession(model(SMALL, weights(1)))
    binding = bound(session)
    with pytest.raises(vkdml.InvalidArgumentError, match=message):  # noqa: PT012  (when it is bound, or when it runs)
        wrong(binding)
        session.run_with_iobinding(binding)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"sess_options": {}}, "sess_options: found dict; expected a SessionOptions or None"),
    ({"providers": "CPUExecutionProvider"}, "providers: found str; expected a Sequence or None"),
    ({"providers": [3]}, "providers: found 3; expected names"),
    ({"providers": ["CPUExecutionProvider"], "provider_options": []}, "provider_options: found 0 entries; expected 1"),
    ({"providers": ["CPUExecutionProvider"], "provider_options": [3]}, "providers: found .*; expected names, or names with dict"),
    ({"providers": [("VkdmlExecutionProvider", {"id": 1})]}, "options of VkdmlExecutionProvider: found .*; expected device alone"),
    ({"providers": [("VkdmlExecutionProvider", {"device": "no such"})]}, "no such"),
    ({"hide_provider": 1}, "hide_provider: found int; expected True, False or None"),
    ({"enable_fallbak": 1}, "enable_fallbak: found an unknown argument; expected one of sess_options, "),
    ({"devise": "Radeon"}, "devise: found an unknown argument; expected one of .*, device, .*disabled_optimizers"),
])
def test_wrong_arguments(arguments, message):
    with pytest.raises((vkdml.InvalidArgumentError, vkdml.DriverError), match=message):
        InferenceSession(model(SMALL, weights(1)), **arguments)


def test_providers_of_a_model_proto_stay():
    with pytest.raises(vkdml.InvalidArgumentError, match="set_providers: session: found one of a ModelProto"):
        InferenceSession(model(SMALL, weights(1))).set_providers(["CPUExecutionProvider"])


def test_bytes_that_may_change_and_models_of_onnxruntimes_own_format(tmp_path):
    data = bytearray(model(SMALL, weights(1)).SerializeToString())
    session = InferenceSession(data)
    data[:] = bytes(len(data))
    session.set_providers(["CPUExecutionProvider"])
    session.run(None, {"x": X})
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    onnxruntime.InferenceSession(model(SMALL, weights(1)).SerializeToString(), options)
    for source in (tmp_path / "model.ort", (tmp_path / "model.ort").read_bytes()):
        with pytest.raises(vkdml.InvalidArgumentError, match="path_or_bytes: found .*onnxruntime's own format.*; expected an ONNX model"):
            InferenceSession(source)


def test_members_that_nobody_has():
    with pytest.raises(AttributeError, match="InferenceSession.*no_such"):
        InferenceSession(model(SMALL, weights(1))).no_such  # noqa: B018


def test_results_go_to_the_cpu():
    vector, device = onnxruntime_pybind11_state.OrtValueVector(), onnxruntime.OrtDevice.make("cuda", 0)._get_c_device()
    with pytest.raises(vkdml.InvalidArgumentError, match="fetch_devices: found another device; expected the CPU"):
        InferenceSession(model(SMALL, weights(1))).run_with_ortvaluevector(None, [], vector, ["z"], vector, [device])


def test_options_that_change_after_loading(tmp_path, monkeypatch):
    """Also where a run makes a program of its own."""
    monkeypatch.chdir(tmp_path)
    options = onnxruntime.SessionOptions()
    proto = model("g (float[T,B,3] x, float[1,4,3] W) => (float[T,D,B,4] z) { a = Tanh(x) y = RNN <hidden_size=4> (a, W, R) z = Neg(y) }",
                  weights(1))
    session = InferenceSession(proto, options)
    options.enable_profiling, options.optimized_model_filepath = True, "optimized.onnx"
    assert not session.run(None, {"x": X, "W": np.zeros((1, 4, 3), np.float32)})[0].any()
    assert not list(tmp_path.iterdir())
