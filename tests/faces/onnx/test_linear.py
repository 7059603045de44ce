"""Linear layers between recurrent nodes: on the device where that is faster, with the results of onnxruntime."""

import numpy as np
import onnxruntime
import pytest

import vkdml
from tests.faces.onnx.support import H, kinds, model, weights
from vkdml.faces.onnx import linear, programs
from vkdml.onnx import InferenceSession

pytestmark = pytest.mark.device

T, B = 5, 2
HEAD = "g (float[{sizes},3] x) => (float[A,C,D,E] y) {{ one = Constant <value_ints=[1]> () zero = Constant <value_ints=[0]> ()" \
       " p, q = GRU <hidden_size=4> (x, W, R, B) s = Squeeze (p, one) f = Squeeze (q, zero)" \
       " {} y = GRU <hidden_size=4> (a, W1, R1, B1) }}"
FORMS = {
    "MatMul": "a = MatMul (s, M)",
    "MatMul and Add": "m = MatMul (s, M) a = Add (m, v)",
    "an activation": "m = MatMul (s, M) n = Add (v, m) a = Tanh (n)",
    "a constant first": "m = Sub (v, s) n = Mul (m, v) a = Relu (n)",
    "an activation with a parameter": "a = HardSigmoid <alpha=0.3> (s)",
    "residual": "m = MatMul (s, M) a = Add (m, s)",
    "Gemm": "m = Gemm (f, M) a = Unsqueeze (m, zero)",
    "Gemm, transposed and scaled": "m = Gemm <transB=1, alpha=0.5, beta=2.0> (f, M, v) a = Unsqueeze (m, zero)",
}


def made(text, sizes="T,B"):
    rng = np.random.default_rng(0)
    arrays = {"M": rng.standard_normal((H, H)).astype(np.float32), "v": rng.standard_normal(H).astype(np.float32)}
    return model(HEAD.format(text, sizes=sizes), weights() | weights(inputs=H, suffix="1") | arrays)


def expect_alike(proto, share=0):
    ours = InferenceSession(proto, device=vkdml.Device(verify=share))
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    for seed in range(2):
        feed = {"x": np.random.default_rng(seed).standard_normal((T, B, 3)).astype(np.float32)}
        np.testing.assert_allclose(ours.run(None, feed)[0], theirs.run(None, feed)[0], atol=1e-5, rtol=1e-4)
    return ours


def as_on_a_gpu(monkeypatch):
    """Products are the device's."""
    monkeypatch.setattr(programs, "linear", lambda *arguments: linear.linear(*arguments[:-1], False))


@pytest.mark.parametrize("share", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form, share, monkeypatch):
    as_on_a_gpu(monkeypatch)
    ours = expect_alike(made(FORMS[form]), share)
    assert kinds(ours) == ["DeviceRun"]
    assert not ours.assignment().on("onnxruntime")


def test_a_cpu_leaves_products_to_the_host():
    assert kinds(expect_alike(made(FORMS["MatMul"], f"{T},{B}"))) == ["DeviceRun", "Piece", "DeviceRun"]


def test_a_factor_that_is_fed_stays_on_the_host(monkeypatch):
    as_on_a_gpu(monkeypatch)
    assert kinds(expect_alike(made("t = Transpose <perm=[1,0]> (f) k = MatMul (f, t) m = MatMul (k, f) a = Unsqueeze (m, zero)"))
                 ) == ["DeviceRun", "Piece", "DeviceRun"]
