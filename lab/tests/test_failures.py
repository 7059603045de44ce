"""Tests how `vkdml conformance` describes failures: made-up ones and, in the last tests, wrong results of a device."""

from dataclasses import replace

import numpy as np
import pytest

from lab.tests.test_conformance import run_suite
from vkdml.operators import cells
from vkdml_lab.conformance import failures
from vkdml_lab.conformance.suite import Chosen
from vkdml_lab.suite import recording
from vkdml_lab.suite.support import check, drawn_case, make_desc, run_on_device

RAN = {"schedule": "stepped", "kernels": ["cpu/lstm_lanes"], "options": {"schedule": "stepped", "rows": 2}}
WRONG = {"tensor": "OutputSequenceTensor", "at": [0, 1, 3, 2], "axes": ["t", "direction", "row", "unit"], "said": "found 0, expected 1",
         "count": 12, "elements": 60, "kind": "0"}
AGAIN = {"runs": {"the same wrong bits": 2, "right": 1}, "ways": {"sequence": "right", "stepped": "refused", "persistent": "right"}}


def made_up(number, is_wrong, operator="LSTM", **more):
    record = {"operator": operator, "element": "float32", "problem": "LSTM: T 3", "ran": RAN, **({"wrong": WRONG} if is_wrong else {}), **more}
    return {"test": f"tests/test_a.py::test[{number}]", "outcome": "failed" if is_wrong else "passed", "failure": "", "records": [record]}


def test_a_failure_is_described():
    text = failures.described(made_up(3, True, again=AGAIN), "vkdml reproduce x")
    assert text.splitlines() == [
        "`tests/test_a.py::test[3]`", "", "- LSTM: T 3",
        "- stepped; kernels cpu/lstm_lanes; Options(schedule=stepped, rows=2)",
        "- OutputSequenceTensor: 12 of 60 wrong (all of them 0), the first at t 0, direction 1, row 3, unit 2: found 0, expected 1",
        "- 2 more runs: the same wrong bits; 1 more run: right; sequence, persistent: right", "- repeat: `vkdml reproduce x`"]


def test_an_exception_keeps_its_text_in_short():
    test = {"test": "a", "outcome": "failed", "failure": "vkdml.errors.DriverError: out of memory\nand more", "records": [],
            "running": made_up(0, False)["records"][0]}
    text = failures.described(test, "again")
    assert "- vkdml.errors.DriverError: out of memory\n- LSTM: T 3\n- stepped" in text
    assert "and more" not in text


def test_failures_are_counted_by_kind():
    """A table counts failures and passes by operator, type and schedule. A single failure has no table."""
    failed = [*(made_up(number, True) for number in range(3)), made_up(3, True, operator="GRU", ran=None)]
    crashed = {"outcome": "crashed", "records": [], "running": {"again": AGAIN}}
    passed = [*(made_up(number, False) for number in range(4, 9)), made_up(9, False, operator="RNN")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in failures.by_kind([*passed, *failed, crashed]).splitlines()]
    assert [rows[0], *rows[2:]] == [["operator", "type", "schedule", "failed", "passed"], ["LSTM", "float32", "stepped", "3", "5"],
                                    ["GRU", "float32", "", "1", "0"], ["", "", "", "1", "0"]]
    assert failures.by_kind([*passed, failed[0]]) == ""


CRASH = """the process crashed: SIGABRT while compiling gpu/lstm
..........LLVM ERROR: Cannot select: intrinsic
Fatal Python error: Aborted

Current thread 0x00007f (most recent call first):
  File "/home/me/site-packages/vkdml/engine/vulkan/gpu.py", line 262 in make
  File "/usr/lib/python3.11/functools.py", line 9 in call
  File "/home/me/site-packages/vkdml/engine/vulkan/store.py", line 5 in get
  File "/home/me/site-packages/_pytest/python.py", line 1 in run
  ...
Extension modules: numpy, kp (total: 2)"""


