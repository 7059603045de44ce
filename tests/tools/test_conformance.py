"""The conformance report: errors as they are measured, and what becomes of failures, crashes and hangs. Records are made up."""

import json
import sys

import numpy as np
import pytest

import vkdml
from tests import recording
from tests.support import DTYPES, Case, check, features, gru_desc, make_desc, random_arrays, tensor
from tools import conformance
from vkdml.spec import cells, descs, reference

DEVICE = {"index": 3, "name": "Some GPU", "type": "discrete", "driver": "somedrv", "driver_version": "1.2", "api_version": "1.3.0"}


def errors(result, expected, element="float32"):
    return recording.largest_errors(np.asarray(result, np.float64), np.asarray(expected, np.float64), element)


@pytest.mark.parametrize(("element", "bits", "smallest_normal"), [
    ("bfloat16", 8, 2.0**-126), ("float16", 11, 2.0**-14), ("float32", 24, 2.0**-126), ("float64", 53, 2.0**-1022)])
def test_ulp(element, bits, smallest_normal):
    last = 2.0 ** (1 - bits)  # of 1
    ulps = {1.0: last, -1.5: last, 2 - last: last, 2 - last / 4: 2 * last, 2.0: 2 * last, 3.0: 2 * last, 1024.0: 1024 * last,
            smallest_normal: smallest_normal * last, smallest_normal * last: smallest_normal * last, 0.0: smallest_normal * last}
    np.testing.assert_array_equal(recording.ulp(np.array(list(ulps)), element), list(ulps.values()))


@pytest.mark.parametrize("element", DTYPES)
def test_neighbours_are_one_ulp_apart(element):
    values = np.array([1, 1.75, 3, 100, 1e-3, -7]).astype(element)
    bits = values.view(f"u{values.itemsize}")
    neighbours = (bits + np.ones_like(bits)).view(values.dtype)
    assert errors(neighbours, values, element) == (np.abs(neighbours.astype(float) - values.astype(float)).max(), 1.0)


@pytest.mark.device
def test_the_devices_are_listed():
    """In a process of its own, which imports vkdml by text."""
    assert vkdml.Device().info.name in [device["name"] for device in conformance.enumerate_devices()]


def test_half_an_ulp_of_what_is_expected():
    assert errors([1.0], [1 + 2.0**-24]) == (2.0**-24, 0.5)


def test_too_large_for_the_type():
    """As of the type's largest number."""
    assert errors([65504.0], [65504.0 + 64], "float16") == (64.0, 2.0)


def test_nan_and_infinity():
    special = [np.nan, np.inf, -np.inf, 1.0]
    assert errors(special, special) == (0.0, 0.0)
    for result, expected in [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (np.inf, 1.0), (1.0, np.inf)]:
        assert errors([0.0, result], [0.0, expected]) == (None, None)


def test_shapes_that_disagree():
    assert errors([1.0, 2.0], [1.0]) == (None, None)


def test_a_case_is_recorded_passed_or_failed():
    desc = gru_desc(3, 2, 4, 5, 2, LinearBeforeReset=True, BiasTensor=None)
    case = Case(desc, 0.5, random_arrays(desc, np.random.default_rng(0)))
    results = {field: array.astype(np.float32) for field, array in reference.run(case.problem, case.arrays).items()}
    check(case, results)
    results["OutputSequenceTensor"][0] += 1
    with pytest.raises(AssertionError):
        check(case, results)
    good, bad = recording.RECORDS
    assert (good["operator"], good["element"]) == ("GRU", "float32")
    assert good["features"] == ["LinearBeforeReset", "bidirectional", "clip", "initial state", "sequence lengths"]
    assert good["absolute"] < 1e-7
    assert good["ulp"] <= 0.5
    assert bad["absolute"] == pytest.approx(1)


def test_features():
    plain = make_desc(cells.LSTM, **dict.fromkeys(["SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor", "BiasTensor",
                                                   "PeepholeTensor"]))
    assert features(Case(plain, None, {})) == {"forward"}
    activation = descs.DML_ACTIVATION_RELU_OPERATOR_DESC()
    full = make_desc(cells.LSTM, 3, 2, 4, 5, Direction=1, CoupleInputForget=True, ActivationDescs=[activation] * 3, HiddenInitTensor=None,
                     InputTensor=tensor(1, 3, 2, 4, Strides=(48, 16, 8, 2)))
    assert features(Case(full, 1.0, {})) == {"backward", "bias", "clip", "CoupleInputForget", "custom activations", "initial state",
                                             "peepholes", "sequence lengths", "strides"}


def record(operator="GRU", element="float32", features=("forward",), absolute=1e-7, ulp=2.0):
    return {"operator": operator, "element": element, "features": list(features), "absolute": absolute, "ulp": ulp}


def made_up(name, outcome="passed", records=(), failure=""):
    return {"test": name, "outcome": outcome, "failure": failure, "records": list(records)}


