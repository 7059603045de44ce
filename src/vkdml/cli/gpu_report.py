"""The command `vkdml gpu-report`. It is tools/gpu_report, which the wheel has in vkdml/suite."""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from contextlib import suppress
from pathlib import Path

from .argument_types import DEVICE
from .conformance.suite import ROOT


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", type=Path, default=Path("gpu-report"), help="a folder (gpu-report)")
    command.add_argument("--device", help=f"{DEVICE} (VKDML_DEVICE, or else the first GPU)")
    command.add_argument("--minutes", type=_minutes, default=30,
                         help="how long it may take, what matters most first (30); a second call goes on")
    command.add_argument("--quick", action="store_true", help="a little of each part, to see that it works")


def run(chosen: argparse.Namespace) -> int:
    sys.path.insert(0, str(ROOT))
    running = importlib.import_module("tools.gpu_report.running")
    code: int = running.main(chosen.output, chosen.device, chosen.minutes, chosen.quick)
    return code


def _minutes(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
