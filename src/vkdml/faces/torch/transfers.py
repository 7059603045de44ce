"""Runs executions on tensors of any device of PyTorch: through memory that CUDA or HIP shares with the Vulkan device, or else
through the host.

With shared memory, PyTorch copies inputs and results on its current stream. The host waits for the stream before a run, and for
the Vulkan device after it; later copies on other streams wait for an event.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ...engine.compiled import Share
from ...engine.execution import Execution, Node
from ...engine.vulkan.gpu import Gpu, OnceForEachGpu
from ...engine.vulkan.memory import SHARED, DeviceMemory
from ...engine.vulkan.queries import enumerate_devices
from ...errors import MissingPackageError, TorchArgumentError, VkdmlError, install_line
from ...operators.element_types import FLOAT32
from ...operators.header import descs
from ...operators.plain_problem import elementwise
from .cuda import CUDA, HIP, Imported, identity

APIS = {"cuda": HIP if torch.version.hip else CUDA}  # by PyTorch's type of device
_PINS = ("cuda", "xpu")  # the types of devices for which PyTorch pins the host's memory; ROCm's is "cuda" too
_PATTERN, _ROUNDS, _LATE = 2**20, 4, 2**25  # of the check: the words of a pattern, and of what makes a stream late

_log = logging.getLogger(__name__)


def run(module: str, execution: Execution, tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]],
        marks: Mapping[str, object] = {}) -> dict[str, Tensor]:
    """Run an execution on tensors of one device, and of the CPU. Return its outputs, of the first tensor's device and type.

    module: for errors. tensors: all that `Execution.run` takes, with any strides. shapes: of the outputs to return. marks: as
    `Execution.run` takes them.
    """
    first = next(iter(tensors.values()))
    device = first.device
    if device.type == "cpu":
        return _from_arrays(execution, tensors, shapes, marks)
    if getattr(getattr(torch, device.type), "is_current_stream_capturing", bool)():
        raise TorchArgumentError(module, "call", "a call while a CUDA graph is captured", "one outside of the capture, as "
                                 "CUDA's graphs cannot contain the work of a Vulkan device")
    if execution.shared:
        return _exchange(execution.gpu, device).run(execution, tensors, shapes, first.dtype)
    pins = device.type in _PINS
    made = _from_arrays(execution, _on_host(device, tensors), shapes, marks)
    return {name: (tensor.pin_memory() if pins else tensor).to(device, non_blocking=pins) for name, tensor in made.items()}


def _from_arrays(execution: Execution, tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]],
                 marks: Mapping[str, object]) -> dict[str, Tensor]:
    """Run an execution on tensors of the CPU."""
    arrays = {name: np.ascontiguousarray(to_numpy(tensor)) for name, tensor in tensors.items()}
    dtype = next(iter(arrays.values())).dtype
    found = execution.run(arrays, {name: (shape, dtype) for name, shape in shapes.items()}, marks=marks)
    return {name: to_torch(array) for name, array in found.items()}


def _on_host(device: torch.device, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to the host on the device's current stream, and wait once: for the last."""
    pins, (*_, last) = device.type in _PINS, (name for name, tensor in tensors.items() if not tensor.is_cpu)
    return {name: tensor if tensor.is_cpu else torch.empty(
        tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pins).copy_(tensor.detach(), non_blocking=name != last)
        for name, tensor in tensors.items()}


@contextmanager
def _context(device: torch.device) -> Iterator[None]:
    """Make a device of PyTorch, with its context, this thread's."""
    module = getattr(torch, device.type)
    with module.device(device):
        module.current_stream(device).query()  # a new thread may have the device, but no context
        yield


class _Exchange:
    """Runs executions whose tensors pass through memory that a device of PyTorch shares with a Vulkan device."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._module, self._api = device, getattr(torch, device.type), APIS[device.type]
        self._context = partial(_context, device)
        self._copied: Any = None  # the event after the last copies of results

    def run(self, execution: Execution, tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]], dtype: torch.dtype
            ) -> dict[str, Tensor]:
        views: dict[str, Tensor] = {}

        def fill(memory: Mapping[str, DeviceMemory]) -> None:
            given = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items() if name in execution.shared}
            views.update((name, self._view(memory[name], *facts)) for name, facts in given.items())
            views.update((name, self._view(memory[name], shape, dtype)) for name, shape in shapes.items())
            if self._copied is not None:  # another stream may still read the last results
                stream.wait_event(self._copied)
            for name in given:
                views[name].copy_(tensors[name].detach())
            stream.synchronize()

        arrays = {name: to_numpy(tensor) for name, tensor in tensors.items() if name not in execution.shared}
        with execution.gpu.lock, self._context():  # until the results are copied
            stream = self._module.current_stream(self._device)
            execution.run(arrays, {}, fill)
            found = {name: views[name].clone() for name in shapes}
            self._copied = stream.record_event()
            return found

    def _view(self, memory: DeviceMemory, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor in shared memory, which is imported once."""
        if memory._imported is None:
            imported = Imported(self._api, self._device.index, self._context, memory)
            with torch.inference_mode(False):
                memory._imported = imported, from_dlpack(imported.capsule())
        tensor: Tensor = memory._imported[1]
        return tensor[:torch.Size(shape).numel() * dtype.itemsize].view(dtype).view(shape)


