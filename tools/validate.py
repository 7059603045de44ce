"""Run the schedules under Vulkan's synchronization validation and report what the layer says.

    python -m tools.validate            needs .vulkan/layers (make vulkan-extras) or VKDML_LAYER_PATH

First a control: two dependent dispatches in one submission, which the layer must report, or its silence means nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["tests/conformance/test_reference.py", "tests/conformance/test_elementwise.py", "tests/runtime/test_operator.py",
         "tests/runtime/test_fallback.py", "tests/runtime/test_float64.py", "tests/runtime/test_network.py",
         "tests/faces/test_element_types.py", "tests/faces/onnx"]

CONTROL = """
import numpy as np
from tests.support import SCHEDULES, Case, gru_desc, random_arrays, run_on_device
from vkdml import Device
from vkdml.runtime import commands
commands._Builder._dependencies = lambda builder, operation: set()  # so no barrier, and one submission
desc = gru_desc(5, 3, 6, 9)
run_on_device(Device(), Case(desc, None, random_arrays(desc, np.random.default_rng(0))), SCHEDULES["projected"])
"""

SETTINGS = """khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn
khronos_validation.log_filename = {log}
khronos_validation.validate_sync = true
khronos_validation.syncval_shader_accesses_heuristic = true
khronos_validation.duplicate_message_limit = 0
"""


def layers() -> Path:
    """The folder with the layer. Ends the program where it is not there."""
    folder = Path(os.environ.get("VKDML_LAYER_PATH", ROOT / ".vulkan" / "layers"))
    if not list(folder.glob("*.json")):
        raise SystemExit(f"validate: no validation layer in {folder}: run `make vulkan-extras`, or set VKDML_LAYER_PATH to the "
                         "folder of a current VkLayer_khronos_validation.json")
    return folder


def hazards(log: str) -> int:
    return log.count("SYNC-HAZARD")


def messages(layers: Path, command: list[str], environment: Mapping[str, str] = os.environ) -> tuple[int, str]:
    """The exit code of a command under the layer, and all that the layer logged."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "validation.log"
        (Path(directory) / "vk_layer_settings.txt").write_text(SETTINGS.format(log=log))
        with_layer = {**environment, "VK_LAYER_PATH": str(layers), "VK_LAYER_SETTINGS_PATH": directory}
        code = subprocess.run(command, cwd=ROOT, env=with_layer).returncode
        # Tests in processes of their own begin the file anew, where this one goes on behind a gap of zeros
        return code, log.read_text().replace("\0", "") if log.exists() else ""


def main(tests: Sequence[str] = TESTS) -> int:
    code, control = messages(layers(), [sys.executable, "-c", CONTROL])
    if code != 0:
        print("validate: the control failed", file=sys.stderr)
        return 1
    if not hazards(control):
        print("validate: the layer does not see a hazard that is there: it is too old, or was not loaded", file=sys.stderr)
        return 1
    print(f"control: the layer reports {hazards(control)} hazards where dispatches are not ordered", flush=True)
    code, log = messages(layers(), [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests])
    print(log[:4000], end="")
    print(f"validate: {hazards(log)} hazards, {log.count('VUID-')} other messages; "
          f"tests {'passed' if code == 0 else 'failed'}")
    return int(bool(log.strip()) or code != 0)


if __name__ == "__main__":
    raise SystemExit(main())
