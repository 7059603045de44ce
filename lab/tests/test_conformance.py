"""Tests `vkdml conformance` on made-up tests: how it measures errors, its reports, crashes, and runs that resume."""

import io
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from tqdm import tqdm

import vkdml
from vkdml import cli
from vkdml.operators import cells, reference
from vkdml.operators.header import descs
from vkdml_lab.conformance import failures, report, results, suite
from vkdml_lab.conformance.suite import Chosen, Run
from vkdml_lab.suite import recording
from vkdml_lab.suite.describing import features
from vkdml_lab.suite.devices import GPU
from vkdml_lab.suite.support import OTHER_SCHEDULES, TOLERANCES, Case, check, drawn_case, gru_desc, make_desc, tensor

DEVICE = asdict(replace(GPU, index=3, name="Some GPU", driver="somedrv", driver_version="1.2", api_version="1.3.0", vendor=0x1234,
                        device_id=7, driver_id=13, uuid="00112233-4455-6677-8899-aabbccddeeff", pci_address="0000:0b:00.0"))
SOFTWARE = {"vkdml": "0.1.0", "kp": "0.9.0", "loader": "1.3.239", "layers": {"VK_LAYER_some": "1.3.0 (1)"},
            "Python": "3.11.2", "numpy": "2.0.0", "onnx": "1.23.0", "onnxruntime": "1.20.0", "system": "Linux"}
ALL = Chosen()
ABOUT = {"device": DEVICE, "software": SOFTWARE, "chosen": Chosen(seed=5).described()}


@pytest.mark.parametrize(("element", "bits", "smallest_normal"), [
    ("bfloat16", 8, 2.0**-126), ("float16", 11, 2.0**-14), ("float32", 24, 2.0**-126), ("float64", 53, 2.0**-1022)])
def test_ulp(element, bits, smallest_normal):
    last = 2.0 ** (1 - bits)  # ULP of 1
    ulps = {1.0: last, -1.5: last, 2 - last: last, 2 - last / 4: 2 * last, 2.0: 2 * last, 3.0: 2 * last, 1024.0: 1024 * last,
            smallest_normal: smallest_normal * last, smallest_normal * last: smallest_normal * last, 0.0: smallest_normal * last}
    np.testing.assert_array_equal(recording.ulp(np.array(list(ulps)), element), list(ulps.values()))


NONE, NAN, INF = (None, None, None), np.nan, np.inf


@pytest.mark.parametrize(("result", "expected", "element", "absolute", "ulp", "fraction"), [
    ([1.0], [1 + 2.0**-24], "float32", 2.0**-24, 0.5, None),
    ([1e-8], [0.0], "float32", 1e-8, 1e-8 / 2.0**-27, 1e-3),  # ULP of 0.1, at which both parts of the tolerance are 1e-5
    ([1.0001, 0.00002], [1.0, 0.0], "float32", 1e-4, None, 2),  # the smaller error is the larger share
    ([100.01, 0.0], [100.0, 0.0], "float32", 0.01, None, 0.01 / 0.01001),
    ([65504.0], [65504.0 + 64], "float16", 64.0, 2.0, None),  # ULP of the type's largest number
    ([NAN, INF, -INF, 1.0], [NAN, INF, -INF, 1.0], "float32", 0.0, 0.0, 0.0),
    *(([0.0, result], [0.0, expected], "float32", *NONE) for result, expected in [(NAN, 1.0), (1.0, NAN), (INF, -INF), (INF, 1.0), (1.0, INF)]),
    ([1.0, 2.0], [1.0], "float32", *NONE),
])
def test_errors(result, expected, element, absolute, ulp, fraction):
    found = recording.largest_errors(np.asarray(result, np.float64), np.asarray(expected, np.float64), element, (1e-4, 1e-5))
    if absolute is None:
        assert found == NONE
    for one, right in zip(found, (absolute, ulp, fraction)):
        assert right is None or one == pytest.approx(right)


def test_a_case_is_recorded_passed_or_failed():
    case = drawn_case(gru_desc(3, 2, 4, 5, 2, LinearBeforeReset=True, BiasTensor=None), 0.5)
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
    assert good["fraction"] < 0.01
    assert bad["absolute"] == pytest.approx(1)
    assert bad["fraction"] > 1


