"""vkdml beside the other libraries of this machine: from numpy to numpy, on the device alone, and reading the output back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import vkdml
from bench import shapes
from bench.cases import Case
from bench.measure import WAYS, WRONG, Result, measure
from bench.peers import OURS, Peer, peers
from bench.processes import Process, open_all
from tools.gpu_report.outcome import Job, Outcome, Row, judged, write
from vkdml.laboratory import as_json, select_device

RESULTS, LIBRARIES = "results.jsonl", "libraries.json"
CPU = "onnxruntime-cpu"
ON_GPU = ("torch-gpu", "onnxruntime-webgpu", "openvino-gpu")
OTHER_TYPES = (f"{OURS}-float16", "torch-gpu-float16", "torch-gpu-tf32")
OTHERS_ON_CPU = ("torch-cpu", "openvino-cpu")
READBACK = "readback"
CACHED_GB_S = 1.0  # memory that is not cached is read at some 0.2, over the bus at 0.05

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

NOTES = """Medians of a call's time. Beside vkdml's, how many times as long another library takes: above 1, vkdml is faster.
Each library has a process of its own, which is stopped outside its turn. `host`: from numpy to numpy, with weights that were
packed before. `device`: execution alone, all tensors on the device. `readback`: the output alone, brought to the host. Results
are compared with a reference in float64; where they are wrong there is no time. A GRU has linear_before_reset = 1. Where
lengths vary from call to call, times are of the first call with each."""


@dataclass(frozen=True)
class Step:
    """A case with some libraries, which takes some seconds."""

    name: str
    run: Callable[[], None]


def run(job: Job) -> Outcome:
    with closing(Comparison(job)) as comparison:
        steps = list(comparison.steps())
        for number, step in enumerate(steps, 1):
            print(f"{number}/{len(steps)} {step.name}", flush=True)
            step.run()
        return comparison.outcome()


class Comparison:
    """What is measured, in steps, and written after each. What a report before left in the folder is not measured again."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._peers = {peer.name: peer for peer in peers(select_device(None), [])}
        self._open: dict[str, Process | None] = {}  # None: the library is missing
        self.missing: list[Row] = []
        path = job.folder / RESULTS
        self.rows: list[Row] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        for process in self._open.values():
            if process:
                process.close()

    def steps(self) -> Iterator[Step]:
        """All of them, what matters most first."""
        if self._job.quick:
            yield self._step(QUICK, (OURS, CPU, *ON_GPU))
            yield Step("lengths that vary", self._varying)
            return
        for cases, libraries in ((FIRST, (OURS, CPU)), (FIRST, ON_GPU), (SECOND, (OURS, CPU, *ON_GPU)), (FIRST, OTHER_TYPES),
                                 (FIRST, OTHERS_ON_CPU)):
            yield from (self._step(case, libraries) for case in cases)
        yield Step("lengths that vary", self._varying)

    def outcome(self) -> Outcome:
        """Failures are vkdml's; what others do wrong is told."""
        ours = [f"{row['case']} {row['library']} {row['way']}: {row['error']}" for row in self.rows
                if row["error"] and row["library"].startswith(OURS)]
        return judged("; ".join(sentences(self.rows, self.missing)), ours)

    def _step(self, case: Case, libraries: Sequence[str]) -> Step:
        return Step(f"{case.name} with {', '.join(libraries)}", partial(self._measure, case, libraries))

    def _measure(self, case: Case, libraries: Sequence[str]) -> None:
        done = {row["library"] for row in self.rows if row["case"] == case.name}
        processes = [process for name in libraries if name not in done and (process := self._process(name))]
        ways = (*WAYS, READBACK) if case in (READ, QUICK) else WAYS
        results = measure(case, processes, QUICK_SAMPLES if self._job.quick else SAMPLES, ways=ways)
        self._add([row(case, self._peers[result.worker], result) for result in results])

    def _process(self, name: str) -> Process | None:
        if name not in self._open:
            opened, missing = open_all([self._peers[name]])
            self._open[name] = next(iter(opened), None)
            self.missing += missing
        return self._open[name]

    def _varying(self) -> None:
        """Sentences of random lengths through a model, in this process."""
        case, model = f"{VARYING}, lengths that vary", shapes.MODELS[VARYING]
        if any(row["case"] == case for row in self.rows):
            return
        sizes = {"T": None, "B": 1, "I": shapes.INPUTS, "H": model.hidden, "cell": model.cell.lower(), "type": "float32"}
        try:
            found = shapes.measure(model, QUICK_SENTENCES if self._job.quick else SENTENCES, vkdml.Device(), lambda: None)
        except AssertionError as error:
            self._add([filled(case, sizes, OURS, WAYS[0], None, f"{WRONG}{' '.join(str(error).split())}")])
            return
        self._add([filled(case, sizes, library, WAYS[0], taken["p50 ms"] / 1e3) for library, taken in found.items()])

    def _add(self, rows: Sequence[Row]) -> None:
        self.rows += rows
        folder = self._job.folder
        with (folder / RESULTS).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        here = [{"name": name, **process.description} for name, process in self._open.items() if process]
        (folder / LIBRARIES).write_text(as_json({"here": here, "missing": self.missing}))
        write(folder, "peers", "Beside other libraries", NOTES, {
            **{way: beside(self.rows, way) for way in WAYS}, READBACK: reads(self.rows),
            "Wrong or failed": [{name: row[name] for name in ("case", "library", "way", "error")}
                                for row in self.rows if row["error"]],
            "Libraries": here, "Missing": self.missing})


