"""The conformance suite on the device, as `make conformance` runs it."""

from __future__ import annotations

from tools.gpu_report.outcome import Job, Outcome, judged
from vkdml.laboratory import conformance_on, select_device

QUICK = ["tests/conformance/test_reference.py", "-m", "not thorough", "-k", "test_schedule and GRU"]


def run(job: Job) -> Outcome:
    return judged(*conformance_on(select_device(None), job.folder, *[QUICK] * job.quick))
