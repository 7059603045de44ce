"""What our sessions add to onnxruntime's: warm_up, assignment, explain, names of onnxruntime's, and arguments."""

import inspect
import re
import subprocess
import sys
import threading
import warnings

import numpy as np
import onnxruntime
import pytest

import vkdml.onnx
from tests.faces.onnx.support import GRU, IF, STACK, B, H, I, T, alone, inputs_of, model, weights
from tests.faces.support import packed_bytes
from vkdml.faces.onnx import provider
from vkdml.onnx import AssignedNode, InferenceSession

pytestmark = pytest.mark.device

TWICE = weights(directions=2) | weights(directions=2, inputs=2 * H, suffix="1")
NOTHING = "g (float[T,B,3] x) => (float[T,B,3] y) { y = Neg(x) }"


def test_names_of_onnxruntimes():
    assert vkdml.onnx.SessionOptions is onnxruntime.SessionOptions
    assert all(name.startswith("_") or hasattr(vkdml.onnx, name) for name in dir(onnxruntime))
    script = "from vkdml.onnx import datasets; print(datasets.get_example('mul_1.onnx'))"  # where the module has not been imported yet
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.endswith("mul_1.onnx\n")
    with pytest.raises(AttributeError, match="nothing_like_it"):
        vkdml.onnx.nothing_like_it  # noqa: B018


@pytest.mark.family("schedules", first=1)
@pytest.mark.parametrize("schedule", ["sequence", "stepped", "persistent"])
def test_shapes_in_turn(schedule):
    """Networks of other lengths use the same buffers, one after the other."""
    proto, rng = model(STACK, TWICE), np.random.default_rng(0)
    ours, theirs = InferenceSession(proto, options=vkdml.Options(schedule=schedule)), alone(proto)
    for t, b in [(9, 2), (12, 2), (5, 2), (9, 2), (40, 1), (3, 5), (12, 2), (64, 1), (40, 1), (9, 2)]:
        feed = inputs_of(ours, rng, {"T": t, "B": b}) | {"lengths": rng.integers(1, t + 1, b).astype(np.int32)}
        for result, expected in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-4)


def test_nothing_is_made_after_a_warm_up(device):
    """Nor by a second session of the model; more than 64 shapes are not kept."""
    def made():
        return device.gpu.pipelines_made, packed_bytes(device)
    proto = model(STACK, TWICE)
    session = InferenceSession(proto)
    session.warm_up(T=[3, 5], B=B)
    before = made()
    for t in (5, 3):
        feed = inputs_of(session, np.random.default_rng(0), {"T": t, "B": B}) | {"lengths": np.array([t, 1], np.int32)}
        np.testing.assert_array_equal(session.run(None, feed)[0], InferenceSession(proto).run(None, feed)[0])
    assert made() == before
    small = InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights()))
    for t in range(1, 70):
        small.run(None, {"x": np.ones((t, 1, I), np.float32)})
    assert len(small._provider.runs[0]._calls.values()) == 64


@pytest.mark.parametrize(("sizes", "message"), [((0, 1), "InferenceSession: warm_up: T: found 0"), ((1, [1, -2]), "warm_up: B: found -2"),
                                                ((), "InferenceSession: warm_up: T: found None; expected whole numbers from 1")])
def test_wrong_sizes(sizes, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights())).warm_up(*sizes)


def test_explained_before_a_run_and_after():
    session = InferenceSession(model(GRU.format("GRU <hidden_size=4>").replace("float[T,B,3]", "float[7,B,3]"), weights()))
    (problem,), = session.explain().values()
    assert repr(problem).startswith("<Problem GRU: T ")
    assert (problem.steps, problem.batch, problem.hidden) == (7, 1, H)
    session.run(None, {"x": np.ones((7, 3, I), np.float32)})
    assert [(found.steps, found.batch) for found in session.explain()["GRU node"]] == [(7, 3)]
    assert [(found.steps, found.batch) for found in session.explain(T=9)["GRU node"]] == [(9, 1)]
    text = "g (float[T,B,3] x, float[1,12,3] W) => (float[T,D,B,4] y) { y = GRU <hidden_size=4> (x, W, R) }"
    assert InferenceSession(model(text, {"R": weights()["R"]})).explain(T=3) == {"GRU node": []}


