"""The command `vkdml completion`"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import MissingPackageError

_SHELLS = ["bash", "zsh", "tcsh"]


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=_SHELLS, help="whose script to print; docs/faces/cli.md says where to put it")


def run(chosen: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise MissingPackageError("vkdml completion needs the package shtab: pip install shtab") from None
    for command in chosen.parser._subparsers._group_actions[0].choices.values():
        for action in command._actions:
            is_model = not action.option_strings and action.nargs is None and not action.choices
            if is_model or action.type is Path:
                action.complete = shtab.FILE
    print(shtab.complete(chosen.parser, chosen.shell))
    return 0
