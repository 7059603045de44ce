"""Run vkdml under Vulkan's validation layer, and report what the layer finds. All schedules run under synchronization
validation. The self-test and the GPU kernels run under GPU-assisted validation, which finds accesses out of bounds and, in a
second run, races in shared memory.

The program takes no arguments. The layer is in .vulkan/layers (`make vulkan-extras`), or in the folder VKDML_LAYER_PATH.

A control run with a planted fault comes before each of these three runs: no barrier between dispatches, no bounds check, or no
barrier in a kernel. If the layer does not report this fault, its silence means nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from vkdml_lab import ROOT
from vkdml_lab.suite.test_gpu_projection import CASES, TILES

TESTS = [*(f"lab/vkdml_lab/suite/test_{name}.py" for name in ("reference", "elementwise", "plain", "casts")),
         *(f"tests/engine/test_{name}.py" for name in (
             "operator", "weights", "binding", "resources", "copies", "graph", "fallback", "float64", "execution")),
         "tests/faces/test_element_types.py", "tests/faces/onnx"]

CONTROL = """
from vkdml_lab.suite.support import SCHEDULES, drawn_case, gru_desc, run_on_device
from vkdml import Device
from vkdml_lab.internals import without_barriers
with without_barriers():
    run_on_device(Device(), drawn_case(gru_desc(5, 3, 6, 9)), SCHEDULES["projected"])
"""

# Runs a GRU whose kernel is compiled from shaders with other text in one file
MISTAKE = """
import os, pathlib, sys, tempfile
from vkdml_lab.suite import guards
from vkdml_lab.suite.test_gpu_kernels import CASES, WAYS
from vkdml_lab.suite.support import run_on_device
from tools.compile_shaders import SHADERS, mistaken
from vkdml import Device
from vkdml_lab.internals import with_kernel
kernel, file, old, new, way, case = sys.argv[1:]
assert (SHADERS / file).read_text().count(old) == 1
with tempfile.TemporaryDirectory() as directory:
    wrong = mistaken(pathlib.Path(directory), file, old, new, kernel.__eq__)[kernel]
guards.are_wanted = False
with with_kernel(kernel, wrong):
    device = Device()
    run_on_device(device, CASES[case], WAYS[way].options(CASES[case].problem, device.info))
os._exit(0)
"""
# Runs a program without what follows main(): where a device is still open, the layer crashes as the process ends
_RUN = "import os, sys; from {} import main; code = int(main(sys.argv[1:])); sys.stdout.flush(); os._exit(code)"

_SETTINGS = """khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.log_filename = {log}
khronos_validation.duplicate_message_limit = 0
"""
SYNCHRONIZATION = _SETTINGS + """khronos_validation.report_flags = error,warn
khronos_validation.validate_sync = true
khronos_validation.syncval_shader_accesses_heuristic = true
"""
# No warnings: they only list the device features that the layer enables for itself
_GPU_ASSISTED = _SETTINGS + """khronos_validation.report_flags = error
khronos_validation.validate_core = false
khronos_validation.gpuav_enable = true
"""
_RACES = _GPU_ASSISTED + """khronos_validation.gpuav_shared_memory_data_race = true
khronos_validation.gpuav_descriptor_checks = false
"""
# Runs each GPU kernel, for 32-bit and 16-bit elements
GPU_WAYS = ["sequence, turns", "stepped, all kept", "persistent, in chunks"]
GPU_CASES = ["GRU of one", "GRU in float16", "LSTM", "LSTM in float16", "RNN", "RNN in bfloat16"]
_SAME, _COHERENT = "test_each_way_is_right_and_gives_the_same_bits", "test_coherent_loads_give_the_same_bits"
GPU_KERNELS = [f"lab/vkdml_lab/suite/test_gpu_kernels.py::{test}[{way}-{case}]" for case in GPU_CASES
               for test, way in [*((_SAME, way) for way in GPU_WAYS), (_COHERENT, GPU_WAYS[-1])]]
GPU_KERNELS.append("tests/engine/test_gradients.py::test_right_and_of_the_same_bits_as_on_gpus")
PROJECTION = [f"lab/vkdml_lab/suite/test_gpu_projection.py::test_{test}" for test in (
    "a_sums_sign_of_zero_is_the_same_from_all_tiles",
    *(f"each_tile_is_right_and_gives_the_same_bits[{tile}-{case}]" for tile, case in zip(cycle(TILES), CASES)))]


@dataclass(frozen=True)
class FaultKind:
    """A fault to find. message: text in its reports. settings: the layer's file. mistake: arguments of MISTAKE, to plant it."""

    name: str
    message: str
    settings: str
    mistake: tuple[str, ...]


