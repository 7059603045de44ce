"""Run the conformance suite on the Vulkan devices of this machine and write one report, as Markdown and JSON.

    vkdml conformance [--output DIR] [--device D ...] [--long] [--json]

If `make vulkan-extras` has fetched SwiftShader, it is one more device. Each device is tested in a process of its own: if it
crashes or hangs, the report says so and the other devices still run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate
from tqdm import tqdm

import vkdml
from tests.recording import largest

ROOT = Path(__file__).resolve().parent.parent
SWIFTSHADER = ROOT / ".vulkan" / "swiftshader_icd.json"
SUITE = ["tests/conformance", "--ignore=tests/conformance/test_mutations.py"]  # that one does not test the device
SILENCE = 1200  # seconds without the start or end of a test after which the suite hangs; pytest's limit for a test is 300

ENUMERATE = """
import json
from dataclasses import asdict
from vkdml.runtime.vulkan import enumerate_devices
print(json.dumps([asdict(info) for info in enumerate_devices()]))
"""

Test = dict[str, Any]  # as tests/recording.py writes it


@dataclass
class Run:
    """The results of the suite on one device. If its process crashed or hung: how it ended, and the last of its output."""

    device: dict[str, Any]
    tests: list[Test]
    seconds: float
    ended: str = ""
    output: str = ""

    @property
    def failed(self) -> list[Test]:
        return [test for test in self.tests if test["outcome"] not in ("passed", "skipped")]

    @property
    def outcome(self) -> str:
        counts = Counter(test["outcome"] for test in self.tests)
        parts = [f"{counts[outcome]} {outcome}" for outcome in sorted({"passed", "failed", *counts}, reverse=True)]
        return f"{len(self.tests)} tests in {self.seconds:.0f} s: " + ", ".join([*parts, *filter(None, [self.ended])])


def environment() -> dict[str, str]:
    """This process's environment, with SwiftShader added to the drivers that the Vulkan loader finds."""
    return {**os.environ, **({"VK_ADD_DRIVER_FILES": str(SWIFTSHADER)} if SWIFTSHADER.exists() else {})}


def enumerate_devices() -> list[dict[str, Any]]:
    result = subprocess.run([sys.executable, "-c", ENUMERATE], capture_output=True, text=True, env=environment())
    if result.returncode != 0:
        raise SystemExit(f"conformance: {(result.stderr.strip().splitlines() or ['no device could be listed'])[-1]}")
    devices: list[dict[str, Any]] = json.loads(result.stdout)
    return devices


def select(devices: list[dict[str, Any]], wanted: list[str]) -> list[dict[str, Any]]:
    """The devices with one of the wanted indices or parts of names."""
    chosen = [device for device in devices if any(
        word == str(device["index"]) if word.isdigit() else word.lower() in device["name"].lower() for word in wanted)]
    if not chosen:
        listed = ", ".join(f"[{device['index']}] {device['name']}" for device in devices)
        raise SystemExit(f"conformance: no Vulkan device {' or '.join(map(repr, wanted))}; the devices are {listed}")
    return chosen


def run_suite(device: dict[str, Any], pytest_arguments: list[str]) -> Run:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report"
        report.touch()
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *pytest_arguments, "--report", str(report)]
        started = time.monotonic()
        ended, output = supervise(command, {**environment(), "VKDML_DEVICE": str(device["index"])}, report)
        return Run(device, read_report(report), time.monotonic() - started, ended, output if ended else "")


