"""The command `vkdml`, a module for each of its commands.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..errors import VkdmlError
from . import conformance, demo, devices, dispatch, explain, gpu_report, reproduce, run, selftest

# Each has `add`, for its arguments, and `run`
_COMMANDS = {
    "devices": (devices, "list the Vulkan devices and their limits"),
    "run": (run, "run an ONNX model, its recurrent nodes on a Vulkan device"),
    "dispatch": (dispatch, "run a DxDispatch model of recurrent operators and those around them"),
    "explain": (explain, "say where a model's nodes run, and how an operator would: schedule, memory, time"),
    "demo": (demo, "words to phonemes, with a trained model"),
    "conformance": (conformance, "test every Vulkan device and write a report"),
    "reproduce": (reproduce, "run a test of the suite again, and write down what the driver was given"),
    "gpu-report": (gpu_report, "what is right on a GPU, how fast it is beside others, and what was expected, as one report"),
    "selftest": (selftest, "run each kernel that a device may be given, and check its results"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = _parser().parse_args(given or ["--help"])
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vkdml", description="DirectML's recurrent operators on a Vulkan device.")
    parser.add_argument("--version", action="version", version=f"vkdml {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (module, what) in _COMMANDS.items():
        command = commands.add_parser(name, help=what)
        module.add(command)
        command.set_defaults(command=module.run)
    return parser
