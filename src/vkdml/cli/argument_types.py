"""What the commands have in common: the types of their arguments, and JSON."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

_MOST_DIGITS = 18  # a number on the command line has at most so many


def existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no file {text!r}")
    return path


def count(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def count_from_0(text: str) -> int:
    return 0 if text == "0" else count(text)


def print_json(data: Any) -> None:
    print(json.dumps(_finite(data), indent=1))


def _finite(data: Any) -> Any:
    """The data with infinities and NaN as strings, because JSON has neither. They are spelled as in DxDispatch's models."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


DEVICE = "an index, UUID, PCI address or a part of a name"  # in help


def add_common(command: argparse.ArgumentParser, *, device: bool = True, files: bool = False) -> None:
    """Add the options that commands share. device: whether it takes one. files: whether it runs a model that may name some."""
    if files:
        command.add_argument("--allow-outside", action="store_true", help="the model may name files outside of its folder")
    if device:
        command.add_argument("--device", help=f"{DEVICE}; see `vkdml devices`")
    command.add_argument("--json", action="store_true", help="print JSON")
