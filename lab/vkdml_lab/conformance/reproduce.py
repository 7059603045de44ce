"""The command `vkdml reproduce`: repeats one test of the conformance suite."""

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
    command.add_argument("--device", help=f"{DEVICE}; see `vkdml devices`")
    command.add_argument("--seed", type=whole_seed, default=0, help="that of the report (0)")


def run(chosen: argparse.Namespace) -> int:
    machine = suite.machine()
    device = suite.select(machine.devices, [chosen.device])[0] if chosen.device else machine.device(select_device(None))
    wanted = Chosen(long=True, seed=chosen.seed)
    about = {"device": device, "software": machine.software, "chosen": wanted.described()}
    with tempfile.TemporaryDirectory() as folder:
        found = suite.run_suite(Path(folder, "results.jsonl"), about, wanted, tests=[chosen.case])
    if len(found.tests) != 1:
        raise InvalidArgumentError("reproduce", "CASE", repr(chosen.case), "a test of the suite, as the report names it: "
                                   "suite/test_reference.py::test_random_problem[3]")
    print(f"{device['name']} ({device['driver']} {device['driver_version']})")
    print(failures.described(found.tests[0], failures.repeat(found.tests[0], about)) if found.failed else found.outcome)
    return int(bool(found.failed))
