"""The table of peers. A peer is a library on a device that the benchmark measures in a process of its own (its worker)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vkdml import Device, DeviceInfo
from vkdml_lab import ROOT
from vkdml_lab.bench.cases import Case
from vkdml_lab.internals import select_device

SWIFTSHADER = ROOT / ".vulkan" / "swiftshader_icd.json"
OURS = "vkdml"
VULKAN, CPU, GPU = "Vulkan", "the CPU", "the GPU"  # GPU: by other ways than Vulkan

ALL_PEERS = "make bench-peers"
HALF = 2e-2  # tolerance of float16 and TF32


@dataclass(frozen=True)
class Peer:
    """A library and how it is measured.

    adapter: a module with a class Library; a name without a dot is in vkdml_lab.bench.adapters. settings: that class's
    arguments. environment: variables of the worker's process. install: how to install the library. tolerance: the largest
    allowed difference from the reference. baseline: name of the vkdml peer to compare with. changes: fields of each Case to
    replace. cells: those that the library has. platform: VULKAN, CPU or GPU, the picture that shows it; "" for none.
    grows: whether to measure how times grow with T, B and H. parts: peers that share its process, if it stands for several.
    """

    name: str
    adapter: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    install: str = ALL_PEERS
    tolerance: float = 1e-3
    baseline: str = OURS
    changes: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[str, ...] = ("gru", "lstm")
    platform: str = ""
    grows: bool = False
    parts: tuple[Peer, ...] = ()

    @staticmethod
    def together(parts: Sequence[Peer]) -> Peer:
        """Return one peer that stands for several, and runs all their libraries in one process."""
        libraries = {part.name: (part.adapter, part.settings) for part in parts}
        return Peer("together", "together", {"libraries": libraries}, parts=tuple(parts))

    def part(self, way: str) -> Peer:
        """Return the peer that a way to call belongs to: for "NAME/...", the peer NAME in `parts`, or else this one."""
        return next((part for part in self.parts if way.startswith(f"{part.name}/")), self)

    def case(self, case: Case) -> Case:
        return replace(case, **self.changes)


def devices(wanted: str | None = None) -> tuple[DeviceInfo, list[DeviceInfo]]:
    """Return the `wanted` or default Vulkan device, and a list of all others, SwiftShader among them if it has been fetched.
    The indices in that list are valid in processes that run with the variables of `others_environment`.
    """
    default = select_device(wanted)
    os.environ.update(others_environment())
    try:
        return default, [info for info in Device.enumerate() if replace(info, index=default.index) != default]
    finally:
        for name in others_environment():
            del os.environ[name]


def others_environment() -> dict[str, str]:
    return {"VK_ADD_DRIVER_FILES": str(SWIFTSHADER)} if SWIFTSHADER.exists() else {}


def peers(default: DeviceInfo, others: list[DeviceInfo]) -> list[Peer]:
    ours, torch, openvino = "ours", "torch_nn", "openvino_any"
    add_openvino = "pip install openvino, and Intel's driver for OpenCL for its GPU"
    add_gpu = "install torch for this GPU (CUDA, ROCm or XPU), as pytorch.org says"
    on_gpu = {"device": "gpu", "name": default.name}
    webgpu = {"provider": "WebGpuExecutionProvider", "vendor": default.vendor}
    swiftshader = next((name(info) for info in others if "SwiftShader" in info.name), OURS)
    # Dawn in ONNX Runtime's WebGPU plugin refuses lavapipe, but finds a GPU without help
    dawn = (swiftshader, {"VK_ICD_FILENAMES": str(SWIFTSHADER)}) if default.is_cpu and SWIFTSHADER.exists() else (OURS, {})
    device = {"device": default.index}
    return [
        Peer(OURS, ours, device, platform=VULKAN, grows=True),
        Peer(f"{OURS}-lbr0", ours, device, changes={"linear_before_reset": False}, cells=("gru",)),
        Peer(f"{OURS}-float16", ours, device | {"dtype": "float16"}, tolerance=HALF),
        *(Peer(name(info), ours, {"device": info.index}, others_environment(), platform=VULKAN, grows=True) for info in others),
        Peer("onnxruntime-cpu", "ort", install="pip install onnxruntime", platform=CPU, grows=True),
        Peer("onnxruntime-webgpu", "ort", webgpu, dawn[1], "pip install onnxruntime-ep-webgpu", baseline=dawn[0],
             platform=VULKAN, grows=True),
        Peer("iree-vulkan", "iree_vulkan", {"device": default.name}, platform=VULKAN, grows=True),
        # The device tells how many dispatches it makes. Without any it runs on the CPU, and belongs in no picture
        Peer("ncnn", "ncnn_vulkan", {"device": default.name}, install="pip install ncnn"),
        Peer("openvino-cpu", openvino, install=add_openvino, platform=CPU, grows=True),
        Peer("openvino-gpu", openvino, {"device": "GPU", "name": default.name}, install=add_openvino, platform=GPU, grows=True),
        Peer("torch-cpu", torch, install="pip install torch", platform=CPU, grows=True),
        Peer("torch-gpu", torch, on_gpu, install=add_gpu, tolerance=HALF, platform=GPU, grows=True),
        Peer("torch-gpu-without-tf32", torch, on_gpu | {"tf32": False}, install=add_gpu),
        Peer("torch-gpu-float16", torch, on_gpu | {"dtype": "float16"}, install=add_gpu, tolerance=HALF),
    ]


def name(info: DeviceInfo) -> str:
    """Return the name of vkdml's peer on a device, such as "vkdml-llvmpipe1". The index tells devices of one name apart."""
    return f"{OURS}-{re.split(r'[^a-z]', info.name.lower())[0]}{info.index}"