def test_where_nodes_run(device):
    proto = model(IF, weights())
    proto.graph.node[0].name = "\x1b"  # which a terminal would obey
    assignment = InferenceSession(proto).assignment()
    assert {(node.graph, node.op_type, node.runs_on) for node in assignment.nodes} >= {
        ("", "Tanh", "onnxruntime"), ("", "If", "onnxruntime"), ("then", "Abs", "onnxruntime"), ("then", "GRU", "device"),
        ("else", "Exp", "onnxruntime"), ("else", "GRU", "device")}
    assert "\x1b" not in str(assignment)
    lines = str(assignment).splitlines()
    assert lines[0] == assignment.headline == f"2 of {len(assignment.nodes)} nodes run on {device.info.name}"
    assert lines[1].split() == ["runs", "on", "operator", "name", "graph", "reason"]
    assert assignment.groups()[0] == {"runs_on": "device", "nodes": 2, "operators": {"GRU": 2}}


def test_a_model_without_a_node_for_the_device_warns(no_sessions, recwarn, monkeypatch):
    first = InferenceSession(model(IF, weights()))
    InferenceSession(model(NOTHING))
    assert not recwarn.list  # as another session has some
    monkeypatch.setattr(provider, "NodeGraph", None)  # it is not described
    del first
    with pytest.warns(vkdml.NothingOnDeviceWarning, match="of 1 nodes none is a GRU") as seen:
        session = InferenceSession(model(NOTHING))
    assert seen[0].filename == __file__
    assert session.assignment().nodes == (AssignedNode("", "Neg", "", "", "onnxruntime"),)


def test_an_argument_that_onnxruntime_would_ignore():
    """A misspelled one; and the arguments that onnxruntime reads are all known."""
    with pytest.warns(UserWarning, match="InferenceSession ignores sess_option, as onnxruntime does"):
        InferenceSession(model(IF, weights()), sess_option=onnxruntime.SessionOptions())
    source = inspect.getsource(onnxruntime.InferenceSession.__init__)
    read = sorted(set(re.findall(r"""kwargs(?:\.get\(|\[)["'](\w+)""", source)))
    assert read
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InferenceSession(model(IF, weights()), **{name: [] if name.startswith("disabled") else 0 for name in read})


@pytest.mark.parametrize("text", [IF, STACK, GRU.format("GRU <hidden_size=4>")])
def test_the_cpu_before_the_provider_takes_all_and_is_said_to(text):
    """Also where another session has nodes on the device: the first list is onnxruntime's own of what is available."""
    before = InferenceSession(model(text, TWICE if text is STACK else weights()))
    with pytest.warns(vkdml.NothingOnDeviceWarning, match="GRU node '': CPUExecutionProvider stands before VkdmlExecutionProvider"):
        session = InferenceSession(model(text, TWICE if text is STACK else weights()), providers=onnxruntime.get_available_providers())
    assert {(node.graph, node.op_type) for node in session.assignment().nodes} == {(node.graph, node.op_type) for node in before.assignment().nodes}
    assert {node.op_type == "GRU": bool(node.reason) for node in session.assignment().nodes}.items() >= {(True, True)}
    session = InferenceSession(model(text, TWICE if text is STACK else weights()), providers=vkdml.onnx.get_available_providers())
    assert session.assignment() == before.assignment()


def test_providers_may_change():
    session = InferenceSession(bytearray(model(GRU.format("GRU <hidden_size=4>"), weights()).SerializeToString()))
    x = {"x": np.ones((T, B, I), np.float32)}
    first = session.run(None, x)[0]
    session.set_providers(["CPUExecutionProvider"])
    assert not session.assignment().on("device")
    np.testing.assert_allclose(session.run(None, x)[0], first, atol=1e-5)
    session.set_providers()
    assert session.assignment().on("device")
    np.testing.assert_array_equal(session.run(None, x)[0], first)


def test_many_runs_at_once():
    """Each sees its own arrays, also where the caller has let go of them, and tells its own data."""
    session, heard, done = InferenceSession(model(GRU.format("GRU <hidden_size=4>"), weights())), {}, threading.Semaphore(0)
    expected = [session.run(None, {"x": np.full((t, B, I), t / 10, np.float32)})[0] for t in range(1, 9)]
    for t in range(1, 9):
        session.run_async(None, {"x": np.full((t, B, I), t / 10, np.float32)},
                          lambda results, t, error: (heard.update({t: (results[0], error)}), done.release()), t)
    assert all(done.acquire(timeout=60) for _ in expected)
    for t, wanted in enumerate(expected, 1):
        np.testing.assert_array_equal(heard[t][0], wanted)
        assert heard[t][1] == ""
