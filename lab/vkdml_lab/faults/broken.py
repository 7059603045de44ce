"""Breaks a device on purpose, to check what the conformance suite reports about it:

    python -m vkdml_lab.faults.broken FAULT FOLDER [PYTEST'S ARGUMENTS]

It runs tests of the suite on the default device and prints the report. As pytest's plugin, this module also breaks the device
in the suite's process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tools import compile_shaders
from vkdml_lab import ROOT
from vkdml_lab.conformance.command import on_device as conformance_on
from vkdml_lab.internals import Kernel, Submission, kernels, of_spirv, select_device
from vkdml_lab.suite import support

_FAULT = "VKDML_TOOLS_FAULT"  # environment variable that names the fault in the suite's process
_SECONDS = 15  # timeout of a test, long enough on a busy machine


def cell() -> None:
    """Compute the forget gate of coupled LSTMs as the input gate."""
    _mistake("cells/lstm.glsl", "1.0 - i;", "i;", "lstm")


def abort() -> None:
    """End the process, with a message, when the kernel float64/rnn runs."""
    def end(submission: Submission) -> None:
        os.write(2, b"driver: internal error: unknown opcode in block 7\n")
        os.abort()

    _instead("float64/rnn", end)


def denormals() -> None:
    """Flush denormal weights to 0. Half of all float32 problems get weights that are denormal."""
    flushed = "abs(weights[word]) < 1.17549435e-38 ? 0.0 : weights[word]"
    _mistake("pack.comp", "floatBitsToUint(weights[word])", f"floatBitsToUint({flushed})", "pack")
    usual, made = support.random_arrays, [0]

    def random_arrays(desc: Any, rng: np.random.Generator, *element: Any) -> dict[str, np.ndarray]:
        arrays = usual(desc, rng, *element)
        made[0] += 1
        if arrays["InputTensor"].dtype == np.float32 and made[0] % 2:
            arrays["InputTensor"] *= np.float32(2.0**124)
            arrays["WeightTensor"] *= np.float32(2.0**-124)
        return arrays

    patch.object(support, "random_arrays", random_arrays).start()


FAULTS: Mapping[str, Callable[[], None]] = {fault.__name__: fault for fault in (cell, abort, denormals)}


def _mistake(file: str, old: str, new: str, name: str) -> None:
    """Compile the kernels with `name` in their name from shaders in which `old` became `new` in one file."""
    right = kernels.load
    with tempfile.TemporaryDirectory() as folder:
        found = compile_shaders.mistaken(Path(folder), file, old, new,
                                         lambda kernel: name in kernel.rpartition("/")[2].split("_"))
    wrong = {kernel: of_spirv(kernel, code) for kernel, code in found.items()}
    patch.object(kernels, "load", lambda kernel: wrong.get(kernel) or right(kernel)).start()


def _instead(name: str, run: Callable[[Submission], None]) -> None:
    """Call `run` instead of executing submissions that use the kernel."""
    dispatch, usual = Submission.dispatch, Submission.run
    broken: set[Submission] = set()

    def noted(submission: Submission, kernel: Kernel, push: Mapping[str, int]) -> None:
        if kernel.compiled.name == name:
            broken.add(submission)
        dispatch(submission, kernel, push)

    patch.object(Submission, "dispatch", noted).start()
    patch.object(Submission, "run", lambda submission: (run if submission in broken else usual)(submission)).start()


def pytest_configure(config: object) -> None:
    FAULTS[os.environ[_FAULT]]()


def report(fault: str, folder: Path, *arguments: str) -> str:
    """Return the suite's report about a device with this fault. arguments: pytest's, which choose tests."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[_FAULT] = fault
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # for tools
    conformance_on(select_device(None), folder, ["-p", "vkdml_lab.faults.broken", f"--timeout={_SECONDS}", *arguments])
    return (folder / "conformance.md").read_text()


if __name__ == "__main__":
    print(report(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
