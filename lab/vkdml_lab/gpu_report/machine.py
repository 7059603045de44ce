"""Reads facts about the machine that affect times: processor, power, packages, and drivers' environment variables."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vkdml_lab.internals import KP_VERSION

# Environment variables that change a driver's behaviour, or choose the driver
VARIABLES = (
    "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE",
    "VK_INSTANCE_LAYERS", "VK_LOADER_LAYERS_ENABLE", "MESA_VK_DEVICE_SELECT", "MESA_SHADER_CACHE_DISABLE", "RADV_DEBUG",
    "RADV_PERFTEST", "RADV_FORCE_VRS", "ACO_DEBUG", "AMD_VULKAN_ICD", "AMD_DEBUG", "ANV_DEBUG", "INTEL_DEBUG", "NVK_DEBUG",
    "NAK_DEBUG", "TU_DEBUG", "IR3_SHADER_DEBUG", "PAN_MESA_DEBUG", "ASAHI_MESA_DEBUG", "LP_NUM_THREADS", "DRI_PRIME",
    "__GL_SHADER_DISK_CACHE", "__GL_THREADED_OPTIMIZATIONS", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "ZE_AFFINITY_MASK", "OMP_NUM_THREADS", "VKDML_DEVICE",
    "VKDML_MEMORY_BYTES", "VKDML_SELFTEST", "VKDML_TUNING", "VKDML_VERIFY")
PACKAGES = ("vkdml", "numpy", "onnx", "onnxruntime", "onnxruntime-ep-webgpu", "torch", "openvino", "iree-base-runtime")
CPU_INFO, SYSTEM = Path("/proc/cpuinfo"), Path("/sys")
UNKNOWN = "unknown"


def facts() -> dict[str, str]:
    return {"processor": processor(), "cores for this process": str(len(os.sched_getaffinity(0))),
            "governor": first_line(SYSTEM / "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "power": power(SYSTEM / "class/power_supply"), "system": platform.platform(), "Python": platform.python_version()}


def packages() -> dict[str, str]:
    return {"kp": KP_VERSION} | {name: installed(name) for name in PACKAGES}


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def processor() -> str:
    names = [line.partition(":")[2].strip() for line in CPU_INFO.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def power(supplies: Path) -> str:
    """Return what powers the machine, such as "mains on, battery full". supplies: /sys/class/power_supply."""
    found = {folder.name: (first_line(folder / "type"), first_line(folder / "online"), first_line(folder / "status"))
             for folder in (sorted(supplies.iterdir()) if supplies.exists() else [])}
    said = [f"mains {'on' if online == '1' else 'off'}" for kind, online, _ in found.values() if kind == "Mains"]
    said += [f"battery {status.lower()}" for kind, _, status in found.values() if kind == "Battery"]
    return ", ".join(said) or UNKNOWN


def first_line(path: Path) -> str:
    try:
        return path.read_text().splitlines()[0]
    except (OSError, IndexError):
        return UNKNOWN


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
