"""The command `vkdml`, a module for each of its commands. Each module has `add`, for its arguments, and `run`.

The modules of the commands in _LABORATORY are entry points of the group `vkdml.commands`, which the package vkdml_lab has.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from .. import __version__
from ..errors import MissingPackageError, VkdmlError
from . import devices, explain, run, selftest

_COMMANDS = {
    "devices": (devices, "list the Vulkan devices and their limits"),
    "run": (run, "run an ONNX model, its recurrent nodes on a Vulkan device"),
    "explain": (explain, "say where a model's nodes run, and how an operator would: schedule, memory, time"),
    "selftest": (selftest, "run each kernel that a device may be given, and check its results"),
}
_LABORATORY = {
    "dispatch": "run a DxDispatch model of recurrent operators and those around them",
    "conformance": "test every Vulkan device and write a report",
    "reproduce": "run a test of the suite again, and write down what the driver was given",
    "gpu-report": "what is right on a GPU, how fast it is beside others, and what was expected, as one report",
    "radeon": "run a command on an emulated Radeon GPU",
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = _parser(_module(given[0]) if given and given[0] in _LABORATORY else None).parse_args(given or ["--help"])
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            result: int = chosen.command(chosen)
        return result
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        sys.stdout = None
        return 1
    except KeyboardInterrupt:
        return 130
    except (VkdmlError, OSError, UnicodeError) as error:
        print(f"vkdml: {error}", file=sys.stderr)
        return 1


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print it as errors are: users of a command have no line of Python that caused it."""
    print(f"vkdml: warning: {message}", file=sys.stderr)


def _module(name: str) -> Any:
    """The module of a command of vkdml_lab. Raises MissingPackageError where the package, or one that it needs, is missing."""
    for command in entry_points(group="vkdml.commands", name=name):
        return command.load()
    raise MissingPackageError(f"vkdml {name} is a command of the package vkdml_lab, which is not installed: in a checkout of "
                              f"vkdml pip install ./lab, else pip install vkdml_lab-{__version__}-py3-none-any.whl")


def _parser(laboratory: Any = None) -> argparse.ArgumentParser:
    """laboratory: the module of the command of vkdml_lab that is called."""
    parser = argparse.ArgumentParser(prog="vkdml", description="DirectML's recurrent operators on a Vulkan device.")
    parser.add_argument("--version", action="version", version=f"vkdml {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (module, what) in _COMMANDS.items():
        command = commands.add_parser(name, help=what)
        module.add(command)
        command.set_defaults(command=module.run)
    for name, what in _LABORATORY.items():
        command = commands.add_parser(name, help=what)
        if laboratory:
            laboratory.add(command)
            command.set_defaults(command=laboratory.run)
    return parser
