"""Runs the conformance suite on the device: first for about a minute, then all of it, file by file."""

from __future__ import annotations

import time
from functools import partial

from vkdml_lab.conformance.command import on_device
from vkdml_lab.conformance.failures import is_late
from vkdml_lab.conformance.suite import FOLDER, SUITE
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import select_device

LITTLE = ["suite/test_reference.py", "-m", "not thorough", "-k", "test_schedule and GRU"]
FIRST = "a minute of each kind"
NOTES = "`tests`: how the tests of a file ended. The folders beside this have them all, with what failed."


def steps(job: Job) -> list[Step]:
    def run(name: str, *tests: str) -> list[Row]:
        folder = job.folder / name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        found, failures = on_device(select_device(None), folder, tests)
        passed = sum(test["outcome"] == "passed" for test in found.tests)
        return [{"problem": name, "tests": found.outcome, "count": passed, "of": len(found.tests),
                 "late": sum(map(is_late, found.tests)), **({"right": True} if passed and not failures else {})},
                *({"table": "Failed", "problem": name, "right": False, "failed": failure} for failure in failures)]

    seconds = min(50.0, max(10.0, job.until - time.time() - 20))  # starting takes some seconds
    first = LITTLE if job.quick else [*SUITE, "--quick", f"--seconds={seconds:.0f}"]
    files = [] if job.quick else sorted(file.stem for file in FOLDER.glob("test_*.py"))
    return [Step(FIRST, partial(run, FIRST, *first), seconds=75, first=True, resumes=True),
            *(Step(name, partial(run, name, f"suite/{name}.py"), like="file", seconds=120, resumes=True) for name in files)]


def summary(found: list[Row]) -> str:
    return "; ".join(row["tests"] for row in found if "tests" in row)
