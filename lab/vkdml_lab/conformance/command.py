"""The command `vkdml conformance`: runs the conformance suite on this machine's Vulkan devices, and writes one report.

Each device is tested in a process of its own: if it crashes or hangs, the report says so and the other devices still run.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from vkdml import DeviceInfo, InvalidArgumentError
from vkdml_lab import reports
from vkdml_lab.conformance import report, suite
from vkdml_lab.conformance.failures import first_line
from vkdml_lab.conformance.results import Progress
from vkdml_lab.conformance.suite import Chosen, Run
from vkdml_lab.internals import DEVICE


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", type=Path, default=Path("conformance-report"), help="the report (conformance-report)")
    command.add_argument("--device", nargs="+", help=f"test only these: {DEVICE} each")
    command.add_argument("--only", nargs="+", metavar="NAME", default=[], help="tests with one of these in their names")
    amount = command.add_mutually_exclusive_group()
    amount.add_argument("--quick", action="store_true", help="run as many tests as fit in a minute, some of each kind")
    amount.add_argument("--long", action="store_true", help="run 10,000 random problems and 2,000 nodes, not 450 and 120")
    command.add_argument("--target", metavar="LIBRARY[:DEVICE]", help="test another library: onnxruntime:cpu, torch:cpu, "
                         "openvino:CPU, iree:vulkan, python:module.function and others (docs/correctness.md)")
    command.add_argument("--export", type=Path, metavar="FOLDER", help="write the cases of --target as files instead")
    command.add_argument("--seed", type=whole_seed, default=0, help="seed of the random problems (0)")
    command.add_argument("--resume", action="store_true", help="continue the last run with these options")
    command.add_argument("--json", action="store_true", help="print the report as JSON")


def run(chosen: argparse.Namespace) -> int:
    if chosen.target or chosen.export:
        return _elsewhere(chosen)
    machine = suite.machine()
    devices = suite.select(machine.devices, chosen.device)
    wanted = Chosen(tuple(chosen.only), chosen.quick, chosen.long, chosen.seed)
    chosen.output.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    for number, device in enumerate(devices, 1):
        print(f"{number}/{len(devices)} {device['name']} ({device['driver']})", flush=True, file=sys.stderr)
        results = chosen.output / f"results-{device['index']}.jsonl"
        about = {"device": device, "software": machine.software, "chosen": wanted.described()}
        try:
            with closing(Progress()) as progress:
                runs.append(suite.run_suite(results, about, wanted, chosen.resume, progress))
        except KeyboardInterrupt:
            print(f"interrupted; {results} has what was found so far, and --resume goes on from there", file=sys.stderr)
            raise
        print(runs[-1].outcome, flush=True, file=sys.stderr)
        report.write(runs, chosen.output)  # after each device, in case the next one is interrupted
    print(reports.as_json(report.content(runs)) if chosen.json else f"report: {chosen.output}/conformance.md")
    return int(any(run.failed or run.ended for run in runs))


def _elsewhere(chosen: argparse.Namespace) -> int:
    """Test another library (--target) or write its cases to files (--export), without a Vulkan device. Returns an exit code."""
    given = [f"--{name}" for name in ("target", "export", "device", "resume") if getattr(chosen, name)]
    if len(given) > 1:
        raise InvalidArgumentError("conformance", given[0], f"with {given[1]}",
                                   "only --only, --quick, --long, --seed, --output, --json")
    name = "exporting" if chosen.export else "running"
    code: int = importlib.import_module(f"vkdml_lab.targets.{name}").main(chosen)
    return code


def on_device(info: DeviceInfo, folder: Path, tests: Sequence[str] = suite.SUITE) -> tuple[Run, list[str]]:
    """Test a device, with a report in `folder`. Resume a run that began there. Returns the run, and a sentence per failure."""
    machine, chosen = suite.machine(), Chosen()
    device = machine.device(info)
    about = {"device": device, "software": machine.software, "chosen": chosen.described()}
    found = suite.run_suite(folder / "results.jsonl", about, chosen, resume=True, tests=tests)
    report.write([found], folder)
    failures = [f"{test['test']}: {first_line(test)}" for test in found.failed]
    return found, [*filter(None, [found.ended]), *failures]


def whole_seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return int(text)