def test_features():
    plain = make_desc(cells.LSTM, **dict.fromkeys(["SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor", "BiasTensor",
                                                   "PeepholeTensor"]))
    assert features(Case(plain, None, {}).problem) == {"forward"}
    activation = descs.DML_ACTIVATION_RELU_OPERATOR_DESC()
    full = make_desc(cells.LSTM, 3, 2, 4, 5, Direction=1, CoupleInputForget=True, ActivationDescs=[activation] * 3, HiddenInitTensor=None,
                     InputTensor=tensor(1, 3, 2, 4, Strides=(48, 16, 8, 2)))
    assert features(Case(full, 1.0, {}).problem) == {"backward", "bias", "clip", "CoupleInputForget", "custom activations", "initial state",
                                             "peepholes", "sequence lengths", "strides"}


def record(operator="GRU", element="float32", features=("forward",), absolute=1e-7, ulp=2.0, fraction=0.25):
    return {"operator": operator, "element": element, "features": list(features), "absolute": absolute, "ulp": ulp, "fraction": fraction}


def made_up(name, outcome="passed", records=(), failure=""):
    return {"test": f"tests/test_made_up.py::{name}", "outcome": outcome, "seconds": 3.0, "failure": failure, "records": list(records)}


GOOD = [
    made_up("test_a", records=[record(), record(element="float16", ulp=0.5)]),
    made_up("test_b", records=[record(features=("forward", "clip"), absolute=3e-7, ulp=1.0, fraction=0.5)]),
    made_up("test_skipped", "skipped", failure="the driver ends no loops"),
]
TESTS = [
    *GOOD,
    made_up("test_c", "failed", [record("LSTM", absolute=None, ulp=None, fraction=None)], "AssertionError: \nNot equal to tolerance\nx and y nan"),
    made_up("test_d", "failed", failure="vkdml.errors.DriverError: out of \x1bmemory"),
]
SCOPE = {"selected": 5, "left_out": 7, "tolerances": TOLERANCES}


def lines_of(runs, folder):
    folder.mkdir(exist_ok=True)
    report.write(runs, folder)
    return [" ".join(line.split()) for line in (folder / "conformance.md").read_text().splitlines()]


def test_both_files(tmp_path):
    crashed = Run(ABOUT | {"device": DEVICE | {"name": "Other GPU"}}, [], {}, "crashed: SIGSEGV", "Fatal Python error")
    runs = [Run(ABOUT, TESTS, SCOPE), crashed]
    lines = lines_of(runs, tmp_path / "new")
    for line in [
            "## 3: Some GPU",
            "| device | Some GPU, discrete, vendor 0x1234, device 0x7 |",
            "| driver | somedrv 1.2, id 13 |",
            "| Vulkan | 1.3.0; loader 1.3.239 |",
            "| layers there | VK_LAYER_some 1.3.0 (1) |",
            "| software | vkdml 0.1.0, Python 3.11.2, numpy 2.0.0, onnx 1.23.0, onnxruntime 1.20.0, kp 0.9.0 |",
            "| chosen | --seed 5 |",
            "| GRU | float32 | 2 | 2 | 0 | 3.0e-07 | 2 | 50.0% |",
            "| LSTM | float32 | 1 | 0 | 1 | not finite | not finite | not finite |",
            "| clip | 1 | 1 | 0 | 3.0e-07 | 1 | 50.0% |",
            "| float32 | 0.0001 | 1e-05 |",
            "The largest share of a tolerance is not finite: LSTM, float32, in `tests/test_made_up.py::test_c`.",
            "`tests/test_made_up.py::test_c`",
            "- Not equal to tolerance",
            "- repeat: `vkdml reproduce tests/test_made_up.py::test_d --device 3 --seed 5`",
            "- 1: the driver ends no loops",
            "7 tests of the suite were not chosen.",
            "0 tests in 0 s: 0 passed, 0 failed, crashed: SIGSEGV",
            "Fatal Python error"]:
        assert line in lines
    written = json.loads((tmp_path / "new" / "conformance.json").read_text(), parse_constant=pytest.fail)
    assert [run["about"]["device"]["name"] for run in written["runs"]] == ["Some GPU", "Other GPU"]
    assert written["runs"][0]["tests"] == TESTS


def test_the_case_nearest_to_its_tolerance(tmp_path):
    assert "The largest share of a tolerance is 50.0%: GRU, float32, in `tests/test_made_up.py::test_b`." in lines_of(
        [Run(ABOUT, GOOD, SCOPE)], tmp_path)