def row(case: Case, peer: Peer, result: Result) -> Row:
    sizes = {"T": case.steps, "B": case.batch, "I": case.inputs, "H": case.hidden, "cell": case.cell,
             "type": peer.settings.get("dtype", "float32")}
    return filled(case.name, sizes, peer.name, result.way, result.median if result.seconds else None, result.error)


def filled(case: str, sizes: Row, library: str, way: str, seconds: float | None, error: str = "") -> Row:
    """A row with the columns of all parts' results."""
    right = False if error.startswith(WRONG) else None if error else True
    return {"part": "peers", "case": case, **sizes, "library": library, "way": way, "schedule": "", "seconds": seconds,
            "estimate": None, "gave up": None, "error": error, "right": right}


def beside(rows: Sequence[Row], way: str) -> list[Row]:
    """A row for each case: vkdml's time, and how many times as long each other library takes."""
    taken = {(row["case"], row["library"]): row["seconds"] for row in rows if row["way"] == way and row["seconds"]}
    libraries = dict.fromkeys(library for _, library in taken if library != OURS)
    return [{"case": case, "vkdml ms": taken[case, OURS] * 1e3,
             **{library: times(taken.get((case, library)), taken[case, OURS]) for library in libraries}}
            for case in dict.fromkeys(case for case, library in taken if library == OURS)]


def times(theirs: float | None, ours: float) -> float | None:
    return theirs / ours if theirs else None


def reads(rows: Sequence[Row]) -> list[Row]:
    """How fast each library reads its output back."""
    sizes = {"float32": 4, "float16": 2}
    return [{"case": row["case"], "library": row["library"], "ms": row["seconds"] * 1e3,
             "GB/s": row["T"] * row["B"] * row["H"] * sizes[row["type"]] / row["seconds"] / 1e9}
            for row in rows if row["way"] == READBACK and row["seconds"]]


def sentences(rows: Sequence[Row], missing: Sequence[Row]) -> Iterator[str]:
    """What was found, in a few words each."""
    yield f"{sum(row['seconds'] is not None for row in rows)} times of {len({row['library'] for row in rows})} libraries"
    yield from _middle(rows)
    for rate in (found["GB/s"] for found in reads(rows) if (found["case"], found["library"]) == (READ.name, OURS)):
        yield f"vkdml reads its output at {rate:.2g} GB/s{', as if its memory were not cached' * (rate < CACHED_GB_S)}"
    wrong = dict.fromkeys(row["library"] for row in rows if row["right"] is False)
    yield from (f"{library} is wrong" for library in wrong)
    yield from (f"{one['name']} is missing ({one['reason']}; to get it: {one['install']})" for one in missing)


def _middle(rows: Sequence[Row]) -> Iterator[str]:
    """Each library's times over vkdml's, in the middle of all cases, from host to host."""
    compared = beside(rows, WAYS[0])
    for library in list(compared[0])[2:] if compared else ():
        ratios = [found[library] for found in compared if found[library]]
        if ratios:
            yield f"{library} takes {median(ratios):.2g} times as long as vkdml, in the middle of {len(ratios)} cases"
