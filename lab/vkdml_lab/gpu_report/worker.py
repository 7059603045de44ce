"""Runs one part of the report: running.py starts `python -m vkdml_lab.gpu_report.worker PART FOLDER UNTIL [OPTIONS]`."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from vkdml_lab.gpu_report import clocks, steps
from vkdml_lab.reports import write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.gpu_report.worker", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part")
    parser.add_argument("folder", type=Path)
    parser.add_argument("until", type=float)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--warm", action="store_true")
    given = parser.parse_args()
    try:
        module = importlib.import_module(given.part)
    except ModuleNotFoundError as error:
        if not steps.is_missing(error):
            raise
        write(given.folder, {steps.STOPPED: {"not checked": str(error)}})
        return
    with clocks.recorded(given.folder, given.warm):
        steps.run(module, steps.Job(given.folder, given.quick, given.until, given.first))


if __name__ == "__main__":
    main()
