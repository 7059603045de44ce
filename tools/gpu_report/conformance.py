"""The conformance suite on the device, as `make conformance` runs it."""

from __future__ import annotations

from dataclasses import asdict

from tools import conformance
from tools.gpu_report.outcome import Job, Outcome, judged
from vkdml.runtime.device import select_device

QUICK = ["tests/conformance/test_reference.py", "-m", "not thorough", "-k", "test_schedule and GRU"]


def run(job: Job) -> Outcome:
    wanted = asdict(select_device(None))
    # Drivers that the suite adds come before others, and change indices
    device = next(device for device in conformance.enumerate_devices() if {**device, "index": wanted["index"]} == wanted)
    found = conformance.run_suite(device, QUICK if job.quick else conformance.SUITE)
    conformance.write([found], job.folder)
    failures = [f"{test['test']}: {conformance.first_line(test.get('failure') or 'the process ended during it')}"
                for test in found.failed]
    return judged(found.outcome, [*filter(None, [found.ended]), *failures])