SUITE = """
import os, signal
import numpy as np
import pytest
from vkdml_lab.suite import recording

@pytest.mark.parametrize("number", range(3))
def test_good(number):
    recording.compare("RNN", "float32", ["forward"], dict(y=np.ones(1)), dict(y=np.ones(1)), (1e-4, 1e-5))

def test_bad():
    recording.compare("RNN", "float32", ["forward"], dict(y=np.array([1.5])), dict(y=np.array([0.5])), (1e-4, 1e-5))

def test_skipped():
    pytest.skip("no reason")

def test_ending():
    {ending}

def test_very_long():
    pass
"""


def run_suite(tmp_path, ending="pass", chosen=ALL, resume=False, plugins=()):
    """Run SUITE's made-up tests. Returns a Run. ending: body of test_ending. chosen: options. plugins: arguments of pytest."""
    (tmp_path / "test_suite.py").write_text(SUITE.format(ending=ending))
    return suite.run_suite(tmp_path / "results", {**ABOUT, "chosen": chosen.described()}, chosen, resume,
                           tests=["-p", "vkdml_lab.suite.plugin", *plugins, str(tmp_path)])


def names(run):
    return [test["test"].partition("::")[2] for test in run.tests]


def test_a_run(tmp_path):
    run = run_suite(tmp_path)
    assert [test["outcome"] for test in run.tests] == ["passed"] * 3 + ["failed", "skipped", "passed"]
    assert run.ended == run.output == ""
    (bad,) = run.failed
    assert bad["test"].endswith("test_suite.py::test_bad")
    assert failures.first_line(bad) == "RNN, float32: y: 1 of 1 wrong, the first at [0]: found 1.5, expected 0.5, off by 1, 16,700 times the tolerance"
    assert failures.first_line(run.skipped[0]) == "no reason"
    assert report.summarize(run, report.by_operator)[("RNN", "float32")][:5] == [4, 3, 1, 1.0, 2.0**24]
    assert (run.scope["selected"], run.scope["left_out"]) == (6, 0)
    assert run.scope["tolerances"]["float16"] == list(TOLERANCES["float16"])


@pytest.mark.thorough
def test_a_crash(tmp_path, monkeypatch):
    """The report names the test that ran when the process crashed. The other tests run in a new process."""
    monkeypatch.setattr(suite, "_MORE_RUNS", 1)
    run = run_suite(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)", Chosen(only=("good[2]", "test_ending", "very_long"), long=True))
    assert (names(run), run.ended) == (["test_good[2]", "test_ending", "test_very_long"], "")
    (crashed,) = run.failed
    assert failures.first_line(crashed) == "the process crashed: SIGSEGV while running it"
    assert crashed["running"]["again"] == {"runs": {"crashed: SIGSEGV": 1}, "ways": dict.fromkeys(OTHER_SCHEDULES, "crashed: SIGSEGV")}
    assert "Segmentation fault" in crashed["failure"]
    lines = lines_of([run], tmp_path / "report")
    assert "- Fatal Python error: Segmentation fault" in lines
    assert len(lines) < 60


@pytest.mark.thorough
def test_resuming(tmp_path):
    """A resumed run leaves out the tests that ended or crashed before. It runs all others, such as an interrupted one."""
    run = run_suite(tmp_path)
    path = tmp_path / "results"
    scope, tests = results.read(path)
    crashed = {**tests[0], "outcome": "crashed"}
    unfinished = {"test": tests[4]["test"], "outcome": "unfinished"}
    lines = [json.dumps(line) for line in (scope, crashed, *tests[1:3], unfinished)]
    path.write_text("\n".join([*lines, '{"test": "cut sho']))
    resumed = run_suite(tmp_path, resume=True)
    assert sorted(names(resumed)) == sorted(names(run))
    assert [test["outcome"] for test in resumed.tests] == ["crashed", "passed", "passed", "failed", "skipped", "passed"]
    assert path.read_text().count("test_good[1]") == 1  # its end


def test_only_a_run_like_it_is_resumed(tmp_path):
    path = tmp_path / "results"
    results.begin(path, ABOUT, resume=True)
    before = path.read_text()
    results.begin(path, ABOUT, resume=True)
    with pytest.raises(vkdml.InvalidArgumentError, match="--resume: found .* of another device, version or choice of tests"):
        results.begin(path, {**ABOUT, "chosen": Chosen(seed=3).described()}, resume=True)
    assert path.read_text() == before


