"""Makes the benchmark's report: results as rows, written as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vkdml_lab.bench.bounds import bound
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.measure import Result
from vkdml_lab.bench.peers import OURS, Peer
from vkdml_lab.bench.processes import machine
from vkdml_lab.reports import cell, document, table, write

Row = dict[str, Any]

# Workers on the device whose ceilings are measured, and the bytes of a weight
BOUNDED = {OURS: 4, f"{OURS}-lbr0": 4, f"{OURS}-float16": 2}

NOTES = """\
Host: from numpy to numpy, with constant weights that were packed before. Device: execution only, with all tensors on the
device; wall time of `CommandRecorder.execute()`, which waits for the device. Device timestamps are not used: kp never resets
its query pool (VUID-vkCmdWriteTimestamp-None-00830), so the timestamps that it reads are not valid.

Each worker has a process of its own, which is stopped outside its turn. In a round, each worker takes one sample: the mean time
of as many calls as take 20 ms or more.
Times are medians of n samples; slow workers take fewer. Spread is (max - min) / median. GFLOP/s count the matrix products of
valid steps. `times` is the time divided by that of the worker in the column `of`, the median of all rounds; below 1 is faster.
`difference` is the largest from the float64 reference, in up to 8 rows of the batch; if it is too large, no time is given.
`first call` includes what a library does at its first call only, such as compiling. If it takes more than 20 s, it is the only
call. vkdml-lbr0 is a GRU with linear_before_reset = 0; all others have 1.

`fraction` is the least time that the ceilings allow, divided by the time on the device. The least time is the longest of three
(`bound`): the arithmetic at the rate of multiply-adds, one read of the recurrent weights in each step, and one submission.
It can be above 1 if the weights stay in private memory for all steps, so that they are not read again."""


def rows(results: Sequence[Result], peers: Mapping[str, Peer], cases: Mapping[str, Case], ceilings: Row) -> list[Row]:
    found = {(result.case, result.worker, result.way): result for result in results}
    return [_row(result, found, peers[result.worker], cases[result.case], ceilings) for result in results]


def _row(result: Result, found: Mapping[tuple[str, str, str], Result], peer: Peer, case: Case, ceilings: Row) -> Row:
    row: Row = {key: None if value != value else value for key, value in asdict(result).items()}  # JSON has no NaN
    row["n"] = len(result.seconds)
    if result.error:
        return row
    row |= {"ms": result.median * 1e3, "spread": result.spread, "gflops": result.gflops}
    beside = found.get((result.case, peer.baseline, result.way))
    if beside and beside.seconds and beside is not result:
        row |= {"baseline": peer.baseline, "times": result.times(beside)}
    if result.way == "device" and result.worker in BOUNDED and "gflops" in ceilings:
        name, seconds = bound(case, ceilings, BOUNDED[result.worker])
        row |= {"bound": name, "fraction": seconds / result.median}
    return row


@dataclass
class Report:
    """All results of a benchmark. results.json has these fields."""

    workers: list[Row]
    missing: list[Row]
    results: list[Row] = field(default_factory=list)
    ceilings: Row = field(default_factory=dict)
    first_result: Row = field(default_factory=dict)
    growth: dict[str, list[Row]] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=machine)

    def write(self, folder: Path) -> None:
        write(folder, {"results.json": asdict(self), "report.md": self.markdown()})

    def markdown(self) -> str:
        system = "{system}, Python {Python}, {cores} cores; validation layers off.".format(**self.machine)
        first_results = [{"": when, "s": seconds} for when, seconds in self.first_result.items()]
        sections = {
            "Workers": table(self.workers, FORMATS, {"worker": "name", "version": "version", "device": "device"}),
            "Missing": table(self.missing, FORMATS, {"worker": "name", "why": "reason", "how to get it": "install"}),
            "Ceilings of the default device": ceiling_table(self.ceilings),
            "Time from a process's start to its first GRU result (H = 256)": table(first_results, FORMATS),
            "Times divided by vkdml's, host to host": ratio_table(self.results),
            "Times": table(self.results, FORMATS, COLUMNS),
            **{f"Growth of {dimension}": table(points, FORMATS, GROWTH_COLUMNS) for dimension, points in self.growth.items()},
        }
        return document("# Benchmark", system, NOTES, *(f"## {title}\n\n{text}" for title, text in sections.items() if text))


# Keys by column heading; number formats by key
COLUMNS = {"case": "case", "worker": "worker", "way": "way", "ms": "ms", "spread": "spread", "GFLOP/s": "gflops", "n": "n",
           "first call s": "first_call", "times": "times", "of": "baseline", "fraction": "fraction", "bound": "bound",
           "difference": "difference", "error": "error"}
GROWTH_COLUMNS = {heading: COLUMNS[heading] for heading in ("case", "worker", "way", "ms", "GFLOP/s", "n", "times", "error")}
FORMATS = {"ms": ".4g", "spread": ".0%", "gflops": ".3g", "first_call": ".2f", "times": ".3g", "fraction": ".1%",
           "difference": ".0e", "s": ".2f", **dict.fromkeys(("error", "reason"), ".100")}


def ratio_table(rows: Sequence[Row]) -> str:
    """Return a Markdown table of times divided by vkdml's, or by those of the worker after "/" in a heading. Rows: cases."""
    compared = [row for row in rows if row["way"] == "host" and "times" in row]
    headings = {row["worker"]: row["worker"] if row["baseline"] == OURS else f"{row['worker']} / {row['baseline']}"
                for row in compared}
    times = {(row["case"], row["worker"]): format(row["times"], ".3g") for row in compared}
    ours = {row["case"]: format(row["ms"], ".4g") for row in rows
            if (row["worker"], row["way"]) == (OURS, "host") and "ms" in row}
    names = dict.fromkeys(row["case"] for row in rows)
    return table({"case": case, "vkdml ms": ours.get(case, ""),
                  **{heading: times.get((case, worker), "") for worker, heading in headings.items()}} for case in names)


def ceiling_table(ceilings: Row) -> str:
    if "gflops" not in ceilings:
        return cell(ceilings.get("error"))
    read = {f"reads of a buffer of {int(size) // 1024} KiB, {what}": f"{rate:.1f} GB/s"
            for key, what in (("read_gb_s", "all workgroups"), ("read_one_workgroup_gb_s", "one workgroup"))
            for size, rate in ceilings[key].items()}
    found = {"multiply-adds": f"{ceilings['gflops']:.0f} GFLOP/s", **read,
             "a submission": f"{ceilings['submission_us']:.0f} us", "a dispatch in it": f"{ceilings['dispatch_us']:.1f} us"}
    return table({"ceiling": name, "": value} for name, value in found.items())
