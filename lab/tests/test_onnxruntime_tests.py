"""The tool that runs onnxruntime's own tests on both, with a source tree of three tests."""

import pytest

pytest.importorskip("onnxruntime")
from vkdml_lab.onnxruntime_tests.__main__ import main
from vkdml_lab.packages.__main__ import _IMPORT, changed

TESTS = '''
import unittest

import onnxruntime as ort  # a comment
import onnxruntime.backend as backend
from onnx.mapping import TENSOR_TYPE_MAP


class TestSessions(unittest.TestCase):
    def test_session(self):
        assert TENSOR_TYPE_MAP[1].np_dtype == "float32"
        assert ort.InferenceSession("testdata/matmul_1.onnx").get_inputs()[0].shape == [3, 2]

    def test_private(self):
        assert ort.InferenceSession.__module__.startswith("onnxruntime")

    def test_backend(self):
        assert backend.prepare("testdata/matmul_1.onnx")
        raise AssertionError(backend.__name__)

    def test_skipped(self):
        self.skipTest("nothing to do")
'''


@pytest.mark.device
def test_run_on_both(tmp_path, capsys):
    for name in ("python", "testdata/lora"):
        (tmp_path / "onnxruntime/test" / name).mkdir(parents=True)
    (tmp_path / "onnxruntime/test/python/onnxruntime_test_few.py").write_text(TESTS)
    assert main(tmp_path, []) == 1
    said = capsys.readouterr().out
    assert "lines changed: 2; models made: " in said
    assert ["onnxruntime_test_few", "1", "1", "0", "1", "1"] in [line.split() for line in said.splitlines()]
    assert "onnxruntime only: onnxruntime_test_few TestSessions.test_private\n    AssertionError" in said
    assert "neither: onnxruntime_test_few TestSessions.test_backend\n    AssertionError: vkdml.onnx" in said


@pytest.mark.parametrize(("line", "expected"), [
    ("import onnxruntime", "import vkdml.onnx as onnxruntime"), ("  import onnxruntime as ort  # why", "  import vkdml.onnx as ort  # why"),
    ("from onnxruntime import InferenceSession, SessionOptions", "from vkdml.onnx import InferenceSession, SessionOptions"),
    ("import onnxruntime.backend as backend", "import vkdml.onnx as backend"), ("import onnxruntime_extensions", "import onnxruntime_extensions"),
    ("from onnxruntime.capi import _pybind_state as C", "from onnxruntime.capi import _pybind_state as C"),
])
def test_imports(line, expected):
    assert _IMPORT.sub(changed, line) == expected
