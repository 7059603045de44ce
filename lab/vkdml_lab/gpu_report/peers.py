"""Times vkdml and other libraries on this machine, in each way to call a layer, and the stages of copying a buffer."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

import vkdml
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.measure import WRONG, Result, measure
from vkdml_lab.bench.peers import OURS, Peer, peers
from vkdml_lab.bench.processes import Process, open_all
from vkdml_lab.bench.runner import timed
from vkdml_lab.gpu_report.clocks import clocks
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import Commands, Gpu, open_device, select_device
from vkdml_lab.processes import ENDED

# These share a process and take turns, as a GPU that rests between turns lowers its clocks
TOGETHER = (OURS, f"{OURS}-float16", "torch-gpu", "torch-gpu-without-tf32", "torch-gpu-float16")
CPU, OTHERS = ("onnxruntime-cpu",), ("onnxruntime-webgpu", "openvino-gpu", "torch-cpu", "openvino-cpu")

_WIDE = Case("gru", 50, 64, 512, 512)
FIRST = [Case("gru", 100, 1, 256, 256), _WIDE, Case("gru", 100, 1, 1024, 1024), Case("gru", 50, 16, 512, 512),
         Case("gru", 1, 1, 256, 256, streaming=True)]
SECOND = [
    *(Case("gru", *sizes) for sizes in ((100, 1, 128, 128), (100, 1, 512, 512), (100, 16, 256, 256), (100, 64, 1024, 1024),
                                        (1, 1, 256, 256), (10, 1, 256, 256), (1000, 1, 256, 256))),
    replace(_WIDE, ragged=True), Case("gru", 50, 16, 512, 512, directions=2), Case("lstm", 100, 1, 256, 256),
    Case("lstm", 100, 1, 1024, 1024), replace(_WIDE, cell="lstm"), Case("lstm", 1, 1, 256, 256, streaming=True),
]
SAMPLES, COPIES = 11, 25
SIZES = (1_638_400, 6_553_600, 26_214_400)  # bytes of x and y with 16 and 64 rows
QUICK, QUICK_SAMPLES, QUICK_SIZES = Case("gru", 4, 2, 16, 64), 2, (65_536,)
IN, UP, BACK, OUT, NEW = "host copy in", "upload", "readback", "host copy out", "allocation"

NOTES = """Seconds of a call: medians and quartiles of `n` samples, each the mean of some 20 ms of calls. vkdml and PyTorch on
the GPU are in one process, in turns, after half a second of work; each other library has a process of its own, which is stopped
outside its turn. Results are compared with a reference in float64; where they are wrong there is no time. A GRU has
linear_before_reset = 1.

