"""Every way that the schedule may run a case, beside the one that its cost model chooses.

    python -m bench.candidates [--cases NAME ...] [--samples N] [--output FILE]

Regret is how much longer the chosen one takes than the fastest. All take turns, on the device alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from tabulate import tabulate
from tqdm import tqdm

import vkdml
from bench.adapters.ours import Layer, make_desc
from bench.cases import CASES, Case
from bench.ceilings import timed
from bench.runner import settle
from vkdml.planning.candidates import Planner
from vkdml.planning.forced import forcing
from vkdml.planning.tiling import Tiling
from vkdml.spec.problem import from_desc

WORTH_TRYING = 3.0  # candidates that the model expects to be slower than this, over its choice, are left out
SHOWN = 4
FORCED = ("schedule", "fused", "rows", "units_at_once", "lanes", "resident", "parts")
_FORMATS = {"model ms": ".3f", "ms": ".3f", "over the best": ".0%"}


def candidates(case: Case, device: vkdml.Device) -> list[tuple[Tiling, float]]:
    """The tilings with the model's seconds, its choice first."""
    planner = Planner(from_desc(make_desc(case, "float32")), device.info)
    expected = [(tiling, planner.costs.seconds(tiling)) for tiling in planner.tilings()]
    return [pair for pair in expected if pair[1] <= WORTH_TRYING * expected[0][1]]


def forced(tiling: Tiling) -> vkdml.Options:
    """The options that leave the planner no other choice."""
    return forcing(tiling, *FORCED)


def measure(case: Case, device: vkdml.Device, samples: int) -> list[dict[str, Any]]:
    """A row for each candidate, the model's choice first."""
    tried = candidates(case, device)
    tried_options = [forced(tiling) for tiling, _ in tried]
    layers = [Layer(device, case, case.arrays(), "float32", options) for options in tried_options]
    for layer in layers:
        layer.zeros()
        layer.execute()
        settle(layer.execute)
    rounds = [[timed(layer.execute) for layer in layers] for _ in range(samples)]
    return [{"case": case.name, **{name.replace("_", " "): getattr(options, name) for name in FORCED},
             "model ms": seconds * 1e3, "ms": median(times) * 1e3}
            for (_, seconds), options, times in zip(tried, tried_options, zip(*rounds))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=(__doc__ or "").splitlines()[0])
    known = {case.name: case for case in CASES}
    parser.add_argument("--cases", nargs="+", metavar="NAME", choices=known, default=list(known), help="cases to run (all)")
    parser.add_argument("--samples", type=int, default=9, help="of each candidate (9)")
    parser.add_argument("--output", type=Path, help="write all rows to a JSON file too")
    arguments = parser.parse_args()
    device = vkdml.Device()
    rows: list[dict[str, Any]] = []
    print(f"{device.info.name}, {device.info.driver} {device.info.driver_version}\n")
    for name in tqdm(arguments.cases, disable=None):
        measured = measure(known[name], device, arguments.samples)
        best = min(row["ms"] for row in measured)
        for row in measured:
            row["over the best"] = row["ms"] / best - 1
        shown = [measured[0], *sorted(measured[1:], key=lambda row: row["ms"])[:SHOWN]]
        print(tabulate(shown, "keys", "github", floatfmt=[_FORMATS.get(name, "") for name in shown[0]]), flush=True)
        print(f"regret {measured[0]['over the best']:.0%} of {len(measured)} candidates\n", flush=True)
        rows += measured
    if arguments.output:
        arguments.output.write_text(json.dumps({"device": vars(device.info), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
