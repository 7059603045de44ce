"""Builds the Vulkan layer of layer.c, which makes calls fail, and controls it in a process that was started with the layer."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import NamedTuple

_SOURCE = Path(__file__).with_name("layer.c")
_NAME = "VK_LAYER_VKDML_faults"
_LIBRARY = "libVkLayer_vkdml_faults.so"
_MANIFEST = {"file_format_version": "1.2.0", "layer": {
    "name": _NAME, "type": "GLOBAL", "library_path": f"./{_LIBRARY}", "api_version": "1.3.0", "implementation_version": "1",
    "description": "makes chosen calls of Vulkan fail"}}


def build(folder: Path) -> dict[str, str]:
    """Compile the layer into a folder. Returns the environment variables for processes that shall run with it."""
    command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run([*command, "-o", str(folder / _LIBRARY), str(_SOURCE)], check=True)
    (folder / "VkLayer_vkdml_faults.json").write_text(json.dumps(_MANIFEST))
    # Mesa's device-select layer crashes if listing a device's extensions fails
    return {"VK_LAYER_PATH": str(folder), "VK_INSTANCE_LAYERS": _NAME, "NODEVICE_SELECT": "1"}


class Fault(NamedTuple):
    """A call that shall fail. call: its number among the function's, from 1. result: a VkResult. repeats: later ones, too."""

    function: str
    call: int
    result: int
    repeats: bool = False


NONE = Fault("", 0, 0)


class Layer:
    """Controls the layer in this process. folder: where it was built."""

    def __init__(self, folder: Path) -> None:
        self._library = ctypes.CDLL(str(folder / _LIBRARY))
        self._library.faults_name.restype = ctypes.c_char_p
        self._library.faults_submitted.restype = ctypes.c_uint64

    def arm(self, fault: Fault) -> None:
        """Choose the call that shall fail (NONE: no call), and set all counts to 0."""
        self._library.faults_arm(fault.function.encode(), fault.call, fault.result, fault.repeats)

    @property
    def fired(self) -> int:
        """The number of calls that the layer has made fail since `arm`."""
        return int(self._library.faults_fired())

    @property
    def dispatches(self) -> int:
        """The number of dispatches that were submitted since `arm`."""
        return self.submitted()["dispatches"]

    def counts(self) -> dict[str, int]:
        """Return the number of calls since `arm`, by the Vulkan function's name."""
        counts: dict[str, int] = {}
        while name := self._library.faults_name(len(counts)):
            counts[name.decode()] = self._library.faults_count(len(counts))
        return counts

    def submitted(self) -> dict[str, int]:
        """Return how many dispatches, barriers, copies and copied bytes were submitted since `arm`, by these words."""
        return {what: int(self._library.faults_submitted(at))
                for at, what in enumerate(("dispatches", "barriers", "copies", "copied bytes"))}