TESTS = [
    made_up("test_a", records=[record(), record(element="float16", ulp=0.5)]),
    made_up("test_b", records=[record(features=("forward", "clip"), absolute=3e-7, ulp=1.0)]),
    made_up("test_c", "failed", [record("LSTM", absolute=None, ulp=None)], "AssertionError: \nNot equal to tolerance\nx and y nan"),
    made_up("test_d", "failed", failure="vkdml.errors.DriverError: out of memory"),
]


def test_merging():
    run = conformance.Run(DEVICE, TESTS, 12.3)
    assert conformance.summarize(run, conformance.by_operator) == {
        ("GRU", "float16"): [1, 1, 0, 1e-7, 0.5], ("GRU", "float32"): [2, 2, 0, 3e-7, 2.0],
        ("LSTM", "float32"): [1, 0, 1, None, None]}
    assert conformance.summarize(run, conformance.by_feature) == {
        ("clip",): [1, 1, 0, 3e-7, 1.0], ("forward",): [4, 3, 1, None, None]}
    assert run.outcome == "4 tests in 12 s: 2 passed, 2 failed"


def test_both_files(tmp_path):
    crashed = conformance.Run(DEVICE | {"name": "Other GPU"}, [], 1.0, "crashed: SIGSEGV", "Fatal Python error")
    conformance.write([conformance.Run(DEVICE, TESTS, 12.3), crashed], tmp_path / "new")
    text = (tmp_path / "new" / "conformance.md").read_text()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "## 3: Some GPU" in lines
    assert any(line.startswith("discrete; somedrv 1.2; Vulkan 1.3.0; vkdml ") for line in lines)
    assert "| GRU | float32 | 2 | 2 | 0 | 3.0e-07 | 2 |" in lines
    assert "| LSTM | float32 | 1 | 0 | 1 | not finite | not finite |" in lines
    assert "| clip | 1 | 1 | 0 | 3.0e-07 | 1 |" in lines
    assert "- `test_c`: Not equal to tolerance" in lines
    assert "- `test_d`: vkdml.errors.DriverError: out of memory" in lines
    assert "0 tests in 1 s: 0 passed, 0 failed, crashed: SIGSEGV" in lines
    assert "Fatal Python error" in lines
    written = json.loads((tmp_path / "new" / "conformance.json").read_text(), parse_constant=pytest.fail)
    assert [run["device"]["name"] for run in written["runs"]] == ["Some GPU", "Other GPU"]
    assert written["runs"][0]["tests"] == TESTS


SUITE = """
import os, signal
import numpy as np
from tests import recording

def test_good():
    recording.add("RNN", "float32", ["forward"], [(np.ones(1), np.ones(1))])

def test_bad():
    recording.add("RNN", "float32", ["forward"], [(np.array([1.5]), np.array([0.5]))])
    np.testing.assert_allclose(1, 0)

def test_ending():
    {ending}

def test_very_long():
    pass
"""


def run_suite(tmp_path, ending, *arguments):
    """A suite of its own in pytest, with the options of this one."""
    (tmp_path / "test_suite.py").write_text(SUITE.format(ending=ending))
    return conformance.run_suite(DEVICE, ["-p", "tests.conftest", str(tmp_path), *arguments])


def test_a_run(tmp_path):
    run = run_suite(tmp_path, "pass")
    assert [test["outcome"] for test in run.tests] == ["passed", "failed", "passed"]
    assert run.ended == run.output == ""
    (bad,) = run.failed
    assert bad["test"].endswith("test_suite.py::test_bad")
    assert conformance.first_line(bad["failure"]).startswith("Not equal to tolerance rtol=1e-07")
    assert conformance.summarize(run, conformance.by_operator) == {("RNN", "float32"): [2, 1, 1, 1.0, 2.0**24]}


def test_a_crash(tmp_path):
    """What had ended before is kept, and the test that was running is named."""
    run = run_suite(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    assert run.ended == "crashed: SIGSEGV"
    assert "Segmentation fault" in run.output
    assert [test["outcome"] for test in run.tests] == ["passed", "failed", "unfinished"]
    assert run.failed[-1]["test"].endswith("test_ending")
    assert "test_ending`: the process ended during it" in conformance.section(run)


def test_a_hang(tmp_path):
    report = tmp_path / "report"
    report.touch()
    ended, output = conformance.supervise(
        [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(100)"], {}, report, silence=1)
    assert (ended, output) == ("hung: no progress in 1 s", "here")


def test_a_suite_that_cannot_run(tmp_path):
    run = run_suite(tmp_path, ")")
    assert run.ended == "crashed: exit code 2"
    assert "SyntaxError" in run.output


def test_long(tmp_path):
    """The tests named *_long are there only if asked for."""
    assert run_suite(tmp_path, "pass", "--long").tests[-1]["test"].endswith("test_very_long")


def test_devices_by_index_or_name():
    assert conformance.select([DEVICE, DEVICE | {"index": 4, "name": "Other 3"}], ["3"]) == [DEVICE]
    assert conformance.select([DEVICE], ["some"]) == [DEVICE]
    with pytest.raises(SystemExit, match=r"no Vulkan device 'x' or '7'; the devices are .3. Some GPU"):
        conformance.select([DEVICE], ["x", "7"])
