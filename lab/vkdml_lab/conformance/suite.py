"""Runs the conformance suite (the tests in vkdml_lab/suite) on a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vkdml import DeviceInfo, DriverError, InvalidArgumentError
from vkdml_lab import ROOT, processes, reports
from vkdml_lab.conformance import failures, results
from vkdml_lab.conformance.results import About, Progress, Test

PACKAGE = Path(__file__).resolve().parents[1]  # test names begin here
FOLDER = PACKAGE / "suite"
SUITE = ("suite",)
_EXTRAS = ROOT / ".vulkan"  # fetched by `make vulkan-extras` in a checkout
_TEST_SECONDS = 300
_MOST_CRASHES = 5  # after this many, remaining tests are not run
_MOST_DIAGNOSED = 2  # crashes after which the test is repeated
_MORE_RUNS = 3  # repetitions of a crashed test
_FINE = (0, 1, 5)  # pytest's exit codes: all passed, some failed, no tests
_SILENCE = 1200.0  # seconds without a test's start or end before the suite counts as hung

_MACHINE = """
import json, platform
from dataclasses import asdict
import numpy, onnx, onnxruntime, vkdml
from vkdml_lab.internals import KP_VERSION, devices
from vkdml_lab.facts import loader
packages = {package.__name__: package.__version__ for package in (vkdml, numpy, onnx, onnxruntime)}
print(json.dumps({"devices": [asdict(info) for info in devices.enumerate_devices()], "software": {
    **packages, "kp": KP_VERSION, **loader(), "Python": platform.python_version(), "system": platform.platform()}}))
"""


@dataclass(frozen=True)
class ThisMachine:
    """This machine's Vulkan devices, as `vkdml devices --json` prints them, and the versions of software that the tests use."""

    devices: list[dict[str, Any]]
    software: dict[str, Any]

    def device(self, info: DeviceInfo) -> dict[str, Any]:
        """Return a device's entry in `devices`. Its index may differ from info.index, as the suite's drivers come first."""
        return next(device for device in self.devices if {**device, "index": info.index} == asdict(info))


@dataclass(frozen=True)
class Chosen:
    """Which tests to run, by the options of `vkdml conformance`."""

    only: tuple[str, ...] = ()
    quick: bool = False
    long: bool = False
    seed: int = 0

    def described(self) -> dict[str, Any]:
        return {**asdict(self), "only": list(self.only)}

    def options(self) -> list[str]:
        """Return this choice as pytest options, which lab/vkdml_lab/suite/plugin.py defines."""
        return [*(f"--only={name}" for name in self.only), *["--quick"] * self.quick, *["--long"] * self.long,
                f"--seed={self.seed}"]


@dataclass
class Run:
    """The results of the suite on one device.

    about: device, software and choice of tests. tests: the last line of each in the results file. scope: numbers of tests,
    tolerances and schedules. ended: how the last process crashed or hung, or "". output: that process's last lines.
    """

    about: About
    tests: list[Test]
    scope: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    output: str = ""

    @property
    def device(self) -> dict[str, Any]:
        device: dict[str, Any] = self.about["device"]
        return device

    @property
    def failed(self) -> list[Test]:
        return [test for test in self.tests if test["outcome"] not in ("passed", "skipped")]

    @property
    def skipped(self) -> list[Test]:
        return [test for test in self.tests if test["outcome"] == "skipped"]

    @property
    def seconds(self) -> float:
        """The sum of the seconds of all tests, also of those that ended before the run was resumed."""
        return float(sum(test.get("seconds", 0.0) for test in self.tests))

    @property
    def outcome(self) -> str:
        counts = Counter(test["outcome"] for test in self.tests)
        parts = [f"{counts[outcome]} {outcome}" for outcome in sorted({"passed", "failed", *counts}, reverse=True)]
        return f"{len(self.tests)} tests in {self.seconds:.0f} s: " + ", ".join([*parts, *filter(None, [self.ended])])


def environment() -> dict[str, str]:
    """Return this process's environment, with the drivers of `make vulkan-extras` added for the Vulkan loader."""
    drivers = [str(manifest) for manifest in sorted(_EXTRAS.glob("*_icd.json"))]
    return {**os.environ, **({"VK_ADD_DRIVER_FILES": os.pathsep.join(drivers)} if drivers else {})}


