"""The process of one part: python -m tools.gpu_report.worker MODULE FOLDER [--quick], started by tools.gpu_report."""

from __future__ import annotations

import argparse
import importlib
import traceback
from pathlib import Path

from bench.runner import UnavailableError
from tools.gpu_report.outcome import FAILED, SKIPPED, Job, Outcome

OURS = {"bench", "tests", "tools", "vkdml"}


def outcome(module: str, job: Job) -> Outcome:
    """A part is left out where others' packages or tools are missing; any other error is a failure, in full in the output."""
    try:
        found: Outcome = importlib.import_module(module).run(job)
    except UnavailableError as error:
        return Outcome(SKIPPED, str(error))
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] not in OURS:
            return Outcome(SKIPPED, f"{error}: make setup-conformance setup-bench install what is needed")
        traceback.print_exc()
        return Outcome(FAILED, "ended by an error", [f"{type(error).__name__}: {error}"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_report.worker", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("module")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    outcome(given.module, Job(given.folder, given.quick)).write(given.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