def test_a_crash_without_pages_of_frames():
    assert failures.last_words(CRASH) == ["LLVM ERROR: Cannot select: intrinsic", "Fatal Python error: Aborted",
                                          "vkdml/engine/vulkan/gpu.py:262 in make, called by vkdml/engine/vulkan/store.py:5 in get"]


LOST = """from types import SimpleNamespace as A
    from vkdml.engine.vulkan import gpu
    gpu._open[0] = A(driver=A(lost={lost}, running={running}))
    import time
    {then}"""


@pytest.mark.family("ways to lose a device", first=1)
@pytest.mark.parametrize(("lost", "running", "then", "said"), [
    ("'it is'", None, "raise RuntimeError('the device is lost')", "RuntimeError: the device is lost"),
    (None, "A()", "time.sleep(60)", "hung: not done in 1 s")])
def test_after_a_lost_device_others_are_tested(tmp_path, monkeypatch, lost, running, then, said):
    """A new process runs the remaining tests if a test lost the device, as the device is useless, and its driver may hang."""
    monkeypatch.setattr("vkdml_lab.conformance.suite._TEST_SECONDS", 1)
    monkeypatch.setattr("vkdml_lab.conformance.suite._MOST_DIAGNOSED", 0)
    run = run_suite(tmp_path, LOST.format(lost=lost, running=running, then=then), Chosen(long=True))
    assert [test["test"].partition("::")[2] for test in run.tests][-2:] == ["test_ending", "test_very_long"]
    (_, failed) = run.failed
    assert failures.first_line(failed) == said
    assert (run.tests[-1]["outcome"], run.ended) == ("passed", "")
    assert (tmp_path / "results").read_text().count('"selected"') == 2  # processes


@pytest.fixture
def recorded(monkeypatch):
    recording.watch(monkeypatch)
    recording.RUNNING.begin("made up")
    recording.RUNNING.diagnosed.clear()
    yield recording.RECORDS
    recording.RUNNING.begin("")


def text_of_failure(device, arrays):
    """Compare a device's results with those of a reference that gets other inputs, `arrays`. Returns the failure's text."""
    case = drawn_case(make_desc(cells.RNN, 3, 3, 5, 9))
    results = run_on_device(device, case)
    wrong = replace(case, arrays={**case.arrays, **arrays})
    with pytest.raises(AssertionError) as raised:
        check(wrong, results)
    return str(raised.value)


def test_a_wrong_result_is_run_again(device, recorded):
    said = text_of_failure(device, {"BiasTensor": np.ones((1, 1, 1, 18), np.float32)}).splitlines()
    assert said[0] == "RNN: T 3, B 3, I 5, H 9, float32, forward, bias, initial state, sequence lengths"
    assert "kernels cpu/" in said[1] or "kernels gpu/" in said[1]
    assert said[2].startswith("OutputSequenceTensor: ")
    assert said[3].startswith("3 more runs: the same wrong bits; ")
    (record,) = recorded
    assert record["again"]["ways"]["sequence"] != "right"
    assert recording.RUNNING.last.problem.steps == 3


def test_only_the_first_of_a_function_are_run_again(device, recorded):
    for _ in range(3):
        text_of_failure(device, {"BiasTensor": np.ones((1, 1, 1, 18), np.float32)})
    assert ["again" in record for record in recorded] == [True, True, False]


def test_signs_and_nans_are_bits():
    zero, nan = np.zeros(2, np.float32), np.full(2, np.nan, np.float32)
    assert recording.first_wrong({"y": -zero}, {"y": zero}, recording.EXACTLY)["count"] == 2
    assert recording.first_wrong({"y": nan}, {"y": nan}, (0.1, 0.1)) is None
    assert recording.first_wrong({"y": nan}, {"y": zero}, (0.1, 0.1))["kind"] == "NaN"
    assert recording.first_wrong({"y": zero}, {"y": np.zeros(3)}, (0.1, 0.1))["said"] == "found the sizes (2,), expected (3,)"
