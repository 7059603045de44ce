"""The adapter for IREE on Vulkan, which compiles models ahead of time."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from iree import compiler, runtime
from iree.compiler.tools.import_onnx.__main__ import main as import_onnx
from iree.compiler.tools.import_onnx.__main__ import parse_arguments

from vkdml_lab.bench.adapters.library import Call, OnnxLibrary
from vkdml_lab.bench.nodes import Node
from vkdml_lab.processes import UnavailableError

_LINES = """import subprocess
def run(model, arrays):
    open("case.onnx", "wb").write(model)
    subprocess.run(["iree-import-onnx", "case.onnx", "-o", "case.mlir"], check=True)
    subprocess.run(["iree-compile", "case.mlir", "--iree-hal-target-backends=vulkan-spirv", "-o", "case.vmfb"], check=True)
    for name in arrays:
        np.save(name, arrays[name])
    command = ["iree-run-module", "--module=case.vmfb", "--device=vulkan", "--function=case"]
    return subprocess.check_output([*command, *(f"--input=@{name}.npy" for name in arrays)], text=True)
"""


class Library(OnnxLibrary):
    lines = _LINES

    def __init__(self, device: str = "") -> None:
        driver = runtime.get_driver("vulkan")
        listed = [info for info in driver.query_available_devices() if info["name"].startswith(device)]
        if not listed:
            raise UnavailableError(f"IREE does not list the Vulkan device {device}")
        self._config = runtime.Config(device=driver.create_device(listed[0]["device_id"]))
        self.description = {"version": version("iree-base-runtime"), "device": f"Vulkan, {listed[0]['name']}"}

    def load(self, node: Node) -> Call:
        context = runtime.SystemContext(config=self._config)
        module = runtime.VmModule.copy_buffer(context.instance, _compile(node))
        context.add_vm_module(module)
        function = context.modules[module.name]["case"]  # the graph's name
        return lambda feeds: _listed(function(*(feeds[name] for name in node.feeds)))

    def to_numpy(self, outputs: Sequence[Any]) -> list[np.ndarray]:
        return [_to_host(self._config.device, output) for output in outputs]


def _listed(outputs: Any) -> Sequence[Any]:
    return outputs if isinstance(outputs, tuple | list) else [outputs]


def _to_host(device: runtime.HalDevice, array: runtime.DeviceArray) -> np.ndarray:
    """Copy an array of the device to numpy, through staging memory. DeviceArray.to_host would fail on drivers that can import
    host memory, as it passes memory that may not begin at a page.
    """
    source = array._buffer_view.get_buffer()
    staging = device.allocator.allocate_buffer(
        memory_type=int(runtime.MemoryType.HOST_LOCAL | runtime.MemoryType.DEVICE_VISIBLE),
        allowed_usage=int(runtime.BufferUsage.TRANSFER_TARGET | runtime.BufferUsage.MAPPING_SCOPED),
        allocation_size=source.byte_length())
    semaphore = device.create_semaphore(0)
    device.queue_copy(source, staging, wait_semaphores=runtime.HalFence.create_at(semaphore, 0),
                      signal_semaphores=runtime.HalFence.create_at(semaphore, 1))
    runtime.HalFence.create_at(semaphore, 1).wait()
    return np.asarray(staging.map().asarray(array.shape, array.dtype))


def _compile(node: Node) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        model, mlir = Path(folder) / "model.onnx", Path(folder) / "model.mlir"
        model.write_bytes(node.model())
        if import_onnx(parse_arguments([str(model), "-o", str(mlir)])):
            raise RuntimeError("IREE could not import the ONNX model")
        return bytes(compiler.compile_file(str(mlir), target_backends=["vulkan-spirv"], input_type="onnx"))
