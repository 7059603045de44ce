"""The conformance suite's report on broken devices must be short, right and complete."""

import pytest

from vkdml_lab.faults import broken

TESTS = [f"suite/test_reference.py::test_random_problem[{seed}]" for seed in range(60)]


@pytest.mark.device
@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "sentences"), [
    ("cell", ["| LSTM       | float32  | sequence   |", ", CoupleInputForget, ", "kernels cpu/lstm_lanes",
              "3 more runs: the same wrong bits; sequence, stepped",  # persistent is missing if workgroups give up
              "vkdml reproduce 'suite/test_reference.py::test_random_problem["]),
    ("abort", ["### 1 failed",
               "- the process crashed: SIGABRT while running it\n- driver: internal error: unknown opcode in block 7\n",
               "RNN: T 10, B 7, I 17, H 2, float64, forward", "kernels float64/projection, float64/rnn",
               "3 more runs: crashed: SIGABRT; sequence, stepped: crashed: SIGABRT"]),
    ("denormals", ["| RNN        | float32 | sequence   |", "3 more runs: the same wrong bits"])])
def test_what_is_said(fault, sentences, tmp_path):
    text = broken.report(fault, tmp_path, *TESTS)
    said = text[text.index(" tests in "):text.index("The largest share")]  # the part before the tables
    assert len(said) < 12_000
    assert max(map(len, said.splitlines())) < 500
    assert not [line for line in said.splitlines() if 'File "' in line]
    for sentence in sentences:
        assert sentence in said
