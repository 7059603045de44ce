"""Models that somebody or something has broken: what loads and runs in onnxruntime does so here, with its results."""

import random

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import vkdml
from tests.faces.onnx.support import B, T
from tests.fuzz import between, mutations
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

MODELS = list(mutations.models().items())
A_BATCH = 25
DTYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def feed_for(session, rng):
    """Random arrays; None: an input is of another type than those of the models before they were broken, or large; or empty, and onnxruntime crashes."""
    sizes = {arg.name: [{"T": T, "B": B}.get(size, 2) if isinstance(size, str | None) else size for size in arg.shape]
             for arg in session.get_inputs()}
    if any(arg.type not in DTYPES for arg in session.get_inputs()) or any(not 0 < size <= 100 for shape in sizes.values() for size in shape):
        return None
    return {arg.name: np.asarray(rng.uniform(1, 3, sizes[arg.name])).astype(DTYPES[arg.type]) for arg in session.get_inputs()}


def is_tame(proto):
    """Whether all weights are numbers of the usual size: others overflow, and where is a matter of the order of sums."""
    arrays = [np.asarray(tensor.float_data) if tensor.float_data else np.frombuffer(tensor.raw_data[:len(tensor.raw_data) // 4 * 4], np.float32)
              for tensor in proto.graph.initializer if tensor.data_type == TensorProto.FLOAT]
    floats = [attribute.f for node in proto.graph.node for attribute in node.attribute]
    return all(np.all(np.abs(array) < 100) for array in (*arrays, np.array(floats, np.float32)))


def outcome(data, feed, options, is_verified):
    """The results of a run, or what was raised."""
    try:
        session = InferenceSession(data, options, device=between.device(is_verified))
        return session.run(None, feed) if feed is not None else None, None
    except Exception as error:
        return None, error


def is_known(error):
    """Whether it is one of vkdml's or of onnxruntime's, whose own messages may be no UTF-8."""
    return isinstance(error, vkdml.errors.VkdmlError | RuntimeError | UnicodeDecodeError) or "onnxruntime" in type(error).__module__


@pytest.mark.family("batches", first=2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", range(60))
def test_as_onnxruntime(batch):
    ran = 0
    for seed in range(batch * A_BATCH, (batch + 1) * A_BATCH):
        rng = random.Random(seed)
        made = mutations.mutated(rng.choice(MODELS)[1], rng)
        data = made if isinstance(made, bytes) else mutations.as_bytes(made)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(rng.choice([0, 99]))  # off, or all
        try:
            theirs = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
            feed = feed_for(theirs, np.random.default_rng(0))
            expected = feed and theirs.run(None, feed)
        except Exception:  # of onnxruntime's, with no common base class
            feed = expected = None
        results, error = outcome(data, feed, options, rng.random() < 0.2)
        assert error is None or is_known(error), f"seed {seed}: {type(error).__name__}: {error}"
        assert error is None or expected is None, f"seed {seed}: {error}"
        if expected is None or isinstance(made, bytes) or not is_tame(made):
            continue
        ran += 1
        for result, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, other, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}")
    assert ran > A_BATCH // 6  # not all is refused


@pytest.mark.family("draws", first=1)
@pytest.mark.parametrize("batch", range(100))
def test_between_two_recurrent_nodes(batch):
    assert between.failures(batch * 5, 5) == {}
