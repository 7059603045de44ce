"""Models that somebody or something has broken: refused with an error of vkdml's, or as right as in onnxruntime."""

import os
import random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import vkdml
from tests.faces.onnx import mutations
from tests.faces.onnx.support import B, T, check, model, weights
from vkdml.faces.onnx import graphs
from vkdml.onnx import InferenceSession, prepare, run_node, supports_device

pytestmark = pytest.mark.device

MODELS = list(mutations.models().items())
A_BATCH = 75
DTYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
GRU = "g (float[T,B,3] x) => (float[T,1,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }"


def feed_for(session, rng):
    """Random arrays; None: an input is of another type than those of the models before they were broken, or large."""
    sizes = {arg.name: [{"T": T, "B": B}.get(size, 2) if isinstance(size, str | None) else size for size in arg.shape]
             for arg in session.get_inputs()}
    if any(arg.type not in DTYPES for arg in session.get_inputs()) or any(size > 100 for shape in sizes.values() for size in shape):
        return None
    return {arg.name: np.asarray(rng.uniform(1, 3, sizes[arg.name])).astype(DTYPES[arg.type]) for arg in session.get_inputs()}


def results_of(make, feed):
    """What the session returns for what is fed; None: it refused, at load or at the run."""
    try:
        session = make()
        feed = feed_for(session, np.random.default_rng(0)) if feed is None else feed
        return feed, None if feed is None else session.run(None, feed)
    except vkdml.errors.VkdmlError:
        return feed, None


def theirs(data, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feed)
    except Exception:  # of its own, with no common base class
        return None


