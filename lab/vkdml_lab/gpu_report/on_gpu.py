"""Checks and times converted PyTorch modules with tensors on PyTorch's GPU, or on the CPU if PyTorch has no GPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from vkdml_lab.bench.ceilings import timed
from vkdml_lab.gpu_report.peers import FIRST, QUICK_SAMPLES, SAMPLES, spread
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import tensors_through_the_host
from vkdml_lab.processes import UnavailableError

NOTES = """`shared`: through memory that CUDA or HIP shares with Vulkan, if a check passes; `reason` says why not.
`host`: through the host. The input is overwritten right after each call, in turns on two streams. Memory: PyTorch's bytes and
files after 10 and 100 calls (quick: 20). Seconds of a call, waited for; the part peers has those of PyTorch's own module, also
without TF32 and as a CUDA graph, and of the kernels alone."""


def steps(job: Job) -> list[Step]:
    try:
        import torch
    except ImportError:
        raise UnavailableError("no PyTorch") from None
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    nn, cases = torch.nn, [] if job.quick else FIRST[:4]
    made: dict[str, Callable[[], Any]] = {
        "GRU": lambda: nn.GRU(64, 96), "LSTM, 2 layers": lambda: nn.LSTM(64, 96, 2, bidirectional=True),
        "proj_size": lambda: nn.LSTM(64, 96, proj_size=32), "float16": lambda: nn.GRU(64, 96).half(),
        **{case.name: partial(nn.GRU, case.inputs, case.hidden) for case in cases}}
    sizes = {case.name: (case.steps, case.batch, case.inputs) for case in cases}
    usual, calls, samples = ((5, 2, 64), 20, QUICK_SAMPLES) if job.quick else ((50, 16, 64), 100, SAMPLES)
    return [Step(f"{name}, {way}", partial(measured, device, make, sizes.get(name, usual), name, way, calls, samples))
            for name, make in list(made.items())[:2 if job.quick else None] for way in ("shared", "host")]


def measured(device: Any, make: Callable[[], Any], size: tuple[int, ...], name: str, way: str, calls: int, samples: int
             ) -> Iterator[Row]:
    """Check a converted module's results on two streams, and that calls leak no memory. Yields a row, with times of calls."""
    import torch

    import vkdml.torch

    torch.manual_seed(0)
    streams, module = getattr(torch, device.type), make().eval()
    x, row = torch.randn(size, dtype=next(module.parameters()).dtype), {"problem": name, "device": str(device), "way": way}
    with torch.inference_mode(), tensors_through_the_host(way == "host"):
        twin = vkdml.torch.convert(copy.deepcopy(module).to(device))
        on_gpu, found, used = [x.to(device, copy=True) for _ in range(4)], [], set()
        expected, other = module.float()(x.float())[0], streams.Stream()
        reason = repr(twin).partition("tensors through ")[2].removesuffix(")")
        for number, given in enumerate(on_gpu):
            with streams.stream(other if number % 2 else streams.current_stream()):
                other.wait_stream(streams.current_stream()) if number == 1 else None
                found.append(twin(given)[0])
                given.zero_()
        streams.synchronize()
        apart = max(float((y.cpu().float() - expected).abs().max()) for y in found)
        given, found = x.to(device), []
        for number in range(calls + 1):
            twin(given)
            if number in (10, calls):
                streams.synchronize()
                used.add((len(os.listdir("/proc/self/fd")), getattr(streams, "memory_allocated", int)()))
        taken = [timed(lambda: (twin(given), streams.synchronize())) for _ in range(samples)]
    is_right = apart < (1e-2 if x.dtype is torch.float16 else 1e-3) and len(used) == 1
    yield {**row, "reason": reason, "largest difference": apart, "memory stays": len(used) == 1, **spread(taken),
           "right": is_right, **({} if is_right else {"failed": f"differs by {apart:.1e}, or memory grows: {used}"})}


def summary(found: list[Row]) -> str:
    return f"{sum(bool(row.get('right')) for row in found)} of {len(found)} ways right"