def test_a_suite_that_cannot_run(tmp_path):
    run = run_suite(tmp_path, ")")
    assert run.ended == "crashed: exit code 2"
    assert "SyntaxError" in run.output


def test_what_is_chosen(tmp_path):
    """--long adds tests named *_long. --only selects by name. --quick runs the first case of each test, then further ones."""
    only = run_suite(tmp_path, chosen=Chosen(only=("good[1]", "VERY"), long=True))
    assert (names(only), only.scope["selected"], only.scope["left_out"]) == (["test_good[1]", "test_very_long"], 2, 5)
    assert names(run_suite(tmp_path, chosen=Chosen(quick=True))) == [
        "test_good[0]", "test_bad", "test_skipped", "test_ending", "test_good[1]", "test_good[2]"]
    assert run_suite(tmp_path, chosen=Chosen(only=("none",))).ended == "no test has none in its name"


def test_quick_ends(tmp_path):
    """--quick skips the tests that would begin after its time is over, and the report says why."""
    run = run_suite(tmp_path, chosen=Chosen(quick=True), plugins=["--seconds=-1"])
    assert {(test["outcome"], failures.first_line(test)) for test in run.tests} == {("skipped", "--quick: -1 s were over")}


def test_devices_by_index_or_name():
    assert suite.select([DEVICE, DEVICE | {"index": 4, "name": "Other 3"}], ["3"]) == [DEVICE]
    for word in ("some", "0b:00.0", "00112233-4455-6677-8899-aabbccddeeff"):
        assert suite.select([DEVICE], [word]) == [DEVICE]
    assert suite.select([DEVICE], None) == [DEVICE]
    with pytest.raises(vkdml.InvalidArgumentError, match=r"--device: found x 7; expected a Vulkan device: .3. Some GPU"):
        suite.select([DEVICE], ["x", "7"])


def test_the_command(tmp_path, monkeypatch, capsys):
    """The command runs the suite on each device, with a results file for each. It returns 1 if a test failed."""
    other = DEVICE | {"index": 0, "name": "Other GPU"}
    found = {3: TESTS, 0: GOOD}
    asked = []

    def run(path, about, chosen, resume, seen):
        asked.append((path.name, about["device"]["name"], chosen, resume))
        return Run(about, found[about["device"]["index"]], SCOPE)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suite, "machine", lambda: suite.ThisMachine([other, DEVICE], SOFTWARE))
    monkeypatch.setattr(suite, "run_suite", run)
    assert cli.main(["conformance", "--seed", "4", "--resume", "--only", "a", "b", "--output", "new/report"]) == 1
    chosen = Chosen(("a", "b"), seed=4)
    assert asked == [("results-0.jsonl", "Other GPU", chosen, True), ("results-3.jsonl", "Some GPU", chosen, True)]
    printed = capsys.readouterr()
    assert printed.out == "report: new/report/conformance.md\n"
    assert "2/2 Some GPU (somedrv)" in printed.err
    assert cli.main(["conformance", "--device", "Other", "--json"]) == 0
    assert [run["about"]["device"] for run in json.loads(capsys.readouterr().out)["runs"]] == [other]


@pytest.mark.parametrize("arguments", [["--quick", "--long"], ["--seed", "-1"], ["--seed", str(2**32)]])
def test_wrong_usage(arguments):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["conformance", *arguments])


def test_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "_BAR_SECONDS", 0.0)
    monkeypatch.setattr(results, "tqdm", lambda **_: made.append(tqdm(file=io.StringIO())) or made[0])
    made = []
    (tmp_path / "results").write_text("\n".join(map(json.dumps, [ABOUT | SCOPE, *TESTS[1:], {"test": "last", "outcome": "unfinished"}])))
    shown = results.Progress()
    shown(tmp_path / "results")
    shown.close()
    assert (made[0].n, made[0].total) == (4, 5)


@pytest.mark.device
def test_the_machine():
    """suite.machine() describes devices and software. A child process reads these, as a driver may crash."""
    found = suite.machine()
    assert vkdml.Device().info.name in [device["name"] for device in found.devices]
    assert set(found.software) == set(SOFTWARE)
    assert found.software["loader"].count(".") == 2
