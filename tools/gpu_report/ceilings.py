"""What the device can do at most, beside any kernel of this project."""

from __future__ import annotations

from bench import ceilings
from bench.report import ceiling_table
from tools.gpu_report.outcome import PASSED, Job, Outcome
from vkdml.laboratory import document, select_device, write

FILE = "ceilings.json"
NOTES = """Multiply-adds count as two operations. Rates are the best of all numbers of workgroups tried. At a barrier workgroups
wait for each other within a dispatch, each on a unit of its own. A submission is of one empty dispatch, with the wait for its
end; a dispatch in it waits for the one before."""


def run(job: Job) -> Outcome:
    found = ceilings.Library(select_device(None).index, ceilings.QUICK if job.quick else ceilings.ALL).measure()
    write(job.folder, {FILE: found, "ceilings.md": document("# Ceilings", NOTES, ceiling_table(found))})
    return Outcome(PASSED, f"{found['gflops']:.0f} GFLOP/s; {found['submission_us']:.0f} us a submission")
