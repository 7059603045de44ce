"""The process that tries faults (failing Vulkan calls), started by tries.py: python -m vkdml_lab.faults.worker FOLDER PIPE"""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np

import vkdml
from vkdml_lab.faults.layer import NONE, Fault, Layer
from vkdml_lab.faults.scenarios import NAME_A_DEVICE, SCENARIOS
from vkdml_lab.internals import as_in_a_new_process, with_timeout
from vkdml_lab.processes import serve

OUT_OF_MEMORY, LOST, TIMEOUT = (-1, -2), -4, 2  # VkResults
RIGHT, NOT_REACHED = "right", "not reached"

# The message's form: what vkdml was doing, the function as vulkan.h or vulkan.hpp names it, and its result
_FAILED = r"failed while \w.*: (\w+ )?(vk[A-Z]\w+|vk::\w+::\w+): (VK_ERROR_\w+|Error[A-Z]\w+)"
_NOT_ENDED = r"failed while running a submission: it has not ended within 0.2 s. Call with fewer"

_WITHOUT_A_DEVICE = ("vkCreateInstance", "vkCreateDevice", "vkEnumeratePhysicalDevices", "vkEnumerateDeviceExtensionProperties")


class WrongError(Exception):
    """vkdml did something that it must not do. The text says what."""


class FaultWorker:
    def __init__(self, folder: Path) -> None:
        self._layer = Layer(folder)
        self._expected: dict[str, list[np.ndarray]] = {}

    def counts(self, name: str) -> dict[str, int]:
        """Run a scenario twice without faults, as if in a new process. Returns the number of calls of each Vulkan function."""
        as_in_a_new_process()
        self._layer.arm(NONE)
        run = SCENARIOS[name]()
        self._expected[name] = run()
        self._check_results(name, run())
        return self._layer.counts()

    def attempt(self, name: str, fault: Fault) -> str:
        """Run the scenario `name` twice with a fault, as if in a new process. Returns the DriverError's text, RIGHT if the
        results are right nevertheless, or NOT_REACHED if no call failed. Raises WrongError for anything else.
        """
        if name not in self._expected:
            self.counts(name)
        as_in_a_new_process()
        self._layer.arm(fault)
        run, raised = None, None
        try:
            with with_timeout(0.2) if fault.result == TIMEOUT else nullcontext():
                run = SCENARIOS[name]()
                for _ in range(2):
                    self._check_results(name, run())
        except vkdml.DriverError as error:
            raised = error
        fired = self._layer.fired
        self._layer.arm(NONE)
        if raised is not None:
            _check_error(raised, fault, fired)
        if run is not None:
            self._check_afterwards(name, run, raised)
        self._check_results(name, SCENARIOS[name]()())
        return str(raised) if raised else RIGHT if fired else NOT_REACHED

    def _check_results(self, name: str, found: list[np.ndarray]) -> None:
        for expected, array in zip(self._expected[name], found, strict=True):
            if not np.array_equal(expected, array):
                raise WrongError(f"other numbers, by {np.abs(expected - array).max()}")

    def _check_afterwards(self, name: str, run: object, raised: Exception | None) -> None:
        """Run a scenario's object again, without a fault. Its results must be right, unless it holds a device that was lost."""
        assert callable(run)
        try:
            self._check_results(name, run())
        except vkdml.DeviceLostError as error:
            if name not in NAME_A_DEVICE or not isinstance(raised, vkdml.DeviceLostError):
                raise WrongError(f"what was made before is lost: {error}") from error


def _check_error(error: vkdml.DriverError, fault: Fault, fired: int) -> None:
    if not fired:
        raise WrongError(f"an error without a fault: {error}")
    wanted: type[Exception] = vkdml.DriverError
    if fault.result in OUT_OF_MEMORY:
        wanted = vkdml.OutOfMemoryError
    elif fault.result in (LOST, TIMEOUT) and fault.function not in _WITHOUT_A_DEVICE:
        wanted = vkdml.DeviceLostError
    if not isinstance(error, wanted):
        raise WrongError(f"{type(error).__name__} instead of {wanted.__name__}: {error}")
    if not re.search(_NOT_ENDED if fault.result == TIMEOUT else _FAILED, str(error)):
        raise WrongError(f"it does not say what was being done and what failed: {error}")


if __name__ == "__main__":
    serve(FaultWorker(Path(sys.argv[1])), sys.argv[2])