# Two runs, as the layer does not report accesses out of bounds while it looks for races
FAULT_KINDS = (
    FaultKind("accesses out of bounds", "access out of bounds", _GPU_ASSISTED,
              ("gpu/gru_stepped", "gpu/exchange.glsl", "min(unit, HIDDEN - 1)", "unit", "stepped, all kept", "GRU of one")),
    FaultKind("races in shared memory", "SharedMemoryDataRace", _RACES,
              ("gpu/gru", "gpu/CELL.comp", "phase_barrier() { barrier(); }", "phase_barrier() {}", "sequence, turns", "GRU")))


def layers() -> Path:
    """Return the folder that contains the validation layer. Exits if there is none."""
    folder = Path(os.environ.get("VKDML_LAYER_PATH", ROOT / ".vulkan" / "layers"))
    if not list(folder.glob("*.json")):
        raise SystemExit(f"validate: no validation layer in {folder}: run `make vulkan-extras`, or set VKDML_LAYER_PATH to the "
                         "folder of a current VkLayer_khronos_validation.json")
    return folder


def hazards(log: str) -> int:
    return log.count("SYNC-HAZARD")


def messages(layers: Path, command: list[str], environment: Mapping[str, str] = os.environ, settings: str = SYNCHRONIZATION
             ) -> tuple[int, str]:
    """Run a command under the layer. Returns the exit code, and the layer's log. settings: text of its settings file."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "validation.log"
        (Path(directory) / "vk_layer_settings.txt").write_text(settings.format(log=log))
        with_layer = {**environment, "VK_LAYER_PATH": str(layers), "VK_LAYER_SETTINGS_PATH": directory}
        code = subprocess.run(command, cwd=ROOT, env=with_layer).returncode
        # Tests in child processes truncate the log; this process then writes behind a gap of zeros
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


def gpu_assisted(kind: FaultKind) -> int:
    """Run the self-test and tests of GPU kernels under GPU-assisted validation. Returns 1 after failures or reports, else 0."""
    _, control = messages(layers(), [sys.executable, "-c", MISTAKE, *kind.mistake], settings=kind.settings)
    if kind.message not in control:
        print(f"validate: the layer does not see {kind.name} that are there, so it has not looked for any: it is too old, or "
              "this driver has not what it needs for that")
        return 0
    print(f"control: the layer reports {control.count(kind.message)} {kind.name} of a kernel that has some", flush=True)
    failed, pytest = 0, ["pytest", "-p", "no:cacheprovider", "-q", "--unguarded"]
    for module, *arguments in (["vkdml.cli", "selftest"], [*pytest, *GPU_KERNELS], [*pytest, *PROJECTION]):
        code, log = messages(layers(), [sys.executable, "-c", _RUN.format(module), *arguments], settings=kind.settings)
        print(log[:4000], end="")
        print(f"validate: {log.count(kind.message)} {kind.name}; {module} has {'failed' if code else 'passed'}", flush=True)
        failed |= bool(log.strip()) or code != 0
    return int(failed)


def main(tests: Sequence[str] = TESTS) -> int:
    return synchronization(tests) or max(gpu_assisted(kind) for kind in FAULT_KINDS)


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m vkdml_lab.validate", description=__doc__).parse_args()
    raise SystemExit(main())
