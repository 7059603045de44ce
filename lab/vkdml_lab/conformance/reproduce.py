"""The command `vkdml reproduce`: repeats one test of the conformance suite, and can save its driver calls."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from vkdml import InvalidArgumentError
from vkdml_lab.conformance import failures, suite
from vkdml_lab.conformance.command import whole_seed
from vkdml_lab.conformance.suite import Chosen
from vkdml_lab.internals import DEVICE, select_device


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("case", metavar="CASE", help="a test, as the report of `vkdml conformance` names it")
    command.add_argument("--dump", type=Path, metavar="FOLDER",
                         help="write SPIR-V, constants, buffers and results there, with a script that runs them without vkdml")
    command.add_argument("--device", help=f"{DEVICE}; see `vkdml devices`")
    command.add_argument("--seed", type=whole_seed, default=0, help="that of the report (0)")


def run(chosen: argparse.Namespace) -> int:
    if chosen.dump and chosen.dump.exists() and any(chosen.dump.iterdir()):
        raise InvalidArgumentError("reproduce", "--dump", chosen.dump, "a folder that is empty, or is not there")
    machine = suite.machine()
    device = suite.select(machine.devices, [chosen.device])[0] if chosen.device else machine.device(select_device(None))
    wanted = Chosen(long=True, seed=chosen.seed)
    about = {"device": device, "software": machine.software, "chosen": wanted.described()}
    dump = ["--dump", str(chosen.dump.resolve())] if chosen.dump else []
    with tempfile.TemporaryDirectory() as folder:
        found = suite.run_suite(Path(folder, "results.jsonl"), about, wanted, tests=[chosen.case, *dump])
    if len(found.tests) != 1:
        raise InvalidArgumentError("reproduce", "CASE", repr(chosen.case), "a test of the suite, as the report names it: "
                                   "suite/test_reference.py::test_random_problem[3]")
    print(f"{device['name']} ({device['driver']} {device['driver_version']})")
    print(failures.described(found.tests[0], failures.repeat(found.tests[0], about)) if found.failed else found.outcome)
    if chosen.dump and (chosen.dump / "replay.json").exists():
        print(f"{chosen.dump}/README.md says what the driver was given; python {chosen.dump}/replay.py runs it")
    return int(bool(found.failed))
