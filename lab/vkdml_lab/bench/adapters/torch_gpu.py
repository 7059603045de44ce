"""Lists PyTorch's GPUs, waits for them, and records graphs of their work. No other module does this."""

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
class TorchDevice:
    """A device of PyTorch. wait: waits until the device is idle. graph: records the work of a function, and returns a function
    that repeats it; None if PyTorch cannot record. has_tf32: whether the TF32 setting has an effect.
    """

    device: torch.device
    description: str
    wait: Work = lambda: None
    graph: Callable[[Work], Work] | None = None
    has_tf32: bool = False


CPU = TorchDevice(torch.device("cpu"), "CPU")  # a call returns when it is done


def find(kinds: Sequence[str] = KINDS, name: str = "") -> TorchDevice:
    """Return a GPU of the first of `kinds` that has any: the one with the name most like `name`. Raises UnavailableError."""
    for kind in kinds:
        module = getattr(torch, kind)
        if module.is_available():
            names = {index: getattr(module, "get_device_name", str)(index) for index in range(module.device_count())}
            device = torch.device(kind, most_alike(names, name))
            is_cuda = kind == "cuda" and torch.version.hip is None
            return TorchDevice(device, _described(device), module.synchronize, _graph if kind == "cuda" else None, is_cuda)
    raise UnavailableError(f"this torch, {torch.__version__}, sees no GPU ({', '.join(kinds)})")


def _described(device: torch.device) -> str:
    """Return the name of a GPU. For CUDA and ROCm, it is followed by their version and cuDNN's (or MIOpen's)."""
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
