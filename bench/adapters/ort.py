"""ONNX Runtime: its own providers, and its WebGPU plugin, which runs on Vulkan through Dawn."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import onnxruntime

from bench.cases import Case
from bench.models import STATE_INPUTS, feeds, make_model
from bench.runner import Runner, UnavailableError, zero_arrays

PROVIDER = "ExecutionProvider"
WEBGPU = "WebGpu" + PROVIDER


class Library:
    """One provider. vendor: of the GPU that the plugin is to take, where it is offered several."""

    def __init__(self, provider: str = "CPUExecutionProvider", vendor: int = 0) -> None:
        self._provider = provider
        self._devices = _webgpu_devices(vendor) if provider == WEBGPU else []
        if not self._devices and provider not in onnxruntime.get_available_providers():
            raise UnavailableError(f"this build of onnxruntime has no {provider}")
        device = f"WebGPU plugin {version('onnxruntime-ep-webgpu')}" if self._devices else provider.removesuffix(PROVIDER)
        self.description = {"version": onnxruntime.__version__, "device": device}

    def prepare(self, case: Case) -> dict[str, Runner]:
        options = onnxruntime.SessionOptions()
        if self._devices:
            options.add_provider_for_devices(self._devices, {})
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")  # what it does not support must fail
        session = onnxruntime.InferenceSession(make_model(case), options,
                                               providers=None if self._devices else [self._provider])
        given = feeds(case)

        def call(*states: np.ndarray) -> Sequence[Any]:
            return session.run(None, {**given, **dict(zip(STATE_INPUTS, states))})

        return {"host": Runner(case, call, lambda: zero_arrays(case), list)}


def _webgpu_devices(vendor: int) -> list[Any]:
    """The first GPU that the plugin is offered, of this vendor if there is one."""
    import onnxruntime_ep_webgpu as plugin

    name = plugin.get_ep_name()
    onnxruntime.register_execution_provider_library(name, plugin.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    if not devices:
        raise UnavailableError("no device listed: the plugin is offered only GPUs that the system lists in /sys/class/drm")
    return sorted(devices, key=lambda device: device.device.vendor_id != vendor)[:1]
