"""Runs executions on tensors of any device of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ...engine.execution import Execution
from ...errors import TorchArgumentError

_PINS = ("cuda", "xpu")  # the types of devices for which PyTorch pins the host's memory; ROCm's is "cuda" too


def run(module: str, execution: Execution, tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]
        ) -> dict[str, Tensor]:
    """Run an execution on tensors of one device, and of the CPU. Return its outputs, of the first tensor's device and type.

    module: for errors. tensors: all that `Execution.run` takes, with any strides. shapes: of the outputs to return.
    """
    device = next(iter(tensors.values())).device
    given = tensors if device.type == "cpu" else _on_host(module, device, tensors)
    arrays = {name: np.ascontiguousarray(to_numpy(tensor)) for name, tensor in given.items()}
    dtype = next(iter(arrays.values())).dtype
    found = execution.run(arrays, {name: (shape, dtype) for name, shape in shapes.items()})
    made = {name: to_torch(array) for name, array in found.items()}
    if device.type == "cpu":
        return made
    pins = device.type in _PINS
    return {name: (tensor.pin_memory() if pins else tensor).to(device, non_blocking=pins) for name, tensor in made.items()}


def _on_host(module: str, device: torch.device, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to the host on the device's current stream, and wait once: for the last."""
    if getattr(getattr(torch, device.type), "is_current_stream_capturing", bool)():
        raise TorchArgumentError(module, "call", "a call while a CUDA graph is captured", "one outside of the capture, as "
                                 "CUDA's graphs cannot contain the work of a Vulkan device")
    pins, (*_, last) = device.type in _PINS, (name for name, tensor in tensors.items() if not tensor.is_cpu)
    return {name: tensor if tensor.is_cpu else torch.empty(
        tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pins).copy_(tensor.detach(), non_blocking=name != last)
        for name, tensor in tensors.items()}


def to_numpy(tensor: Tensor) -> np.ndarray:
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.detach().cpu().resolve_neg().contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy(force=True)


def to_torch(array: np.ndarray) -> Tensor:
    if array.dtype.kind == "V":  # bfloat16: numpy has no kind for it, and comparing names takes microseconds
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
