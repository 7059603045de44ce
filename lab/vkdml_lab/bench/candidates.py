"""Times the plans among which the planner chooses for a case, to show whether its cost model chooses the fastest.

    python -m bench.candidates [--cases NAME ...] [--samples N] [--output FILE]

The first row of a case is the cost model's choice. "over the best" is a plan's time divided by the best time, minus 1. In each
round of samples, every plan runs once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

import vkdml
from vkdml_lab import internals
from vkdml_lab.bench.adapters.ours import make_desc
from vkdml_lab.bench.cases import CASES, Case
from vkdml_lab.bench.trials import arrays, seconds
from vkdml_lab.internals import Gpu, Target, Tiling, Trial, from_desc, open_device, plan_of
from vkdml_lab.reports import as_json, table

WORTH_TRYING = 3.0  # leaves out candidates that the model estimates so many times slower than its choice
SHOWN = 4
LOOP = ("kernel", "rows", "workgroup", "parts", "register_loads", "shared_loads")  # keys of a time loop; no family has all
FORMATS = {"model ms": ".3f", "ms": ".3f", "over the best": ".0%"}

Row = dict[str, Any]


def worth_trying(target: Target) -> list[Tiling]:
    """Return the tilings that are estimated to take at most WORTH_TRYING times as long as the first, the model's choice."""
    tilings = internals.tilings(target)
    return [tiling for tiling in tilings if tiling.seconds(target) <= WORTH_TRYING * tilings[0].seconds(target)]


def measure(gpu: Gpu, target: Target, tilings: Sequence[Tiling], samples: int) -> list[Row]:
    """Time the plan of each tiling. Returns a table's row for each: its settings, its estimated ms and its measured ms."""
    trial = Trial(gpu, target.problem, arrays(target.problem))
    found = seconds(trial, [plan_of(target, tiling) for tiling in tilings], samples)
    best = min((taken for taken in found if isinstance(taken, float)), default=None)
    return [{**described(tiling), "model ms": tiling.run_seconds(target) * 1e3, **measured(taken, best)}
            for tiling, taken in zip(tilings, found)]


def described(tiling: Tiling) -> Row:
    """Return the settings of a tiling's time loop as a part of a table's row. The key "way" has its schedule."""
    return {"way": tiling.loop.schedule, **{name.replace("_", " "): getattr(tiling.loop, name, None) for name in LOOP}}


def measured(taken: float | str, best: float | None) -> Row:
    if isinstance(taken, str) or best is None:
        return {"ms": None, "over the best": None, "no time because": taken}
    return {"ms": taken * 1e3, "over the best": taken / best - 1, "no time because": ""}


def of_case(case: Case, device: vkdml.Device, samples: int) -> list[Row]:
    """Time the plans of all tilings that `worth_trying` returns for a case. Returns a table's row for each."""
    target = Target(from_desc(make_desc(case, "float32")), device.info)
    return measure(open_device(device.info), target, worth_trying(target), samples)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=(__doc__ or "").splitlines()[0])
    known = {case.name: case for case in CASES}
    parser.add_argument("--cases", nargs="+", metavar="NAME", choices=known, default=list(known), help="cases to run (all)")
    parser.add_argument("--samples", type=int, default=9, help="samples of each candidate (9)")
    parser.add_argument("--output", type=Path, help="write all rows to a JSON file too")
    arguments = parser.parse_args()
    device = vkdml.Device()
    rows: list[Row] = []
    print(f"{device.info.name}, {device.info.driver} {device.info.driver_version}\n")
    for name in tqdm(arguments.cases, disable=None):
        chosen, *others = [{"case": name, **row} for row in of_case(known[name], device, arguments.samples)]
        quickest = sorted((row for row in others if row["ms"] is not None), key=lambda row: row["ms"])
        print(table([chosen, *quickest[:SHOWN]], FORMATS), flush=True)
        regret = "unknown" if chosen["ms"] is None else f"{chosen['over the best']:.0%}"
        print(f"regret {regret} of {1 + len(others)} candidates\n", flush=True)
        rows += [chosen, *others]
    if arguments.output:
        arguments.output.write_text(as_json({"device": vars(device.info), "rows": rows}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
