"""ONNX models of converted modules: they hold ONNX's operators, which vkdml.onnx then runs on the device."""

import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")
onnx = pytest.importorskip("onnx", reason="ONNX is an extra: pip install 'vkdml[onnx]'")

from torch import nn

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import SEQUENCES, B, H, I, T, flat, states
from vkdml.onnx import InferenceSession

pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore")]


class Model(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.rnn = SEQUENCES[kind](I, H, 2, **settings)
        self.cell = nn.LSTMCell(H * (1 + self.rnn.bidirectional), H)

    def forward(self, x, h=None, c=None):
        y, last = self.rnn(x, h if c is None else (h, c))
        return y, *flat(last), *self.cell(y[-1])


def ran(model, inputs):
    arrays = {value.name: tensor.numpy() for value, tensor in zip(model.graph.input, inputs)}
    return [torch.from_numpy(y) for y in InferenceSession(model.SerializeToString()).run(None, arrays)]


def operators(model, kind):
    return [node.op_type for node in model.graph.node if node.op_type in (kind, "LSTM")]


@pytest.mark.family("kinds alike", first=1)
@pytest.mark.parametrize("kind", SEQUENCES)
def test_models_that_are_traced(kind):
    file, model = io.BytesIO(), Model(kind, bidirectional=True).eval()
    torch.onnx.export(vt.convert(model), (torch.randn(T, B, I),), file, input_names=["x"], dynamic_axes={"x": {0: "T", 1: "B"}}, dynamo=False)
    exported = onnx.load_from_string(file.getvalue())
    assert operators(exported, kind)[:2] == [kind] * 2
    x = torch.randn(7, 2, I)
    torch.testing.assert_close(ran(exported, [x]), flat(model(x)), atol=1e-5, rtol=1e-5)


def exported(model, inputs, dynamic):
    return torch.onnx.export(vt.convert(model), inputs, dynamo=True, verbose=False, dynamic_shapes=dynamic,
                             custom_translation_table=vt.onnx_translations()).model_proto


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{}, {"bidirectional": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("kind", [*SEQUENCES, "relu"])
def test_models_that_are_exported(kind, settings):
    """For any number of steps and rows, without initial states and with them."""
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    kind, settings = ("RNN", {**settings, "nonlinearity": "relu"}) if kind == "relu" else (kind, settings)
    model = Model(kind, **settings).eval()
    x = torch.randn(7, 2, I)
    rows = {1: torch.export.Dim("B")}
    sizes = {0: torch.export.Dim("T"), **rows}
    made = exported(model, (torch.randn(T, B, I),), (sizes,))
    assert operators(made, kind) == [kind, kind, "LSTM"]
    torch.testing.assert_close(ran(made, [x]), flat(model(x)), atol=1e-5, rtol=1e-5)
    given, later = flat(states(model.rnn)), flat(states(model.rnn, 2))
    made = exported(model, (torch.randn(T, B, I), *given), (sizes, *(rows for _ in given)))
    torch.testing.assert_close(ran(made, [x, *later]), flat(model(x, *later)), atol=1e-5, rtol=1e-5)


@pytest.mark.thorough
def test_a_gru_behind_a_convolution_is_exported():
    """Of open sizes, and with a stride: PyTorch's own GRU is not."""
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")

    class Behind(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rnn = nn.Conv1d(I, H, 3, stride=2), nn.GRU(H, H, batch_first=True)

        def forward(self, x):
            return self.rnn(self.conv(x).transpose(1, 2))[0]

    model, x = Behind().eval(), torch.randn(3, I, 33)
    made = exported(model, (torch.randn(2, I, 20),), ({0: "B", 2: "T"},))
    assert operators(made, "GRU") == ["GRU"]
    torch.testing.assert_close(ran(made, [x]), flat(model(x)), atol=1e-5, rtol=1e-5)


def test_what_onnx_does_not_have_is_refused():
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    translate = vt.onnx_translations()[torch.ops.vkdml.lstm.default]
    for weights, sizes, found in (([None] * 5, None, "proj_size"), ([None] * 4, torch.tensor([1]), "a PackedSequence")):
        with pytest.raises(vkdml.InvalidArgumentError, match=f"LSTM: torch.onnx.export: found {found}; expected none"):
            translate(None, [], weights, sizes, "LSTM", I, H, 1, False, 0)


def test_onnxscript_may_be_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(vkdml.MissingPackageError, match="onnx_translations needs the package onnxscript: pip install onnxscript"):
        vt.onnx_translations()
