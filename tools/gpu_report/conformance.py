"""The conformance suite on the device, as `make conformance` runs it."""

from __future__ import annotations

from dataclasses import asdict

from tools.gpu_report.outcome import Job, Outcome, judged
from vkdml.cli.conformance import report, suite
from vkdml.runtime.device import select_device

QUICK = ["tests/conformance/test_reference.py", "-m", "not thorough", "-k", "test_schedule and GRU"]


def run(job: Job) -> Outcome:
    wanted = asdict(select_device(None))
    # Drivers that the suite adds come before others, and change indices
    machine, chosen = suite.machine(), suite.Chosen()
    device = next(device for device in machine.devices if {**device, "index": wanted["index"]} == wanted)
    about = {"device": device, "software": machine.software, "chosen": chosen.described()}
    found = suite.run_suite(job.folder / "results.jsonl", about, chosen, tests=QUICK if job.quick else suite.SUITE)
    report.write([found], job.folder)
    failures = [f"{test['test']}: {report.first_line(test)}" for test in found.failed]
    return judged(found.outcome, [*filter(None, [found.ended]), *failures])