def machine() -> ThisMachine:
    """Return this machine's devices and software. A child process finds them, as a driver may crash it. Raises DriverError."""
    done = subprocess.run([sys.executable, "-c", _MACHINE], capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"no device could be listed (exit code {done.returncode})"])[-1]
        raise DriverError(f"conformance: {last}")
    return ThisMachine(**json.loads(done.stdout))


def select(devices: list[dict[str, Any]], wanted: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the devices that match any of these words, or all without words. Raises InvalidArgumentError if none matches."""
    chosen = [device for device in devices if not wanted or any(DeviceInfo(**device).answers_to(word) for word in wanted)]
    if not chosen:
        listed = ", ".join(f"[{device['index']}] {device['name']}" for device in devices)
        raise InvalidArgumentError("conformance", "--device", " ".join(wanted or ()), f"a Vulkan device: {listed}")
    return chosen


def run_suite(path: Path, about: About, chosen: Chosen, resume: bool = False, progress: Progress | None = None,
              tests: Sequence[str] = SUITE) -> Run:
    """Run tests. After a crash or hang, a new process runs the rest. path: the results file. tests: as pytest takes them."""
    results.begin(path, about, resume)
    index = str(about["device"]["index"])
    for crashes in range(_MOST_CRASHES):
        child = _run_tests(path, index, [*tests, *chosen.options()], progress)
        ended = "" if child.code in _FINE else child.how
        if child.code == results.DEVICE_LOST:  # the running test has failed, and the others need a new process
            ended = "the device was lost, or hung"
        elif not ended or not results.add_crash(path, ended, child.output):
            break
        if crashes < _MOST_DIAGNOSED:
            _run_again(path, index, tests, chosen)
    head, found = results.read(path)
    if not found and not ended:
        ended = f"no test has {' or '.join(chosen.only)} in its name"
    of_suite = {key: value for key, value in head.items() if key not in about}
    return Run(about, found, of_suite, ended, child.output if ended else "")


def _run_tests(path: Path, index: str, arguments: Sequence[str], progress: Progress | None = None) -> processes.Ended:
    """Run pytest in a process of its own, on the device of this index. path: the results file."""
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(PACKAGE), "-p", "vkdml_lab.suite.plugin",
               "-p", "no:cacheprovider", "-q",
               "--capture=sys", f"--timeout={_TEST_SECONDS}", *arguments, "--report", str(path.resolve())]
    variables: Mapping[str, str] = {**environment(), "VKDML_DEVICE": index}
    seen = progress or (lambda _: None)
    return processes.supervise(command, variables, PACKAGE, grows=path, silence=_SILENCE, seen=lambda: seen(path))


def _run_again(path: Path, index: str, tests: Sequence[str], chosen: Chosen) -> None:
    """Repeat the test that crashed: several times as before, and once in each other schedule. Record the outcomes."""
    head, found = results.read(path)
    test = found[-1]
    # Not after a hang, as each repetition would take as long
    runs = Counter(_alone(index, test, tests, chosen) for _ in range(1 if "hung" in test["failure"] else _MORE_RUNS))
    ways = {way: _alone(index, test, [*tests, f"--way={way}"], chosen) for way in head["ways"]}
    reports.append(path, {**test, "running": {**(test.get("running") or {}), "again": {"runs": runs, "ways": ways}}})


def _alone(index: str, test: Test, arguments: Sequence[str], chosen: Chosen) -> str:
    """Run one test in a process of its own. Returns the outcome: "right", "refused", or a few words about the failure."""
    plain = [argument for argument in chosen.options() if not argument.startswith(("--only", "--quick"))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.jsonl")
        path.touch()
        child = _run_tests(path, index, [*arguments, *plain, f"--only={test['test']}"])
        found = results.read(path)[1]
    if child.code not in (*_FINE, results.DEVICE_LOST) or not found:
        return child.how
    if found[0]["outcome"] == "passed":
        return "right"
    return "refused" if "InvalidArgumentError" in found[0]["failure"] else failures.outcome(found[0])
