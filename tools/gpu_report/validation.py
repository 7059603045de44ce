"""The schedules under synchronization validation, as `make validate` runs them, where the layer is there."""

from __future__ import annotations

from bench.runner import UnavailableError
from tools import validate
from tools.gpu_report.conformance import QUICK
from tools.gpu_report.outcome import Job, Outcome, judged


def run(job: Job) -> Outcome:
    try:
        validate.layers()
    except SystemExit as error:
        raise UnavailableError(str(error)) from None
    failed = validate.main(QUICK if job.quick else validate.TESTS)
    if failed:
        return judged("the layer has messages, or tests failed", ["output.txt beside this has them"])
    return judged("the layer is silent", [])
