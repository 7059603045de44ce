"""vkdml beside the other libraries of this machine: from numpy to numpy, on the device alone, and reading the output back."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import vkdml
from vkdml_lab.bench import shapes
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.measure import WAYS, WRONG, Result, measure
from vkdml_lab.bench.peers import OURS, Peer, peers
from vkdml_lab.bench.processes import Process, open_all
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import select_device

CPU = "onnxruntime-cpu"
ON_GPU = ("torch-gpu", "onnxruntime-webgpu", "openvino-gpu")
OTHER_TYPES = (f"{OURS}-float16", "torch-gpu-float16", "torch-gpu-tf32")
OTHERS_ON_CPU = ("torch-cpu", "openvino-cpu")
READBACK = "readback"

READ = Case("gru", 50, 64, 512, 512)  # whose output is read back
FIRST = [Case("gru", 100, 1, 256, 256), READ, Case("gru", 100, 1, 1024, 1024), Case("gru", 50, 16, 512, 512),
         Case("gru", 1, 1, 256, 256, streaming=True)]
SECOND = [
    *(Case("gru", 100, batch, hidden, hidden) for batch in (1, 16, 64) for hidden in (128, 256, 512, 1024)
      if Case("gru", 100, batch, hidden, hidden) not in FIRST),
    *(Case("gru", steps, 1, 256, 256) for steps in (1, 10, 1000)),
    Case("gru", 50, 64, 512, 512, ragged=True), Case("gru", 50, 16, 512, 512, directions=2),
    Case("lstm", 100, 1, 256, 256), replace(READ, cell="lstm"), Case("lstm", 1, 1, 256, 256, streaming=True),
]
SAMPLES, SENTENCES = 5, 20
VARYING = "9 GRU(128)"
QUICK, QUICK_SAMPLES, QUICK_SENTENCES = Case("gru", 4, 2, 16, 64), 2, 2

NOTES = """Medians of a call's time, in seconds. Each library has a process of its own, which is stopped outside its turn.
`host`: from numpy to numpy, with weights that were packed before. `device`: execution alone, all tensors on the device.
`readback`: the output alone, brought to the host. Results are compared with a reference in float64; where they are wrong there
is no time. A GRU has linear_before_reset = 1. Where lengths vary from call to call, times are of the first call with each."""


def steps(job: Job) -> list[Step]:
    comparison = Comparison(job)
    atexit.register(comparison.close)
    return list(comparison.steps())


def summary(found: list[Row]) -> str:
    times = [row for row in found if row.get("seconds")]
    return f"{len(times)} times of {len({row['library'] for row in times})} libraries"


class Comparison:
    """What is measured, in steps, with processes of libraries that are open as soon as they are needed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._peers = {peer.name: peer for peer in peers(select_device(None), [])}
        self._open: dict[str, Process | None] = {}  # None: the library is missing

    def close(self) -> None:
        for process in self._open.values():
            if process:
                process.close()

    def steps(self) -> Iterator[Step]:
        """All of them, what matters most first."""
        if self._job.quick:
            yield self._step(QUICK, (OURS, CPU, *ON_GPU), first=True)
        else:
            for cases, libraries, first in ((FIRST, (OURS, CPU), True), (FIRST, ON_GPU, True),
                                            (SECOND, (OURS, CPU, *ON_GPU), False), (FIRST, OTHER_TYPES, False),
                                            (FIRST, OTHERS_ON_CPU, False)):
                yield from (self._step(case, libraries, first) for case in cases)
        yield Step("lengths that vary", self._varying, seconds=20)

    def _step(self, case: Case, libraries: Sequence[str], first: bool) -> Step:
        of = ", ".join(libraries)
        return Step(f"{case.name} with {of}", partial(self._measure, case, libraries), like=of, seconds=15, first=first)

    def _measure(self, case: Case, libraries: Sequence[str]) -> Iterator[Row]:
        processes = []
        for name in libraries:
            if name not in self._open:
                yield self._opened(name)
            if process := self._open[name]:
                processes.append(process)
        ways = (*WAYS, READBACK) if case in (READ, QUICK) else WAYS
        results = measure(case, processes, QUICK_SAMPLES if self._job.quick else SAMPLES, ways=ways)
        yield from (row(case, self._peers[result.worker], result) for result in results)

    def _opened(self, name: str) -> Row:
        """Open a library. A row says which it is, or why it is missing."""
        opened, missing = open_all([self._peers[name]])
        self._open[name] = next(iter(opened), None)
        said = opened[0].description if opened else {
            "not checked": f"missing ({missing[0]['reason']}); to get it: {missing[0]['install']}"}
        return {"table": "Libraries", "library": name, **said}

    def _varying(self) -> Iterator[Row]:
        """Sentences of random lengths through a model, in this process."""
        case, model = f"{VARYING}-lengths-that-vary", shapes.MODELS[VARYING]
        sizes = {"T": None, "B": 1, "I": shapes.INPUTS, "H": model.hidden, "cell": model.cell.lower(), "type": "float32"}
        try:
            found = shapes.measure(model, QUICK_SENTENCES if self._job.quick else SENTENCES, vkdml.Device(), lambda: None)
        except AssertionError as error:
            yield filled(case, sizes, OURS, WAYS[0], None, f"{WRONG}{' '.join(str(error).split())}")
            return
        for library, taken in found.items():
            yield filled(case, sizes, library, WAYS[0], taken["p50 ms"] / 1e3)


def row(case: Case, peer: Peer, result: Result) -> Row:
    sizes = {"T": case.steps, "B": case.batch, "I": case.inputs, "H": case.hidden, "cell": case.cell,
             "type": peer.settings.get("dtype", "float32")}
    return filled(case.name, sizes, peer.name, result.way, result.median if result.seconds else None, result.error)


def filled(case: str, sizes: Row, library: str, way: str, seconds: float | None, error: str = "") -> Row:
    """A row. Failures are vkdml's; what others do wrong is "not checked"."""
    right = False if error.startswith(WRONG) else None if error else True
    failure = {"failed" if library.startswith(OURS) else "not checked": f"{way}: {error}" if way else error} if error else {}
    return {"problem": case, **sizes, "library": library, "way": way, "seconds": seconds, "right": right, **failure}
