"""Access to PyTorch's GPUs: only this module lists them, waits for them, and records their graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from vkdml_lab.bench.runner import most_alike
from vkdml_lab.processes import UnavailableError

KINDS = ("cuda", "xpu", "mps")  # kinds of GPUs; ROCm is cuda, too
WARMING_CALLS = 3  # before a graph is recorded, which must not include allocations of libraries

Work = Callable[[], object]


@dataclass(frozen=True)
class Place:
    """A device that PyTorch computes on. wait: waits until it is idle. graph: records a function's work and returns a function
    that repeats it; None if PyTorch cannot. has_tf32: whether the TF32 setting has an effect.
    """

    device: torch.device
    description: str
    wait: Work = lambda: None
    graph: Callable[[Work], Work] | None = None
    has_tf32: bool = False


CPU = Place(torch.device("cpu"), "CPU")  # a call returns when it is done


def find(kinds: Sequence[str] = KINDS, name: str = "") -> Place:
    """Return the GPU whose name is most like `name`, of the first of these kinds that has any. Raises UnavailableError."""
    for kind in kinds:
        module = getattr(torch, kind)
        if module.is_available():
            names = {index: getattr(module, "get_device_name", str)(index) for index in range(module.device_count())}
            device = torch.device(kind, most_alike(names, name))
            is_cuda = kind == "cuda" and torch.version.hip is None
            return Place(device, _described(device), module.synchronize, _graph if kind == "cuda" else None, is_cuda)
    raise UnavailableError(f"this torch, {torch.__version__}, sees no GPU ({', '.join(kinds)})")


def _described(device: torch.device) -> str:
    """Return a device's name, and the library that runs its recurrent layers."""
    if device.type != "cuda":
        return device.type.upper() if device.type != "xpu" else torch.xpu.get_device_name(device)
    runs = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    return f"{torch.cuda.get_device_name(device)}, {runs}, cuDNN {torch.backends.cudnn.version()}"


def _graph(work: Work) -> Work:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMING_CALLS):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Work = graph.replay
    return replay
