"""What another process gets: devices, layers, ONNX sessions and PyTorch modules, through pickle."""

import contextlib
import copy
import io
import multiprocessing
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import vkdml
from vkdml.engine.trust.self_test import PLAIN_PROBLEMS, types_of
from vkdml.onnx import InferenceSession
from vkdml.planning.options import Options
from vkdml_lab.suite.support import gru_desc, random_arrays, run_on_device

pytestmark = pytest.mark.device

SAVED = Path(__file__).parent / "saved"

W, R, X = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) / 4 for shape in ((1, 12, 3), (1, 12, 4), (5, 2, 3)))
MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[T,B,3] x, float[1,12,3] w, float[1,12,4] r) => (float[T,1,B,4] y) {
    y = GRU <hidden_size=4> (x, w, r) }"""


def model(tmp_path=None):
    """Its bytes, or the path of a file."""
    made = parser.parse_model(MODEL)
    if tmp_path is None:
        return made.SerializeToString()
    onnx.save(made, tmp_path / "model.onnx")
    return "model.onnx"


def called(what):
    """The results for X, as a list of arrays."""
    if isinstance(what, InferenceSession):
        return what.run(None, {"x": X, "w": W, "r": R})
    if isinstance(what, vkdml.Device):
        return list(vkdml.gru(X, W, R, device=what))
    if isinstance(what, vkdml.GRU | vkdml.LSTM | vkdml.RNN):
        return list(what(X))
    if isinstance(what, vkdml.Operator):
        arrays = random_arrays(gru_desc(), np.random.default_rng(0))
        return list(run_on_device(vkdml.Device(), SimpleNamespace(problem=what.problem, arrays=arrays)).values())
    import torch  # only where it is needed, as it takes seconds

    with torch.inference_mode():
        return [what(torch.from_numpy(X))[0].numpy()]


def answer(pipe):
    """In another process: call what comes."""
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(([array.tobytes() for array in called(pipe.recv())], os.getpid()))


class Named(vkdml.GRU):
    """A caller's own layer."""

    def __init__(self, name):
        super().__init__(W, R, linear_before_reset=True)
        self.name = name


def ordinary(tmp_path):
    device = vkdml.Device()
    return [device, vkdml.GRU(W, R), vkdml.GRU(W, R, device=device.info.name, direction="reverse"), Named("mine"),
            vkdml.LSTM(np.repeat(W, 4, 1)[:, :16], np.repeat(R, 4, 1)[:, :16], p=W.reshape(1, -1)[:, :12], clip=1.0,
                       activations=[vkdml.DML_ACTIVATION_ELU_OPERATOR_DESC(Alpha=0.5), *[vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()] * 2]),
            vkdml.RNN(W[:, :4], R[:, :4], options=Options(schedule="stepped", parts=2)),
            InferenceSession(model()), InferenceSession(model(tmp_path), device=device), device.create_operator(gru_desc())]


def of_torch(_):
    import torch

    from vkdml.torch import convert

    return [convert(torch.nn.GRU(3, 4).eval()), convert(torch.nn.Sequential(torch.nn.GRU(3, 4)).eval(), vkdml.Device())]


@pytest.mark.parametrize("make", [ordinary, pytest.param(of_torch, marks=pytest.mark.thorough)])
def test_another_process_gives_the_same_bits(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = make(tmp_path)
    monkeypatch.chdir("/")  # a path is the one that it was at load
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=answer, args=(theirs,))
    other.start()
    theirs.close()
    try:
        for what in objects:
            ours.send(what)
            results, process = ours.recv()
            assert results == [array.tobytes() for array in called(what)], what
            assert process == other.pid
    finally:
        ours.close()
        other.join()


class Reading(pickle.Unpickler):
    """names: the modules of vkdml that a pickle names."""

    def __init__(self, file):
        super().__init__(file)
        self.names = set()

    def find_class(self, module, name):
        self.names |= {module} if module.startswith("vkdml.") else set()
        return super().find_class(module, name)


@pytest.mark.parametrize("make", [ordinary, of_torch])
def test_pickles_name_public_modules_alone(make, tmp_path, monkeypatch):
    """Whose names docs/api.md promises; not those of Operators, which it excepts."""
    monkeypatch.chdir(tmp_path)
    for what in make(tmp_path):
        reading = Reading(io.BytesIO(pickle.dumps(what)))
        reading.load()
        assert isinstance(what, vkdml.Operator) or reading.names <= {"vkdml.onnx", "vkdml.torch"}, what


