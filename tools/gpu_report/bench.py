"""vkdml beside cuDNN, through PyTorch, where both are here: the benchmark with those workers only."""

from __future__ import annotations

import json
from typing import Any

from bench.__main__ import main
from tools.gpu_report.outcome import PASSED, Job, Outcome, judged

# Workers of cuDNN, and those of vkdml that are compared with them
WORKERS = ["vkdml-float16", "torch-cuda", "torch-cuda-tf32", "torch-cuda-float16"]
QUICK = ["--peers", "torch-cuda", "--cases", "gru-1x1x64x64", "--samples", "3"]
ONLY_TIMES = ["--no-growth", "--no-ceilings", "--no-first-result"]


def run(job: Job) -> Outcome:
    main(["--output", str(job.folder), *ONLY_TIMES, *(QUICK if job.quick else ["--peers", *WORKERS])])
    return judge(json.loads((job.folder / "results.json").read_text()))


def judge(found: dict[str, Any]) -> Outcome:
    """A library that is missing is no failure; a result that is wrong is one."""
    missing = [f"{one['name']} is missing ({one['reason']})" for one in found["missing"]]
    wrong = [f"{row['case']} {row['worker']} {row['way']}: {row['error']}" for row in found["results"] if row["error"]]
    if wrong:
        return judged(f"{len(wrong)} of {len(found['results'])} results are wrong, or could not be had", wrong)
    return Outcome(PASSED, "; ".join([f"{len(found['results'])} times", *missing]))
