"""ONNX Runtime: its CPU provider, and its WebGPU plugin, which runs on Vulkan through Dawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime

from bench.cases import Case
from bench.models import STATE_INPUTS, feeds, make_model
from bench.runner import Runner, UnavailableError, zero_arrays


class Library:
    def __init__(self, webgpu: bool = False) -> None:
        self._devices = _webgpu_devices() if webgpu else []
        self.description = {"version": onnxruntime.__version__,
                            "device": f"WebGPU plugin {_plugin_version()}" if webgpu else "CPU"}

    def prepare(self, case: Case) -> dict[str, Runner]:
        options = onnxruntime.SessionOptions()
        if self._devices:
            options.add_provider_for_devices(self._devices, {})
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")  # what it does not support must fail
        session = onnxruntime.InferenceSession(make_model(case), options,
                                               providers=None if self._devices else ["CPUExecutionProvider"])
        given = feeds(case)

        def call(*states: np.ndarray) -> Sequence[Any]:
            return session.run(None, {**given, **dict(zip(STATE_INPUTS, states))})

        return {"host": Runner(case, call, lambda: zero_arrays(case), list)}


def _webgpu_devices() -> list[Any]:
    import onnxruntime_ep_webgpu as plugin

    name = plugin.get_ep_name()
    onnxruntime.register_execution_provider_library(name, plugin.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    if not devices:
        raise UnavailableError("no device listed: the plugin is offered only GPUs that the system lists in /sys/class/drm")
    return devices[:1]


def _plugin_version() -> str:
    from importlib.metadata import version

    return version("onnxruntime-ep-webgpu")