def is_tame(proto):
    """Whether all weights are numbers of the usual size: others overflow, and where is a matter of the order of sums."""
    arrays = [np.asarray(tensor.float_data) if tensor.float_data else np.frombuffer(tensor.raw_data[:len(tensor.raw_data) // 4 * 4], np.float32)
              for tensor in proto.graph.initializer if tensor.data_type == TensorProto.FLOAT]
    floats = [attribute.f for node in proto.graph.node for attribute in node.attribute]
    return all(np.all(np.abs(array) < 100) for array in (*arrays, np.array(floats, np.float32)))


@pytest.mark.family("batches of changes", first=4)
@pytest.mark.parametrize("batch", range(40))
def test_broken_models(batch):
    """Only VkdmlErrors come out, and what runs in both gives the same numbers."""
    ran = 0
    for seed in range(batch * A_BATCH, (batch + 1) * A_BATCH):
        broken = mutations.mutated(MODELS[seed % len(MODELS)][1], random.Random(seed))
        data = broken if isinstance(broken, bytes) else broken.SerializeToString()
        feed, ours = results_of(lambda given=broken if seed % 2 else data: InferenceSession(given), None)
        expected = theirs(data, feed) if ours is not None else None
        if expected is None or not is_tame(onnx.load_from_string(data)):
            continue
        if any(array.size == 0 for array in feed.values()):  # without steps, onnxruntime leaves last states unwritten
            continue
        ran += 1
        for result, other in zip(ours, expected, strict=True):
            np.testing.assert_allclose(result, other, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}")
    assert ran > A_BATCH // 5  # not all is refused


def changed(text=GRU, arrays=None, **fields):
    """A model with other fields. Of the first initializer: dims, data_type, raw_data; of the model: opset_import."""
    proto = model(text, weights() if arrays is None else arrays)
    for name, value in fields.items():
        target = proto if name == "opset_import" else proto.graph.initializer[0]
        if isinstance(value, list):
            target.ClearField(name)
            getattr(target, name).extend(value)
        else:
            setattr(target, name, value)
    return proto


RECURSIVE = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[T,B,3] x) => (float[T,B,3] y) { y = mine.f (x) }
    <opset_import: ["" : 17, "mine" : 1], domain: "mine"> f (p) => (q) { q = mine.f (p) }"""
SCAN = """g (float[6,6,3] x) => (float[6,6,4] y) { y = Scan <num_scan_inputs=COUNT, body = b (float[6,3] s) => (float[6,4] r) {
    k = Constant <value_ints=[0]> () u = Unsqueeze (s, k) e, h = GRU <hidden_size=4> (u, W, R) r = Squeeze (h, k) } > (x) }"""
LOOP = """g (float[1,2,3] x, float[1,2,4] h) => (float[1,2,4] y) { n = Constant <value_int=3> () y = Loop (n, , h) <
    body = b (int64 i, bool going, float[1,2,4] s) => () { e, t = GRU <hidden_size=4> (x, W, R, , , s) } > }"""
IF = """g (float[1,2,3] x, bool c) => (float[1,2,4] y) { y = If (c) <
    then_branch = t () => (float[1,2,4] a) { e, a = GRU <hidden_size=4> (x, W, R) }, else_branch = f () => () { } > }"""


@pytest.mark.parametrize(("proto", "message"), [
    (changed(opset_import=[]), "opset_import: found no version of ai.onnx"),
    (changed(opset_import=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx", 14)]), "opset_import: found 14 and 17"),
    (changed(GRU.replace("(x, W, R)", "()")), "GRU"),
    (changed(dims=[1, 12, 4]), "initializer 'W' of graph 'g'.*size"),
    (changed(dims=[1, -1, 3]), "initializer 'W' of graph 'g': found the shape"),
    (changed(data_type=99), "data type"),
    (changed(data_type=TensorProto.STRING), "W"),
    (changed(raw_data=b"12345"), "initializer 'W' of graph 'g'"),
    (parser.parse_model(RECURSIVE), "functions: .*recursive"),
    (changed(GRU.replace("y = GRU", "y = Neg (x) y = GRU")), "y"),
    (changed(SCAN.replace("COUNT", "2")), "Scan"),
    (changed(SCAN.replace("COUNT", "0")), "Scan"),
    (changed(IF), "If"),
    (changed(GRU.replace("hidden_size=4", "hidden_size=4.0")), "attribute hidden_size: found FLOAT; expected one, of type INT"),
    (changed(GRU.replace("hidden_size=4", "activations=3")), "attribute activations: found INT; expected one, of type STRINGS"),
    (changed(GRU.replace("y = GRU", "y = Unknown")), "Unknown"),
    (changed(GRU.replace("y = GRU <hidden_size=4> (x", "a = Add (x, b) b = Neg (a) y = GRU <hidden_size=4> (a")), "not acyclic"),
    (changed(GRU.replace("(x, W", "(a, W")), "'a' is not a graph input"),
    (changed(LOOP), "Loop node '': outputs of the body: found 0; expected 2"),  # which onnxruntime takes
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_wrong_is_named(proto, message):
    with pytest.raises(vkdml.errors.VkdmlError, match=message):
        InferenceSession(proto)


def test_an_attribute_given_twice():
    node = helper.make_node("GRU", ["X", "W", "R"], ["Y"], hidden_size=4)
    node.attribute.extend([node.attribute[0]])
    with pytest.raises(vkdml.InvalidArgumentError, match="attribute hidden_size: found a second one"):
        run_node(node, [np.zeros(shape, np.float32) for shape in ((1, 1, 3), (1, 12, 3), (1, 12, 4))])


def test_the_backend_takes_anything():
    node = helper.make_node("GRU", ["X", "W", "R"], ["Y"], hidden_size=4)
    for given in (None, 3, [object()] * 3, [np.zeros(3)] * 3, {"X": "x", "W": None, "R": []}, ["a", "b", "c"]):
        with pytest.raises(vkdml.InvalidArgumentError):
            run_node(node, given)
    for given in (None, b"", 3, onnx.ModelProto(), onnx.ModelProto(ir_version=8)):
        with pytest.raises(vkdml.InvalidArgumentError):
            prepare(given)
    with pytest.raises(vkdml.InvalidArgumentError, match="inputs: found int"):
        prepare(changed()).run(3)
    assert not supports_device(b"no")


def external(folder, location="w.bin", **entries):
    """A model's path, whose W is bytes of another file."""
    proto = changed()
    (folder / "w.bin").write_bytes(b"1234" + proto.graph.initializer[0].raw_data)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in ({"location": location, "offset": "4"} | entries).items():
        tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def test_external_data_stay_in_the_models_folder(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    feed = {"x": np.ones((T, B, 3), np.float32)}
    expected = InferenceSession(changed()).run(None, feed)[0]
    np.testing.assert_array_equal(InferenceSession(external(inner)).run(None, feed)[0], expected)
    os.rename(inner / "w.bin", tmp_path / "w.bin")
    (inner / "link.bin").symlink_to("../w.bin")
    for location in ("../w.bin", str(tmp_path / "w.bin"), "link.bin"):
        path = external(inner, location)
        (inner / "w.bin").unlink()
        with pytest.raises(vkdml.InvalidArgumentError, match="external_data of tensor 'W': .*outside of"):
            InferenceSession(path)
        np.testing.assert_array_equal(InferenceSession(path, allow_outside=True).run(None, feed)[0], expected)


@pytest.mark.parametrize("entries", [
    {"location": ""}, {"location": "."}, {"location": "fifo"}, {"location": "no"}, {"location": "w.bin\0"}, {"offset": "5"}, {"offset": "-4"},
    {"offset": "9" * 5000}, {"length": "999999999999999"}, {"length": "-1"}, {"length": "x"}, {"length": "140"}], ids=str)
def test_broken_external_data(tmp_path, entries):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(vkdml.InvalidArgumentError, match="'W'"):
        InferenceSession(external(tmp_path, **entries))


def test_external_data_cannot_ask_for_more_memory_than_their_files(tmp_path, monkeypatch):
    """Many tensors of the same bytes."""
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer.extend([proto.graph.initializer[0]] * 7)
    path.write_bytes(proto.SerializeToString())
    monkeypatch.setattr("vkdml.faces.onnx.models._LARGEST_MODEL", path.stat().st_size)
    with pytest.raises(vkdml.InvalidArgumentError, match="external_data of tensor 'W': .*bytes of 148"):
        InferenceSession(path)


def test_bytes_never_read_files(tmp_path, monkeypatch):
    path = external(tmp_path)
    monkeypatch.chdir(tmp_path)
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(vkdml.InvalidArgumentError, match="external_data: found a tensor in another file; .*give its path"):
            InferenceSession(source)


@pytest.mark.parametrize("depth", [50, 1000])
def test_bodies_too_deep_in_one_another(depth):
    """Serialized, they could not be parsed."""
    proto = changed()
    graph = proto.graph
    for _ in range(depth):
        attribute = graph.node.add(op_type="If", output=["y"]).attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        graph = attribute.g
    with pytest.raises(vkdml.InvalidArgumentError, match="InferenceSession: graph: found"):
        InferenceSession(proto)


def test_only_regular_files_are_models(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, message in ((tmp_path, "not a regular file"), (tmp_path / "fifo", "not a regular file"), ("/dev/zero", "not a regular file"),
                          ("no\0name", "null (byte|character)")):
        with pytest.raises(vkdml.InvalidArgumentError, match=f"path_or_bytes: .*{message}"):
            InferenceSession(path)


def test_a_file_longer_than_a_model_can_be_is_not_read(tmp_path):
    with (tmp_path / "model.onnx").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{2**40} bytes, more than"):
        InferenceSession(tmp_path / "model.onnx")


def test_ordering_looks_at_each_node_once(monkeypatch):
    """Nodes in reverse order, which took a pass over all nodes for each node."""
    looks = []
    uses = graphs.uses
    monkeypatch.setattr(graphs, "uses", lambda node: looks.append(node) or uses(node))
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(2000)]
    graph = helper.make_graph(nodes[::-1], "g", [], [helper.make_empty_tensor_value_info("v2000")])
    assert graphs.ordered(graph) == nodes
    assert len(looks) == 2000


def test_a_body_sees_only_what_it_uses():
    """Not all names around it, of which there may be as many as bodies."""
    names = " ".join(f"n{i} = Neg (x)" for i in range(50))
    text = f"""g (float[T,B,3] x, bool c) => (float[1,B,4] y) {{ {names} y = If (c) <
        then_branch = t () => (float[1,B,4] p) {{ q, p = GRU <hidden_size=4> (n7, W, R, B) }},
        else_branch = f () => (float[1,B,4] u) {{ v, u = GRU <hidden_size=4> (n8, W, R, B) }} > }}"""
    session = check(model(text, weights()), c=np.array(True))
    (step,) = (step for step in session._program._steps if hasattr(step, "bodies"))
    assert [set(body._scope.types) - {"q", "p", "u", "v"} for body in step.bodies] == [{"n8"}, {"n7"}]
