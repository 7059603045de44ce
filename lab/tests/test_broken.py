"""What the conformance suite says of devices that are broken on purpose: short, right and enough."""

import pytest

from vkdml_lab.faults import broken

pytestmark = [pytest.mark.device, pytest.mark.thorough]

TESTS = ["suite/test_reference.py", "-m", "not thorough", "-k", "test_random_problem"]


def report(fault, folder):
    """What the report says before its tables."""
    text = broken.report(fault, folder, *TESTS)
    said = text[text.index(" tests in "):text.index("The largest share")]
    assert len(said) < 12_000
    assert max(map(len, said.splitlines())) < 500
    assert not [line for line in said.splitlines() if 'File "' in line]
    return said


def test_a_wrong_cell(tmp_path):
    said = report("cell", tmp_path)
    assert ": CoupleInputForget, LSTM; so have " in said
    assert "kernels cpu/lstm_lanes" in said
    assert "3 more runs: the same wrong bits; sequence, stepped: the same wrong bits" in said
    assert "vkdml reproduce 'suite/test_reference.py::test_random_problem[" in said


def test_a_kernel_that_aborts(tmp_path):
    said = report("abort", tmp_path)
    assert "### 1 failed" in said
    assert "- the process crashed: SIGABRT while running it\n- driver: internal error: unknown opcode in block 7\n" in said
    assert "RNN: T 10, B 7, I 17, H 2, float64, forward" in said
    assert "kernels float64/projection, float64/rnn" in said
    assert "3 more runs: crashed: SIGABRT; sequence, stepped: crashed: SIGABRT" in said


def test_a_kernel_that_hangs(tmp_path):
    said = report("hang", tmp_path)
    assert "### 1 failed" in said
    assert "- hung: not done in 15 s\n- GRU: T 12, B 3, I 5, H 4, float64" in said
    assert "1 more run: hung: not done in 15 s" in said


def test_a_driver_that_flushes_denormals(tmp_path):
    said = report("denormals", tmp_path)
    assert ": subnormal inputs, float32; so have " in said
    assert "3 more runs: the same wrong bits" in said
