"""The pictures of a report: time against the size of each dimension, and a roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")  # writes files only, so that no screen is needed
from matplotlib import pyplot as plt

from bench.bounds import read_rate
from bench.cases import Case
from bench.peers import OURS
from bench.report import Report, Row

DIMENSIONS = {"T": "steps", "B": "batch", "H": "hidden"}


def draw(report: Report, cases: Mapping[str, Case], folder: Path) -> None:
    for dimension, rows in report.growth.items():
        draw_growth(dimension, rows, cases, folder / f"growth-{dimension}.png")
    if "gflops" in report.ceilings:
        draw_roofline(report.results, report.ceilings, cases, folder / "roofline.png")


def draw_growth(dimension: str, rows: Sequence[Row], cases: Mapping[str, Case], path: Path) -> None:
    """Draws a line for each worker and way."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    measured = [row for row in rows if "ms" in row]
    for worker, way in dict.fromkeys((row["worker"], row["way"]) for row in measured):
        points = [(getattr(cases[row["case"]], DIMENSIONS[dimension]), row["ms"])
                  for row in measured if (row["worker"], row["way"]) == (worker, way)]
        axes.loglog(*zip(*points), marker="o", label=worker if way == "host" else f"{worker}, {way} only")
    axes.set(xlabel=dimension, ylabel="ms a call", title=f"GRU, growing {dimension}")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_roofline(rows: Sequence[Row], ceilings: Row, cases: Mapping[str, Case], path: Path) -> None:
    """Draws vkdml's rates on the device against the operations per byte of recurrent weights, if these are read once a step."""
    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    for row in rows:
        if (row["worker"], row["way"]) == (OURS, "device") and "ms" in row:
            intensity = row["flops"] / weight_bytes(cases[row["case"]])
            axes.loglog(intensity, row["gflops"], "o")
            axes.annotate(row["case"], (intensity, row["gflops"]), fontsize=7, xytext=(4, 4), textcoords="offset points")
    intensities = np.geomspace(0.5, 1024, 200)
    for size in ceilings["read_gb_s"]:
        rate = read_rate(ceilings, int(size))
        axes.loglog(intensities, np.minimum(ceilings["gflops"], rate * intensities), "-", linewidth=1,
                    label=f"{rate:.1f} GB/s from {int(size) // 1024} KiB, {ceilings['gflops']:.0f} GFLOP/s")
    axes.set(xlabel="flops per byte of recurrent weights", ylabel="GFLOP/s", title="vkdml on the device, and its ceilings")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def weight_bytes(case: Case) -> int:
    return case.steps * case.recurrent_weights * 4