def test_pickles_of_earlier_versions_compute(monkeypatch):
    """Of version 0.1, on another machine."""
    monkeypatch.setattr("vkdml.faces.directml.device.select_again", lambda index, name: vkdml.Device().info)
    saved = pickle.loads((SAVED / "ordinary.pickle").read_bytes())
    for what, expected in saved["computing"]:
        for result, wanted in zip(called(what), expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    assert saved["options"] == Options(schedule="stepped", rows=2, lanes=False)
    assert saved["type"] is vkdml.DML_TENSOR_DATA_TYPE.FLOAT16
    assert [str(error) for error in saved["errors"]] == ["text"] * 7 + ["vkdml.gru: X: found 3; expected 4"] * 3
    assert {type(error) for error in saved["errors"][:8]} == {getattr(vkdml, name) for name in vkdml.__all__ if name.endswith(("Error", "Warning"))}


def test_torch_files_of_earlier_versions_compute():
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")
    saved = torch.load(SAVED / "torch.pt", weights_only=False)
    with torch.no_grad():
        for twin, expected in zip(saved["twins"], saved["results"], strict=True):
            is_cell = isinstance(twin, torch.nn.RNNCellBase)
            result = twin(saved["x"][0] if is_cell else saved["x"])
            torch.testing.assert_close(result[0] if isinstance(result, tuple) else result, expected)


def test_what_was_set_comes_with_it():
    device = vkdml.Device(verify=0.5)
    device.set_name("first")
    assert copy.deepcopy(device) == device
    assert copy.deepcopy(device).name == "first"
    layer = pickle.loads(pickle.dumps(Named("mine")))
    assert (type(layer), layer.name) == (Named, "mine")
    session = Session(vkdml.Device().info.index)
    session.name = "mine"
    for copied in (pickle.loads(pickle.dumps(session)), copy.copy(session), copy.deepcopy(session)):
        assert (type(copied), copied.name, copied._given) == (Session, "mine", session._given)
        assert called(copied)[0].tobytes() == called(session)[0].tobytes()


def test_a_session_has_the_providers_that_it_was_given():
    """Whatever its maker does with the lists."""
    names, options = ["VkdmlExecutionProvider", "CPUExecutionProvider"], [{"device": "0"}, {}]
    made, changed = InferenceSession(model(), None, names, options), InferenceSession(model())
    changed.set_providers(names, options)
    names[0], options[0]["device"] = "none such", "none such"
    for session in (made, changed):
        assert called(pickle.loads(pickle.dumps(session)))[0].tobytes() == called(session)[0].tobytes()


class Session(InferenceSession):
    """A caller's own, whose constructor has other arguments."""

    def __init__(self, device):
        super().__init__(model(), None, ["VkdmlExecutionProvider", "CPUExecutionProvider"], device=device, options=Options(fused=False))


class Picklable(InferenceSession):
    """As onnxruntime's users make theirs picklable."""

    def __init__(self, path):
        super().__init__(path)
        self.path = path

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.__init__(state["path"])


def test_sessions_that_users_made_picklable():
    for copied in (pickle.loads(pickle.dumps(Picklable(model()))), copy.copy(Picklable(model()))):
        assert isinstance(copied, Picklable)
        assert called(copied)[0].shape == (len(X), 1, X.shape[1], 4)


@pytest.mark.parametrize("kind", PLAIN_PROBLEMS)
def test_plain_operators_that_are_not_compiled(kind):
    operator = vkdml.Operator(PLAIN_PROBLEMS[kind](types_of(kind)[0]))
    operator.set_name("first")
    sent = pickle.loads(pickle.dumps(operator))
    assert (sent.name, sent.problem) == (operator.name, operator.problem)


CARRYING = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'


@pytest.mark.parametrize(("make", "message"), [
    (lambda: InferenceSession(model(), ort.SessionOptions()), "pickle: found a session with sess_options"),
    (lambda: vkdml.GRU(W, R).stream(), "pickle: object: found a Stream,"),
    (lambda: vkdml.Device().create_buffer(4), "a Buffer"),
    (lambda: vkdml.Device().create_command_recorder(), "a CommandRecorder, .* a layer, an ONNX session"),
    (lambda: vkdml.Device().compile_operator(vkdml.Device().create_operator(gru_desc())), "a CompiledOperator"),
    (lambda: InferenceSession(parser.parse_model(CARRYING)).stream({"y": "x"}), "a SessionStream"),
])
def test_what_cannot_be_pickled_says_so(make, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        pickle.dumps(make())