From numpy to numpy, with weights that were packed before: `host` (vkdml's layer; PyTorch's module, to the GPU and back),
`module` (a converted PyTorch module of tensors on the CPU), `session` (ONNX), `stream` (a step of a layer's stream). With all
tensors on the device: `device` (DirectML's objects, or PyTorch's module; each call is waited for), `queued` (a tenth of ten
calls and one wait), `graph` and `graph queued` (PyTorch's module as a CUDA graph), `kernels` (a tenth of vkdml's plan ten times
in one submission). torch-gpu is PyTorch as it is, which allows TF32 where the GPU has it.

Copies: a buffer's way to the device and back in five parts. `upload` and `readback` are submissions. `allocation` is what a
copy into a new array takes beyond one into an array that is used again."""


def steps(job: Job) -> list[Step]:
    comparison = Comparison(job)
    atexit.register(comparison.close)
    return list(comparison.steps())


def summary(found: list[Row]) -> str:
    times = [row for row in found if row.get("seconds") and row.get("library")]
    return f"{len(times)} times of {len({row['library'] for row in times})} libraries"


class Comparison:
    """Makes the steps that time vkdml and other libraries. Starts each library's process when a step first needs it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        known = {peer.name: peer for peer in peers(select_device(None), [])}
        together = Peer.together([known[name] for name in TOGETHER])
        self._peers = known | {together.name: together}
        self._open: dict[str, Process | None] = {}  # None: missing

    def close(self) -> None:
        for process in self._open.values():
            if process:
                process.close()

    def steps(self) -> Iterator[Step]:
        """Yield all steps, the most important first."""
        first, second = ([QUICK], []) if self._job.quick else (FIRST, SECOND)
        yield from self._of(first, ("together",), True)
        yield from self._of(first, CPU, True)
        yield Step("copies", self._copies, first=True)
        yield from self._of(second, ("together",), False)
        yield from self._of(second, CPU, False)
        yield from self._of(first, OTHERS, False)

    def _of(self, cases: Sequence[Case], libraries: Sequence[str], first: bool) -> Iterator[Step]:
        of = ", ".join(libraries)
        return (Step(f"{case.name} with {of}", partial(self._measure, case, libraries), of, 15, first) for case in cases)

    def _measure(self, case: Case, libraries: Sequence[str]) -> Iterator[Row]:
        processes = []
        for name in libraries:
            if name not in self._open:
                yield from self._opened(name)
            if process := self._open[name]:
                processes.append(process)
        samples = QUICK_SAMPLES if self._job.quick else SAMPLES
        for result in measure(case, processes, samples, busy=libraries == ("together",)):
            yield row(case, self._peers[result.worker].part(result.way), result)
        if libraries == ("together",) and (now := clocks()):
            yield {"table": "Clocks behind samples", "problem": case.name, **now}

    def _opened(self, name: str) -> Iterator[Row]:
        """Start a peer's process. Yields a row for each library in it: a description, or why it is missing."""
        peer = self._peers[name]
        opened, missing = open_all([peer])
        self._open[name] = next(iter(opened), None)
        description: Row = opened[0].description if opened else {"missing": missing[0]["reason"]}
        for part in peer.parts or (peer,):
            said = description.get(part.name, description)
            lacks = {"not checked": f"missing ({said.get('missing')}); to get it: {part.install}"}
            yield {"table": "Libraries", "library": part.name, **(lacks if "missing" in said else said)}

    def _copies(self) -> Iterator[Row]:
        gpu = open_device(select_device(None))
        for size in QUICK_SIZES if self._job.quick else SIZES:
            yield from copies(gpu, size, QUICK_SAMPLES if self._job.quick else COPIES)


def copies(gpu: Gpu, size: int, samples: int) -> Iterator[Row]:
    """Time the five stages of copying a buffer of `size` bytes to the device and back. Yields a row for each stage."""
    given, again = np.random.default_rng(0).integers(0, 256, size, np.uint8), np.empty(size, np.uint8)
    buffer, upload, readback = vkdml.Buffer(gpu, size), Commands(gpu), Commands(gpu)
    upload.upload(buffer)
    readback.readback(buffer)
    mapped = buffer.host(np.uint8)
    parts: dict[str, Callable[[], object]] = {
        IN: lambda: np.copyto(mapped, given), UP: upload.execute, BACK: readback.execute, OUT: lambda: np.copyto(again, mapped),
        NEW: mapped.copy}
    for name, part in parts.items():
        if name == BACK and not gpu.host_memory:
            mapped[:] = 0
        part()
    is_right = np.array_equal(again, given)
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(samples):
        for name, part in parts.items():
            taken[name].append(timed(part))
    taken[NEW] = [new - old for new, old in zip(taken[NEW], taken[OUT])]
    for name, seconds in taken.items():
        row = {"table": "Copies", "bytes": size, "copy": name}
        if gpu.host_memory and name in (UP, BACK):
            yield {**row, "not checked": "the device works in the host's memory"}
        else:
            found = {**spread(seconds), **({"GB/s": size / median(seconds) / 1e9} if name != NEW else {}), "right": is_right}
            yield {**row, **found, **({} if is_right else {"failed": "what came back is not what was sent"})}


def spread(seconds: Sequence[float]) -> Row:
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75)).tolist()
    return {"seconds": middle, "lower quartile": low, "upper quartile": high, "n": len(seconds)}


def row(case: Case, peer: Peer, result: Result) -> Row:
    """Return a result as a row. An error is a failure if it is vkdml's; another library's makes the row "not checked"."""
    way, error = result.way.rpartition("/")[2], result.error
    is_ours = peer.name.startswith(OURS) and error != ENDED
    failure = {"failed" if is_ours else "not checked": f"{way}: {error}" if way else error} if error else {}
    return {"problem": case.name, "T": case.steps, "B": case.batch, "I": case.inputs, "H": case.hidden, "cell": case.cell,
            "type": peer.settings.get("dtype", "float32"), "library": peer.name, "way": way,
            **(spread(result.seconds) if result.seconds else {"seconds": None}),
            "right": False if error.startswith(WRONG) else None if error else True, **failure}
