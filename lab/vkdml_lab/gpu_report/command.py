"""Defines the command `vkdml gpu-report` and its options. running.py runs the report."""

from __future__ import annotations

import argparse
import math
from contextlib import suppress
from pathlib import Path

from vkdml_lab.internals import DEVICE


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", type=Path, default=Path("gpu-report"), help="folder for the report (gpu-report)")
    command.add_argument("--device", help=f"{DEVICE} (VKDML_DEVICE, or else the first GPU)")
    command.add_argument("--minutes", type=_minutes, default=30,
                         help="minutes to run, most important parts first (30); a second call continues")
    command.add_argument("--quick", action="store_true", help="run a little of each part, as a check")


def run(chosen: argparse.Namespace) -> int:
    from . import running  # imports modules that only a report needs

    return running.main(chosen.output, chosen.device, chosen.minutes, chosen.quick)


def _minutes(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
