"""Counts the submissions and dispatches of a call, for each case of the benchmark, on weights that are packed.

    python -m bench.submissions
"""

from __future__ import annotations

from dataclasses import replace

import vkdml
from bench.adapters.ours import Layer
from bench.cases import CASES
from vkdml.laboratory import table

TWO_PHASES = [replace(case, linear_before_reset=False) for case in CASES if case.cell == "gru"]


def main() -> None:
    device = vkdml.Device()
    rows = []
    for case in (*CASES, *TWO_PHASES):
        submissions, dispatches = Layer(device, case, case.arrays(), "float32").counts
        name = case.name if case.linear_before_reset else f"{case.name}, linear_before_reset = 0"
        rows.append({"case": name, "submissions": submissions, "dispatches": dispatches})
    print(table(rows))


if __name__ == "__main__":
    main()
