"""Compares vkdml's time per call with that of every other installed library, and with the limits of its device.

    python -m bench [--output DIR] [--device D] [--samples N] [--peers NAME ...] [--cases NAME ...] [--growth] [--json]

Each library has its own process (a worker), and all take turns. The report lists missing libraries. If cases are named, only
their times are measured, unless --growth, --ceilings or --first-result is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from vkdml import DeviceInfo, DriverError
from vkdml_lab.bench import first_result, report
from vkdml_lab.bench.cases import CASES, GROWTH, Case
from vkdml_lab.bench.growth import measure_growth
from vkdml_lab.bench.measure import Result, measure
from vkdml_lab.bench.peers import OURS, Peer, devices, peers
from vkdml_lab.bench.processes import Process, open_all
from vkdml_lab.internals import DEVICE
from vkdml_lab.processes import WorkerError
from vkdml_lab.reports import as_json


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    try:
        default, others = devices(chosen.device)
    except DriverError as error:
        raise SystemExit(f"bench: {error}") from None
    table = {peer.name: peer for peer in peers(default, others)}
    wanted = [table[name] for name in select("--peers", chosen.peers and [OURS, *chosen.peers], list(table))]
    cases = {case.name: case for case in CASES}
    measure_chosen([cases[name] for name in select("--cases", chosen.cases, list(cases))], wanted, default, chosen)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0],
                                     epilog="cases: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--output", type=Path, default=Path("bench-report"), help="folder for the report (bench-report)")
    parser.add_argument("--device", help=f"the Vulkan device: {DEVICE}; see `vkdml devices`")
    parser.add_argument("--samples", type=int, default=9, help="samples of each worker and case, fewer of slow ones (9)")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="workers to run beside vkdml (all)")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="cases to run (all)")
    for part, what in (("growth", "time against T, B and H"), ("ceilings", "the limits of the device"),
                       ("first-result", "time from a process's start to its first result")):
        parser.add_argument(f"--{part}", action=argparse.BooleanOptionalAction, help=f"{what} (yes, unless --cases are named)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, not Markdown")
    chosen = parser.parse_args(arguments)
    if chosen.samples < 1:
        parser.error("--samples: at least 1")
    for part in ("growth", "ceilings", "first_result"):
        if getattr(chosen, part) is None:
            setattr(chosen, part, not chosen.cases)
    return chosen


def select(option: str, names: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return `names` in the order of `known`, or all of `known` if none are given. Exits if `option` has an unknown name."""
    unknown = set(names or ()) - set(known)
    if unknown:
        print(f"bench: {option}: no {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        raise SystemExit(2)
    return [name for name in known if not names or name in names]


def measure_chosen(cases: Sequence[Case], wanted: Sequence[Peer], default: DeviceInfo, chosen: argparse.Namespace
                   ) -> report.Report:
    """Measure the cases, write the report, print and return it. wanted: libraries. default: vkdml's device. chosen: options."""
    processes, missing = open_all(wanted)
    workers = [{"name": process.peer.name, **process.description, "platform": process.peer.platform,
                "baseline": process.peer.baseline} for process in processes]
    written = report.Report(workers, missing)
    known = {case.name: case for case in [*cases, *(case for growing in GROWTH.values() for case in growing)]}
    rows_of = {peer.name: peer for peer in wanted}
    try:
        with tqdm(disable=None, bar_format="{desc}", leave=False) as bar:
            if chosen.ceilings:
                bar.set_description_str("limits of the device")
                written.ceilings = measure_ceilings(default.index)
            if chosen.first_result:
                bar.set_description_str("first results of new processes")
                written.first_result = first_result.measure(default.index)
        for results in measure_all(cases, processes, chosen.samples):
            written.results += report.rows(results, rows_of, known, written.ceilings)
            written.write(chosen.output)  # after each case, in case the run is interrupted
        if chosen.growth:
            with tqdm(disable=None, bar_format="{desc}") as bar:
                series = measure_growth(processes, lambda what: bar.set_description_str(what))
            written.growth = {dimension: report.rows(points, rows_of, known, {}) for dimension, points in series.items()}
    finally:
        for process in processes:
            process.close()
    written.write(chosen.output)
    if not chosen.cases or chosen.growth or chosen.ceilings:
        draw(written, chosen.output)
    print(as_json(asdict(written)) if chosen.json else written.markdown())
    print(f"Written to {chosen.output}", file=sys.stderr)
    return written


def draw(written: report.Report, folder: Path) -> None:
    from vkdml_lab.bench import pictures  # matplotlib takes a second to import

    pictures.draw(written, folder)


def measure_ceilings(device: int) -> dict[str, object]:
    try:
        return Process(Peer("ceilings", "vkdml_lab.bench.ceilings", {"device": device})).measure()
    except WorkerError as error:
        return {"error": str(error)}


def measure_all(cases: Sequence[Case], processes: Sequence[Process], samples: int) -> Iterator[list[Result]]:
    """Measure each case in all processes. Yields the case's results, one for each library and way to call it."""
    with tqdm(cases, disable=None, unit="case") as bar:
        for case in bar:
            yield measure(case, processes, samples, lambda what: bar.set_postfix_str(f"{case.name}: {what}"))  # noqa: B023


if __name__ == "__main__":
    raise SystemExit(main())
