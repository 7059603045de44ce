"""Running the suite on a device. The suite is tests/conformance, which the wheel has in vkdml/suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import DriverError, InvalidArgumentError
from .. import processes
from . import results
from .results import About, Progress, Test

_SHIPPED = Path(__file__).resolve().parents[2] / "suite"
ROOT = _SHIPPED if _SHIPPED.exists() else Path(__file__).resolve().parents[4]  # the parent of the folder tests
FOLDER = ROOT / "tests" / "conformance"
SUITE = ("tests/conformance", "--ignore=tests/conformance/test_mutations.py")  # mutations do not test the device
_EXTRAS = ROOT / ".vulkan"  # what `make vulkan-extras` fetches, in a source tree
_TEST_SECONDS = 300
_MOST_CRASHES = 5  # after so many the other tests are not tried
_FINE = (0, 1, 5)  # pytest's exit codes: all passed, some failed, there were none
_SILENCE = 1200.0  # seconds without the start or end of a test after which the suite hangs

_MACHINE = """
import json, platform
from dataclasses import asdict
import numpy, onnx, onnxruntime, vkdml
from vkdml.engine.vulkan.gpu import KP_VERSION, enumerate_devices
from vkdml.engine.vulkan.queries import loader
packages = {package.__name__: package.__version__ for package in (vkdml, numpy, onnx, onnxruntime)}
print(json.dumps({"devices": [asdict(info) for info in enumerate_devices()], "software": {
    **packages, "kp": KP_VERSION, **loader(), "Python": platform.python_version(), "system": platform.platform()}}))
"""


@dataclass(frozen=True)
class Machine:
    """Vulkan devices, as `vkdml devices --json` has them, and the versions of what is between a test and them."""

    devices: list[dict[str, Any]]
    software: dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """What of the suite is run, as in the command's options."""

    only: tuple[str, ...] = ()
    quick: bool = False
    long: bool = False
    seed: int = 0

    def described(self) -> dict[str, Any]:
        return {**asdict(self), "only": list(self.only)}

    def options(self) -> list[str]:
        """The same as pytest's options, which tests/conftest.py adds."""
        return [*(f"--only={name}" for name in self.only), *["--quick"] * self.quick, *["--long"] * self.long,
                f"--seed={self.seed}"]


@dataclass
class Run:
    """The results of the suite on one device.

    about: the device, the software and what was chosen. told: how many tests there are to run, and their tolerances. ended: how
    the last process crashed or hung, if it did; output: the last of its output then.
    """

    about: About
    tests: list[Test]
    told: dict[str, Any] = field(default_factory=dict)
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
        """Seconds that all tests took, those before a run was resumed included."""
        return float(sum(test.get("seconds", 0.0) for test in self.tests))

    @property
    def outcome(self) -> str:
        counts = Counter(test["outcome"] for test in self.tests)
        parts = [f"{counts[outcome]} {outcome}" for outcome in sorted({"passed", "failed", *counts}, reverse=True)]
        return f"{len(self.tests)} tests in {self.seconds:.0f} s: " + ", ".join([*parts, *filter(None, [self.ended])])


def environment() -> dict[str, str]:
    """This process's environment, in which the Vulkan loader finds the drivers of `make vulkan-extras` too."""
    drivers = [str(manifest) for manifest in sorted(_EXTRAS.glob("*_icd.json"))]
    return {**os.environ, **({"VK_ADD_DRIVER_FILES": os.pathsep.join(drivers)} if drivers else {})}


def machine() -> Machine:
    """What this machine has, found in a process of its own, which a driver may crash."""
    done = subprocess.run([sys.executable, "-c", _MACHINE], capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"no device could be listed (exit code {done.returncode})"])[-1]
        raise DriverError(f"conformance: {last}")
    return Machine(**json.loads(done.stdout))


def select(devices: list[dict[str, Any]], wanted: Sequence[str] | None) -> list[dict[str, Any]]:
    """The devices with one of the wanted indices or parts of names; all if there are none."""
    chosen = [device for device in devices if not wanted or any(
        word == str(device["index"]) if word.isdigit() else word.lower() in device["name"].lower() for word in wanted)]
    if not chosen:
        listed = ", ".join(f"[{device['index']}] {device['name']}" for device in devices)
        raise InvalidArgumentError("conformance", "--device", " ".join(wanted or ()), f"a Vulkan device: {listed}")
    return chosen


def run_suite(path: Path, about: About, chosen: Chosen, resume: bool = False, progress: Progress | None = None,
              tests: Sequence[str] = SUITE) -> Run:
    """Run tests; after a crash or hang the rest in a new process. path: the file of results. tests: pytest's arguments."""
    results.begin(path, about, resume)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(ROOT), "-p", "no:cacheprovider",
               f"--timeout={_TEST_SECONDS}", *tests, *chosen.options(), "--report", str(path.resolve())]
    variables: Mapping[str, str] = {**environment(), "VKDML_DEVICE": str(about["device"]["index"])}
    seen = progress or (lambda _: None)
    for _ in range(_MOST_CRASHES):
        child = processes.supervise(command, variables, ROOT, grows=path, silence=_SILENCE, seen=lambda: seen(path))
        ended = "" if child.code in _FINE else child.how
        if not ended or not results.add_crash(path, ended, child.output):
            break
    head, found = results.read(path)
    if not found and not ended:
        ended = f"no test has {' or '.join(chosen.only)} in its name"
    of_suite = {key: value for key, value in head.items() if key not in about}
    return Run(about, found, of_suite, ended, child.output if ended else "")
