"""The adapter for ONNX Runtime and its providers. Some are plugins, such as WebGPU's, which uses Vulkan through Dawn."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Any

import onnxruntime

from vkdml_lab.bench.adapters.library import Call, OnnxLibrary
from vkdml_lab.bench.nodes import Node
from vkdml_lab.processes import UnavailableError

PROVIDER = "ExecutionProvider"
WEBGPU = "WebGpu" + PROVIDER


class Library(OnnxLibrary):
    """ONNX Runtime with one provider. vendor: ID of the GPU vendor that a plugin should use. plugin: path of its library."""

    def __init__(self, provider: str = "CPUExecutionProvider", vendor: int = 0, plugin: str = "") -> None:
        self._provider = provider
        self._devices: list[Any] = []
        device = provider.removesuffix(PROVIDER)
        if provider == WEBGPU or plugin:
            name, path = (provider, plugin) if plugin else _webgpu()
            onnxruntime.register_execution_provider_library(name, path)
            self._devices = _devices(name, vendor)
            device = f"plugin {plugin}" if plugin else f"WebGPU plugin {version('onnxruntime-ep-webgpu')}"
        elif provider not in onnxruntime.get_available_providers():
            raise UnavailableError(f"this build of onnxruntime has no {provider}")
        self.description = {"version": onnxruntime.__version__, "device": device}
        self.lines = _LINES_OF_PLUGIN if self._devices else _LINES.format(provider=provider)

    def load(self, node: Node) -> Call:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # it also raises what it logs
        if self._devices:
            options.add_provider_for_devices(self._devices, {})
        if self._provider != "CPUExecutionProvider":
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")  # unsupported nodes must fail
        session = onnxruntime.InferenceSession(node.model(), options, None if self._devices else [self._provider])
        return lambda feeds: session.run(None, feeds)


def _webgpu() -> tuple[str, str]:
    plugin = import_module("onnxruntime_ep_webgpu")
    return plugin.get_ep_name(), plugin.get_library_path()


def _devices(name: str, vendor: int) -> list[Any]:
    """Return a list of one device of the plugin `name`: the first one of this vendor or, if there is none, the first of all."""
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    if not devices:
        raise UnavailableError("no device listed: the plugin is offered only GPUs that the system lists in /sys/class/drm")
    return sorted(devices, key=lambda device: device.device.vendor_id != vendor)[:1]


_LINES = """import onnxruntime
def run(model, arrays):
    return onnxruntime.InferenceSession(model, providers=["{provider}"]).run(None, arrays)
"""
_LINES_OF_PLUGIN = """import onnxruntime, onnxruntime_ep_webgpu as plugin
onnxruntime.register_execution_provider_library(plugin.get_ep_name(), plugin.get_library_path())
def run(model, arrays):
    options, devices = onnxruntime.SessionOptions(), onnxruntime.get_ep_devices()
    options.add_provider_for_devices([one for one in devices if one.ep_name == plugin.get_ep_name()][:1], {})
    return onnxruntime.InferenceSession(model, options).run(None, arrays)
"""