_exchange = OnceForEachGpu(lambda gpu, device: _Exchange(device))


def same_gpu(device: torch.device) -> str | None:
    """Return the UUID of the Vulkan device that is a device of PyTorch; None if none is, or PyTorch's is no GPU."""
    if device.type not in APIS:
        return None
    try:
        found, infos = identity(APIS[device.type], device.index, partial(_context, device)), enumerate_devices()
    except VkdmlError:
        return None
    return next((info.uuid for info in infos if found in (info.uuid, info.pci_address)), None)


def why_not_shared(gpu: Gpu, share: Share, device: torch.device) -> str:
    """Return why tensors of a device pass through the host; empty if they do not. The first question runs a check."""
    if device.type not in APIS:
        return f"vkdml imports no memory for PyTorch's {device.type} devices"
    if share.share:
        return "the host checks results (verify)"
    return _why_never(gpu, device)


@OnceForEachGpu
def _why_never(gpu: Gpu, device: torch.device) -> str:
    """Return why a Vulkan device and a device of PyTorch share no memory, or share it wrongly; empty if all is right."""
    try:
        if not gpu.info.shares_memory:
            return f"{gpu.info.with_driver} exports no memory (VK_KHR_external_memory_fd)"
        found = identity(APIS[device.type], device.index, partial(_context, device))
        if found not in (gpu.info.uuid, gpu.info.pci_address):
            return f"{device} is another GPU ({found}) than {gpu.info.name} ({gpu.info.uuid} {gpu.info.pci_address})"
        reason = "" if _is_right(gpu, device) else "the check of shared memory found wrong numbers"
    except VkdmlError as error:
        reason = str(error)
    _log.info("tensors of %s pass through %s", device, f"the host: {reason}" if reason else "shared memory")
    return reason


def _is_right(gpu: Gpu, device: torch.device) -> bool:
    """Return whether the device reads patterns that streams write late, and that they overwrite after each run."""
    tensor = descs.DML_BUFFER_TENSOR_DESC(DataType=FLOAT32.data_type, Sizes=(1, _PATTERN))
    problem = elementwise(descs.DML_ACTIVATION_IDENTITY_OPERATOR_DESC(tensor, tensor), FLOAT32)
    execution = Execution(gpu, Share(0), [Node(problem, {"InputTensor": "x", "OutputTensor": "y"})], ["y"],
                          ways=dict.fromkeys("xy", SHARED))
    module = getattr(torch, device.type)
    with module.device(device), torch.inference_mode():
        streams = [module.current_stream(device), module.Stream(device)]
        late, x, found = torch.zeros(_LATE, device=device), torch.zeros(_PATTERN, device=device), []
        patterns = [to_torch(np.arange(number, number + _PATTERN, dtype=np.float32)) for number in range(2 * _ROUNDS)]
        for number, pattern in enumerate(patterns):
            stream = streams[number % 2]
            stream.wait_stream(streams[1 - number % 2])
            with module.stream(stream):
                given = pattern.to(device)
                late.add_(1)
                x.copy_(given)
                found.append(_exchange(gpu, device).run(execution, {"x": x}, {"y": (_PATTERN,)}, torch.float32)["y"])
                x.zero_()
        module.synchronize(device)
        return all(torch.equal(y.cpu(), pattern) for y, pattern in zip(found, patterns))


def to_numpy(tensor: Tensor) -> np.ndarray:
    if tensor.dtype is torch.bfloat16:
        try:
            import ml_dtypes
        except ImportError:
            raise MissingPackageError(f"bfloat16 needs the package ml_dtypes: {install_line('torch')}") from None
        return tensor.detach().cpu().resolve_neg().contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy(force=True)


def to_torch(array: np.ndarray) -> Tensor:
    if array.dtype.kind == "V":  # bfloat16: numpy has no kind for it, and comparing names takes microseconds
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