def supervise(command: list[str], environment: dict[str, str], report: Path, silence: float = SILENCE) -> tuple[str, str]:
    """Run a command that writes a report. Returns how it crashed or hung ("" if it did not), and the end of its output."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        code = wait(process, report, silence)
        output.seek(0)
        tail = "\n".join(output.read().splitlines()[-100:])
    if code is None:
        return f"hung: no progress in {silence:.0f} s", tail
    if code in (0, 1):  # pytest's: all passed, some failed
        return "", tail
    return f"crashed: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}", tail


def wait(process: subprocess.Popen[bytes], report: Path, silence: float) -> int | None:
    """Wait for the exit code. Returns None after killing the process because its report no longer grew. Shows the progress."""
    size, grew = -1, time.monotonic()
    with tqdm(unit="test", delay=2, disable=None, leave=False) as bar:
        while time.monotonic() - grew < silence:
            if report.stat().st_size > size:
                size, grew = report.stat().st_size, time.monotonic()
                bar.update(report.read_bytes().count(b'"records"') - bar.n)
            try:
                return process.wait(min(silence, 1))
            except subprocess.TimeoutExpired:
                continue
    process.kill()
    return None


def read_report(report: Path) -> list[Test]:
    """The last line of each test."""
    tests = map(json.loads, report.read_text().splitlines())
    return list({test["test"]: test for test in tests}.values())


def summarize(run: Run, keys: Callable[[dict[str, Any]], Iterable[tuple[str, ...]]]) -> dict[tuple[str, ...], list[Any]]:
    """For each key: the number of records, those of passed tests, those of failed tests, and the two largest errors."""
    groups: dict[tuple[str, ...], list[tuple[bool, dict[str, Any]]]] = {}
    for test in run.tests:
        for record in test.get("records", []):
            for key in keys(record):
                groups.setdefault(key, []).append((test["outcome"] == "passed", record))
    return {key: [len(group), sum(passed for passed, _ in group), sum(not passed for passed, _ in group),
                  largest(record["absolute"] for _, record in group), largest(record["ulp"] for _, record in group)]
            for key, group in sorted(groups.items())}


def by_operator(record: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    return [(record["operator"], record["element"])]


def by_feature(record: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    return [(feature,) for feature in record["features"]]


MEASURES = ["cases", "passed", "failed", "largest error", "in ULP"]


def table(run: Run, names: list[str], keys: Callable[[dict[str, Any]], Iterable[tuple[str, ...]]]) -> str:
    rows = [[*key, *values] for key, values in summarize(run, keys).items()]
    formats = [""] * (len(names) + 3) + [".1e", ".3g"]
    return tabulate(rows, [*names, *MEASURES], "github", floatfmt=formats, missingval="not finite") + "\n"


def first_line(failure: str) -> str:
    """The first line of a failure's message. numpy's messages begin on the line after the exception's name."""
    lines = failure.removeprefix("AssertionError:").strip().splitlines()
    return lines[0] if lines else ""


def section(run: Run) -> str:
    info = run.device
    parts = [f"## {info['index']}: {info['name']}\n",
             f"{info['type']}; {info['driver']} {info['driver_version']}; Vulkan {info['api_version']}; "
             f"vkdml {vkdml.__version__}; {platform.platform()}\n",
             f"{run.outcome}\n"]
    if run.output:
        parts.append(f"```\n{run.output}\n```\n")
    if run.tests:
        parts += [table(run, ["operator", "type"], by_operator), table(run, ["feature"], by_feature)]
    if run.failed:
        parts += ["Failed:\n", *(f"- `{test['test']}`: {first_line(test.get('failure') or 'the process ended during it')}"
                                 for test in run.failed), ""]
    return "\n".join(parts)


NOTE = """A case compares an operator's results with the float64 reference, with ONNX's test data or with ONNX Runtime.
Tolerances have an absolute and a relative part. So the largest error may belong to a large number, and the largest error in ULP
(units in the last place of the type) to a number near 0. A test that failed before it compared anything is only in the list of
failed tests.
"""


def write(runs: list[Run], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "conformance.md").write_text("\n".join(["# vkdml conformance\n", NOTE, *map(section, runs)]))
    (directory / "conformance.json").write_text(as_json(runs))


def as_json(runs: list[Run]) -> str:
    return json.dumps({"vkdml": vkdml.__version__, "os": platform.platform(), "runs": [asdict(run) for run in runs]}, indent=1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="vkdml conformance",
                                     description="Run the conformance suite on every Vulkan device and report.")
    parser.add_argument("--output", type=Path, default=ROOT / "conformance-report", help="a folder (conformance-report)")
    parser.add_argument("--device", nargs="+", help="test only these: an index or a part of a name each")
    parser.add_argument("--long", action="store_true", help="10,000 random problems and 2,000 random nodes, not 450 and 120")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    devices = enumerate_devices()
    chosen = select(devices, given.device) if given.device else devices
    runs = []
    for number, device in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {device['name']} ({device['driver']}) ... ", end="", flush=True, file=sys.stderr)
        runs.append(run_suite(device, SUITE + ["--long"] * given.long))
        print(runs[-1].outcome, flush=True, file=sys.stderr)
        write(runs, given.output)  # after each device, in case the next one is interrupted
    print(as_json(runs) if given.json else f"report: {given.output}/conformance.md")
    return int(any(run.failed or run.ended for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())
