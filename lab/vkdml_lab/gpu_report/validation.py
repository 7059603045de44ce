"""Runs tests under Vulkan's validation layer, as `make validate` does, if the layer and the tests are on this machine."""

from __future__ import annotations

from vkdml_lab import validate
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.processes import UnavailableError

LITTLE = ["lab/vkdml_lab/suite/test_reference.py", "-m", "not thorough", "-k", "test_schedule and GRU"]
NOTES = "output.txt beside this has all that the layer says."


def steps(job: Job) -> list[Step]:
    def run() -> list[Row]:
        if not all((validate.ROOT / test).exists() for test in validate.TESTS):
            raise UnavailableError("validation needs a checkout: `make validate` in it")
        try:
            validate.layers()
        except SystemExit as error:
            raise UnavailableError(str(error)) from None
        failed = validate.main(LITTLE if job.quick else validate.TESTS)
        says = {"failed": "the layer has messages, or tests failed: see validation/output.txt"} if failed else {}
        return [{"problem": "all schedules", "right": not failed, **says}]

    return [Step("validation", run, seconds=600)]


def summary(found: list[Row]) -> str:
    return "the layer is silent" if found and all(row.get("right") for row in found) else ""
