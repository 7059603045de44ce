"""The conformance suite on the device: first a minute of it, then all of it, a file after the other."""

from __future__ import annotations

from functools import partial

from tools.gpu_report.steps import Job, Row, Step
from vkdml.laboratory import CONFORMANCE, conformance_on, select_device

LITTLE = ["tests/conformance/test_reference.py", "-m", "not thorough", "-k", "test_schedule and GRU"]
FIRST = "a minute of each kind"
MUTATIONS = "test_mutations"  # does not test the device
NOTES = "`tests`: how the tests of a file ended. The folders beside this have them all, with what failed."


def steps(job: Job) -> list[Step]:
    def run(name: str, *tests: str) -> list[Row]:
        folder = job.folder / name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        line, failures = conformance_on(select_device(None), folder, tests)
        return [{"problem": name, "tests": line, "count": int(line.split()[0]), **({} if failures else {"right": True})},
                *({"table": "Failed", "problem": name, "right": False, "failed": failure} for failure in failures)]

    first = LITTLE if job.quick else ["tests/conformance", f"--ignore=tests/conformance/{MUTATIONS}.py", "--quick"]
    files = [] if job.quick else sorted(file.stem for file in CONFORMANCE.glob("test_*.py") if file.stem != MUTATIONS)
    return [Step(FIRST, partial(run, FIRST, *first), seconds=75, first=True),
            *(Step(name, partial(run, name, f"tests/conformance/{name}.py"), like="file", seconds=120) for name in files)]


def summary(found: list[Row]) -> str:
    return "; ".join(row["tests"] for row in found if "tests" in row)
