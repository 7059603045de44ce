"""Run the schedules under Vulkan's synchronization validation, and each kernel of the self-test under GPU-assisted validation,
which sees accesses out of bounds; report what the layer says.

    python -m tools.validate            needs .vulkan/layers (make vulkan-extras) or VKDML_LAYER_PATH

First a control of each: two dependent dispatches in one submission, and a kernel that writes behind a buffer. The layer must
report them, or its silence means nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["tests/conformance/test_reference.py", "tests/conformance/test_elementwise.py", "tests/conformance/test_plain.py",
         "tests/engine/test_operator.py", "tests/engine/test_weights.py", "tests/engine/test_binding.py",
         "tests/engine/test_resources.py", "tests/engine/test_copies.py", "tests/engine/test_graph.py",
         "tests/engine/test_fallback.py", "tests/engine/test_float64.py", "tests/engine/test_execution.py",
         "tests/faces/test_element_types.py", "tests/faces/onnx"]

CONTROL = """
import numpy as np
from tests.support import SCHEDULES, Case, gru_desc, random_arrays, run_on_device
from vkdml import Device
from vkdml.laboratory import without_barriers
desc = gru_desc(5, 3, 6, 9)
with without_barriers():
    run_on_device(Device(), Case(desc, None, random_arrays(desc, np.random.default_rng(0))), SCHEDULES["projected"])
"""

OUT_OF_BOUNDS = """
import pathlib, shutil, tempfile
import vkdml
from tools.compile_shaders import SHADERS, compile_source
from vkdml.laboratory import ACTIVATION, FLOAT32, open_device, outcomes_of, with_kernel
with tempfile.TemporaryDirectory() as directory:
    shaders = pathlib.Path(directory) / "shaders"
    shutil.copytree(SHADERS, shaders)
    source = shaders / "common" / "elementwise.glsl"
    source.write_text(source.read_text().replace("element < tensors.elements", "element <= tensors.elements"))
    compile_source(shaders / "elementwise.comp", shaders / "wrong.spv", {"STORAGE": "words"})
    wrong = (shaders / "wrong.spv").read_bytes()
with with_kernel("elementwise", wrong):
    list(outcomes_of(open_device(vkdml.Device().info), ACTIVATION, FLOAT32))
"""

_SETTINGS = """khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.log_filename = {log}
khronos_validation.duplicate_message_limit = 0
"""
SYNCHRONIZATION = _SETTINGS + """khronos_validation.report_flags = error,warn
khronos_validation.validate_sync = true
khronos_validation.syncval_shader_accesses_heuristic = true
"""
# Without warnings: they say which of the device's features the layer turns on for itself
GPU_ASSISTED = _SETTINGS + """khronos_validation.report_flags = error
khronos_validation.validate_core = false
khronos_validation.gpuav_enable = true
khronos_validation.gpuav_shared_memory_data_race = true
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


def out_of_bounds(log: str) -> int:
    return log.count("access out of bounds")


def messages(layers: Path, command: list[str], environment: Mapping[str, str] = os.environ, settings: str = SYNCHRONIZATION
             ) -> tuple[int, str]:
    """The exit code of a command under the layer, and all that the layer logged."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "validation.log"
        (Path(directory) / "vk_layer_settings.txt").write_text(settings.format(log=log))
        with_layer = {**environment, "VK_LAYER_PATH": str(layers), "VK_LAYER_SETTINGS_PATH": directory}
        code = subprocess.run(command, cwd=ROOT, env=with_layer).returncode
        # Tests in processes of their own begin the file anew, where this one goes on behind a gap of zeros
        return code, log.read_text().replace("\0", "") if log.exists() else ""


def synchronization(tests: Sequence[str]) -> int:
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
          f"tests {'passed' if code == 0 else 'failed'}", flush=True)
    return int(bool(log.strip()) or code != 0)


def gpu_assisted() -> int:
    """Run the self-test, whose buffers have no guards behind them as those of the tests do."""
    _, control = messages(layers(), [sys.executable, "-c", OUT_OF_BOUNDS], settings=GPU_ASSISTED)
    if not out_of_bounds(control):
        print("validate: the layer does not see an access out of bounds that is there, so it has not looked for any: it is too "
              "old, or this driver has not what it needs for that")
        return 0
    print(f"control: the layer reports {out_of_bounds(control)} accesses out of bounds of a kernel that has some", flush=True)
    code, log = messages(layers(), [sys.executable, "-m", "vkdml", "selftest"], settings=GPU_ASSISTED)
    print(log[:4000], end="")
    print(f"validate: {out_of_bounds(log)} accesses out of bounds; the self-test {'passed' if code == 0 else 'failed'}")
    return int(bool(log.strip()) or code != 0)


def main(tests: Sequence[str] = TESTS) -> int:
    return synchronization(tests) or gpu_assisted()


if __name__ == "__main__":
    raise SystemExit(main())
