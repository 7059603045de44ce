"""Scripts that are written for onnxruntime: the same calls on its module and on vkdml.onnx must give the same."""

from types import ModuleType

import numpy as np
import onnxruntime
import pytest

import vkdml.onnx
from tests.faces.onnx.support import I, model, weights

pytestmark = pytest.mark.device

MODULES = [onnxruntime, vkdml.onnx]
SMALL = "g (float[T,B,3] x) => (float[T,D,B,4] z) { a = Tanh(x) y = RNN <hidden_size=4> (a, W, R, B) z = Neg(y) }"
X = np.ones((2, 1, I), np.float32)


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__)
def ort(request) -> ModuleType:
    """Of the name under which scripts import it."""
    return request.param


@pytest.fixture(scope="module")
def small():
    """A model's bytes."""
    return model(SMALL, weights(1)).SerializeToString()


@pytest.fixture(scope="module")
def expected(small):
    return onnxruntime.InferenceSession(small).run(None, {"x": X})[0]


# The module

def test_names_that_scripts_import():
    for name in dir(onnxruntime):
        assert name.startswith("_") or hasattr(vkdml.onnx, name), name
    assert vkdml.onnx.SessionOptions is onnxruntime.SessionOptions
    assert vkdml.onnx.__version__ == onnxruntime.__version__
    assert not hasattr(vkdml.onnx, "__path__")  # it is no package
    with pytest.raises(AttributeError, match="nothing_like_it"):
        vkdml.onnx.nothing_like_it  # noqa: B018


def test_a_script_unchanged_but_for_the_import(ort, small, expected):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(small, options, providers=ort.get_available_providers())
    name, = (arg.name for arg in session.get_inputs())
    value = ort.OrtValue.ortvalue_from_numpy(X, "cpu", 0)
    result, = session.run_with_ort_values([session.get_outputs()[0].name], {name: value}, ort.RunOptions())
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)


# Bound inputs and outputs

def test_a_binding_made_by_its_class(ort, small, expected):
    session = ort.InferenceSession(small)
    binding = ort.IOBinding(session)
    binding.bind_input("x", "cpu", 0, 1, X.shape, X.ctypes.data)  # 1: ONNX's float
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    vector = binding.get_outputs_as_ortvaluevector()
    np.testing.assert_allclose([value.numpy() for value in vector], [expected], atol=1e-6)


# Nothing to compute. onnxruntime ends the process for a GRU without steps, and for a GRU or LSTM without rows

@pytest.mark.parametrize(("steps", "rows", "op"), [(0, 2, "LSTM"), (0, 2, "RNN"), (3, 0, "RNN"), (0, 0, "RNN")])
def test_no_steps_or_no_rows(ort, steps, rows, op):
    gates = {"LSTM": 4, "RNN": 1}[op]
    text = (f"g (float[T,B,3] x, float[1,B,4] h) => (float[T,1,B,4] y, float[1,B,4] last) "
            f"{{ a = Tanh (x) y, last = {op} <hidden_size=4> (a, W, R, B, , h) }}")
    session = ort.InferenceSession(model(text, weights(gates)).SerializeToString())
    y, last = session.run(None, {"x": np.ones((steps, rows, I), np.float32), "h": np.ones((1, rows, 4), np.float32)})
    assert (y.shape, last.shape, y.dtype) == ((steps, 1, rows, 4), (1, rows, 4), np.float32)
    assert not last.any()
