"""The command `vkdml`. Each of its commands is a module whose `add` declares the arguments, and whose `run` does the work.

Exit codes: 0 success, 1 failure, 2 wrong arguments, inputs or environment variables, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from .. import __version__
from ..errors import InvalidArgumentError, MissingPackageError, VkdmlError, printable
from . import devices, explain, run, selftest

_COMMANDS: dict[str, tuple[Any, str]] = {  # None: the module is an entry point of the package vkdml_lab
    "devices": (devices, "list the Vulkan devices and their limits"),
    "run": (run, "run an ONNX model, its recurrent nodes on a Vulkan device"),
    "explain": (explain, "say where a model's nodes run, and how an operator would: schedule, memory, time"),
    "selftest": (selftest, "run each kernel that a device may be given, and check its results"),
    "conformance": (None, "test every Vulkan device and write a report"),
    "reproduce": (None, "repeat one test of the suite"),
    "gpu-report": (None, "what is right on a GPU, how fast it is beside others, and what was expected, as one report"),
    "radeon": (None, "run a command on an emulated Radeon GPU"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = _parser(given[0] if given else "").parse_args(given or ["--help"])
        with warnings.catch_warnings():
            # One line, like an error: the line of Python that raised it means nothing to users
            warnings.showwarning = lambda message, *_, **__: print(f"vkdml: warning: {message}", file=sys.stderr)
            return int(chosen.command(chosen))
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        sys.stdout = None
        return 1
    except KeyboardInterrupt:
        return 130
    except (VkdmlError, OSError, UnicodeError) as error:
        print(f"vkdml: {printable(str(error))}", file=sys.stderr)
        is_wrong_input = type(error.__cause__).__name__ == "InvalidArgument"  # onnxruntime's
        return 2 if isinstance(error, InvalidArgumentError) or is_wrong_input else 1


def _parser(called: str) -> argparse.ArgumentParser:
    """Make the parser of all commands. A module of vkdml_lab, which is slow to import, is imported only if it is called."""
    parser = argparse.ArgumentParser(prog="vkdml", description="DirectML's recurrent operators on a Vulkan device.")
    parser.add_argument("--version", action="version", version=f"vkdml {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (module, what) in _COMMANDS.items():
        command = commands.add_parser(name, help=what)
        if module or name == called:
            module = module or _laboratory(name)
            module.add(command)
            command.set_defaults(command=module.run)
    return parser


def _laboratory(name: str) -> Any:
    """Import the module of a vkdml_lab command. Raises MissingPackageError if vkdml_lab, or a package it needs, is missing."""
    for command in entry_points(group="vkdml.commands", name=name):
        return command.load()
    raise MissingPackageError(f"vkdml {name} is a command of the package vkdml_lab, which is not installed: in a checkout of "
                              f"vkdml pip install ./lab, else pip install vkdml_lab-{__version__}-py3-none-any.whl")
