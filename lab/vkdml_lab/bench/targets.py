"""The libraries that `vkdml conformance --target LIBRARY[:DEVICE]` can test, each with its adapter and settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from vkdml_lab.bench.peers import Peer

# Names of ONNX Runtime's providers, in its spelling
PROVIDERS = {"cpu": "CPU", "webgpu": "WebGpu", "cuda": "CUDA", "tensorrt": "Tensorrt", "rocm": "ROCM", "migraphx": "MIGraphX",
             "dml": "Dml", "openvino": "OpenVINO", "coreml": "CoreML", "qnn": "QNN", "xnnpack": "Xnnpack"}


def _onnxruntime(device: str) -> dict[str, Any]:
    """Return the adapter's settings. device: a provider's name in upper or lower case, or NAME=PATH of a plugin's library."""
    name, _, path = device.partition("=")
    provider = f"{PROVIDERS.get(name.lower(), name)}ExecutionProvider"
    return {"provider": name, "plugin": path} if path else {"provider": provider}


# The module, the settings for the text after the colon, and the default of that text
TARGETS: Mapping[str, tuple[str, Callable[[str], dict[str, Any]], str]] = {
    "onnxruntime": ("ort", _onnxruntime, "cpu"),
    "torch": ("torch_nn", lambda device: {"device": device}, "cpu"),
    "openvino": ("openvino_any", lambda device: {"device": device.upper()}, "CPU"),
    "iree": ("iree_vulkan", lambda device: {"device": device.removeprefix("vulkan")}, "vulkan"),
    "ncnn": ("ncnn_vulkan", lambda device: {"device": device.removeprefix("vulkan")}, "vulkan"),
    "tract": ("tract_cpu", lambda _: {}, ""),
    "onnx": ("onnx_reference", lambda _: {}, ""),
    "vkdml": ("ours", lambda device: {"device": int(device) if device else None}, ""),
    "python": ("function", lambda name: {"name": name, "folder": os.getcwd()}, ""),
}


def target(text: str) -> Peer:
    """Return the peer (a library with its adapter) for a text LIBRARY or LIBRARY:DEVICE. Raises ValueError for other texts."""
    library, _, device = text.partition(":")
    if library not in TARGETS or (library == "python" and "." not in device):
        known = ", ".join(name for name in TARGETS if name != "python")
        raise ValueError(f"one of {known}, with :DEVICE if another is meant, or python:module.function")
    adapter, settings, usual = TARGETS[library]
    return Peer(text, adapter, settings(device or usual))
