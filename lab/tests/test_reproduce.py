"""`vkdml reproduce`, and its dumps, which must replay without vkdml."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vkdml
from vkdml import cli

pytestmark = pytest.mark.device

OP_F_ADD, OP_F_MUL = 129, 133
PACKAGES = Path(vkdml.__file__).resolve().parents[1]
CASE = "suite/test_reference.py::test_schedule[chunked-LSTM]"


def replayed(folder, tmp_path):
    """Run replay.py in a process that cannot import vkdml."""
    (tmp_path / "vkdml.py").write_text("raise SystemExit('vkdml was imported')")
    done = subprocess.run([sys.executable, folder / "replay.py"], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PACKAGES)])})
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def mistaken(spirv):
    """Return SPIR-V with sums in place of all products."""
    words, at = np.frombuffer(spirv, "<u4").copy(), 5
    while at < words.size:
        if words[at] == 5 << 16 | OP_F_MUL:
            words[at] = 5 << 16 | OP_F_ADD
        at += int(words[at]) >> 16
    return words.tobytes()


def test_a_dump_replays(tmp_path, capsys):
    """The dump gives right results, and wrong ones after changing its SPIR-V or weights."""
    folder = tmp_path / "dump"
    assert cli.main(["reproduce", CASE, "--dump", str(folder)]) == 0
    assert "1 passed" in capsys.readouterr().out
    code, said = replayed(folder, tmp_path)
    assert (code, said[0], said[2:]) == (0, "LSTM: T 9, B 7, I 10, H 21, float32, bidirectional, bias, clip 0.2, initial state, "
                                         "peepholes, sequence lengths", ["right"])
    content = json.loads((folder / "replay.json").read_text())
    loops = [kernel for kernel in content["kernels"] if "lstm" in kernel["name"]]
    assert {"HIDDEN", "COUPLE_INPUT_FORGET"} <= set(loops[0]["constants"])
    assert [of["name"] for of in content["expected"]] == ["OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor"]
    assert (folder / "found" / "OutputSequenceTensor.npy").exists()
    assert {path.name for path in (folder / "packed").iterdir()} >= {"packed recurrent weights.bin"}
    loop = folder / content["kernels"][-1]["file"]
    right = loop.read_bytes()
    loop.write_bytes(mistaken(right))
    code, said = replayed(folder, tmp_path)
    assert (code, said[2]) == (1, "wrong")
    assert said[3].startswith("OutputSequenceTensor: ")
    assert "the first at [0, 0, " in said[3]
    loop.write_bytes(right)
    weights = next((folder / "buffers").glob("*RecurrenceTensor*"))
    weights.write_bytes(bytes(weights.stat().st_size))
    assert replayed(folder, tmp_path)[0] == 1


@pytest.mark.family("operators, types and schedules", first=1)
@pytest.mark.parametrize("case", [
    "test_reference.py::test_schedule[plain stepped-GRU]", "test_reference.py::test_random_problem[4]",  # float64
    "test_reference.py::test_schedule[plain persistent chunked-GRU]",
    "test_reference.py::test_random_problem[37]", "test_gpu_kernels.py::test_each_way_is_right_and_gives_the_same_bits[persistent-GRU in float16]",
    "test_plain.py::test_gemm[3]", "test_plain.py::test_slices[5]", "test_elementwise.py::test_random[9]",
    "test_onnxruntime.py::test_random_node[5]", "test_onnx_backend.py::OnnxBackendNodeModelTest::test_gru_defaults_cpu",
    "test_isolation.py::test_the_same_bits_each_time_and_rows_apart[stepped-GRU-float32]"])
def test_dumps_replay(tmp_path, case):
    """These cases have other types, schedules with several submissions, and all ways into a device. The last one has many equal
    submissions, which are written once, and its last comparison is not of a whole output.
    """
    folder = tmp_path / "dump"
    assert cli.main(["reproduce", f"suite/{case}", "--dump", str(folder)]) == 0
    code, said = replayed(folder, tmp_path)
    if not said[2].startswith("workgroups gave up"):  # on a busy machine
        no_whole_output = "it ran to its end; the test compared no whole output with what is right"
        assert (code, said[2:]) == (0, [no_whole_output if "isolation" in case else "right"])


DISCRETE = """
from vkdml.engine.vulkan.gpu import Gpu
make = Gpu.__init__
def discrete(self, info):
    make(self, info)
    self.host_memory = False
Gpu.__init__ = discrete
"""


@pytest.mark.thorough
@pytest.mark.parametrize("case", [CASE, "suite/test_reference.py::test_schedule[plain stepped-GRU]"])
def test_a_dump_of_a_device_with_memory_of_its_own(tmp_path, monkeypatch, case):
    """Its buffers have copies on the host, which are uploaded."""
    (tmp_path / "discrete.py").write_text(DISCRETE)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p discrete")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    folder = tmp_path / "dump"
    assert cli.main(["reproduce", case, "--dump", str(folder)]) == 0
    code, said = replayed(folder, tmp_path)
    assert (code, said[2:]) == (0, ["right"])


def test_what_cannot_be_reproduced(tmp_path, capsys):
    assert cli.main(["reproduce", "suite/test_reference.py::test_nothing"]) == 1
    assert "CASE: found 'suite/test_reference.py::test_nothing'; expected a test of the suite" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert cli.main(["reproduce", CASE, "--dump", str(tmp_path)]) == 1
    assert "--dump: found " in capsys.readouterr().err
