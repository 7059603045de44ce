"""Counts the submissions and dispatches of a call, for each case of the benchmark, on weights that are packed.

    python -m bench.submissions
"""

from __future__ import annotations

from dataclasses import replace

from tabulate import tabulate

import vkdml

from .adapters.ours import Layer
from .cases import CASES

TWO_PHASES = [replace(case, linear_before_reset=False) for case in CASES if case.cell == "gru"]


def main() -> None:
    device = vkdml.Device()
    rows = [(case.name if case.linear_before_reset else f"{case.name}, linear_before_reset = 0",
             *Layer(device, case, case.arrays(), "float32").counts) for case in (*CASES, *TWO_PHASES)]
    print(tabulate(rows, ["case", "submissions", "dispatches"], "github"))


if __name__ == "__main__":
    main()
