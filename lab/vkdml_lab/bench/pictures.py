"""The pictures of a report: throughput beside other libraries, time against the size of each dimension, and a roofline.

    python -m bench.pictures FOLDER    # draws those of FOLDER/results.json again
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")  # writes files only, so that no screen is needed
from matplotlib import pyplot as plt

from vkdml_lab.bench.cases import CASES, GROWTH, Case
from vkdml_lab.bench.peers import CPU, GPU, OURS, VULKAN
from vkdml_lab.bench.report import Report, Row

TYPE = "float32"  # the type of all workers that have a platform
FIXED = {"T": "B = 1, I = H = 128", "B": "T = 50, I = H = 128", "H": "T = 50, B = 1, I = H"}
SIZES = {"T": "steps", "B": "batch", "H": "hidden"}
THROUGHPUT = ("gru-100x1x256x256", "gru-50x32x256x256", "gru-50x64x512x512", "lstm-50x32x256x256")
COLORS = {OURS: "#0b5fa5", VULKAN: "#6aaed6", CPU: "#9a9a9a", GPU: "#5a9e3d"}
COLUMNS = {VULKAN: "With Vulkan", CPU: "Beside libraries for the CPU", GPU: "Beside others on the GPU"}
SUFFIXES = {VULKAN: "", CPU: "-cpu", GPU: "-gpu"}  # of its picture
CELLS = {"gru": "#0b5fa5", "lstm": "#c4561b"}
DPI = 120


def draw(report: Report, folder: Path) -> None:
    """Draw the pictures that there are results for; none without vkdml's own."""
    if not any(row["worker"] == OURS and "ms" in row for row in report.results):
        return
    cases = {case.name: case for case in [*CASES, *(case for growing in GROWTH.values() for case in growing)]}
    shown = [name for name in THROUGHPUT if any(row["case"] == name and "ms" in row for row in report.results)]
    if shown:
        draw_throughput(report, [cases[name] for name in shown], folder)
    for dimension, rows in report.growth.items():
        draw_growth(report, dimension, rows, cases, folder / f"growth-{dimension}.png")
    if "gflops" in report.ceilings:
        draw_roofline(report, cases, folder / "roofline.png")


def draw_throughput(report: Report, cases: Sequence[Case], folder: Path) -> None:
    """Bars of GFLOP/s from numpy to numpy, in a picture for each platform."""
    workers, names = ordered(report.workers), shown_names(report.workers)
    rates = {(row["case"], row["worker"]): row["gflops"] for row in report.results if row["way"] == "host" and "ms" in row}
    for platform in dict.fromkeys(worker["platform"] for worker in workers):
        shown = [worker for worker in workers if worker["platform"] == platform or worker["name"] == OURS]
        figure, grid = plt.subplots(len(cases), 1, squeeze=False, sharex="col", layout="constrained",
                                    figsize=(7, 1.1 + len(cases) * (0.35 + 0.26 * len(shown))))
        for axes, case in zip(grid[:, 0], cases):
            draw_bars(axes, [names[worker["name"]] for worker in shown],
                      [rates.get((case.name, worker["name"])) for worker in shown],
                      [COLORS[OURS] if is_ours(worker["name"]) else COLORS[platform] for worker in shown])
            axes.set_title(f"{case.cell.upper()}, {sizes(case)}", fontsize=9, loc="left")
        figure.suptitle(f"{COLUMNS[platform]}: GFLOP/s, {TYPE}, from numpy to numpy: longer is better. {OURS} on\n"
                        f"{device(report)}", fontsize=9)
        save(figure, folder / f"throughput{SUFFIXES[platform]}.png")


def draw_bars(axes: Any, names: Sequence[str], values: Sequence[float | None], colors: Sequence[str]) -> None:
    bars = axes.barh(range(len(names)), [value or 0.0 for value in values], height=0.75, color=colors)
    axes.bar_label(bars, ["no result" if value is None else f"{value:.3g}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.get_yticklabels()[names.index(OURS)].set_fontweight("bold")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def draw_growth(report: Report, dimension: str, rows: Sequence[Row], cases: Mapping[str, Case], path: Path) -> None:
    """A line for each worker."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    names = shown_names(report.workers)
    styles = {CPU: "--", VULKAN: "-", GPU: ":"}
    for worker in ordered(report.workers):
        points = [(getattr(cases[row["case"]], SIZES[dimension]), row["ms"]) for row in rows
                  if (row["worker"], row["way"]) == (worker["name"], "host") and "ms" in row]
        if points:
            axes.loglog(*zip(*points), marker="o", markersize=4, linestyle=styles[worker["platform"]],
                        label=names[worker["name"]], linewidth=2.5 if worker["name"] == OURS else 1.3)
    axes.set(xlabel=f"{dimension} ({SIZES[dimension]})", ylabel="ms a call, from numpy to numpy")
    axes.set_title(f"GRU, {TYPE}, {FIXED[dimension]}: lower is better\n{device(report)}", fontsize=11)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(title="solid: with Vulkan", fontsize=9)
    save(figure, path)


def draw_roofline(report: Report, cases: Mapping[str, Case], path: Path) -> None:
    """Rates on the device against the operations per byte of recurrent weights, if these are read once a step."""
    figure, axes = plt.subplots(figsize=(10, 6), layout="constrained")
    peak, reads = report.ceilings["gflops"], report.ceilings["read_gb_s"].values()
    intensities = np.geomspace(0.5, 1024, 400)
    low, high = (np.minimum(peak, rate * intensities) for rate in (min(reads), max(reads)))
    axes.fill_between(intensities, low, high, color="#999999", linewidth=1.5,
                      label=f"ceilings: {peak:.0f} GFLOP/s; reads of weights at {min(reads):.1f} to {max(reads):.1f} GB/s")
    points = [(cases[row["case"]].flops / weight_bytes(cases[row["case"]]), row["gflops"], cases[row["case"]])
              for row in report.results if (row["worker"], row["way"]) == (OURS, "device") and "ms" in row]
    for cell, color in CELLS.items():
        of_cell = [(x, y) for x, y, case in points if case.cell == cell]
        if of_cell:
            axes.loglog(*zip(*of_cell), "o", color=color, label=cell.upper())
    least, most = min(y for _, y, _ in points) / 2, peak * 2
    for place, (x, y, case) in label_places(points, np.log(most / least) / 28):
        axes.annotate(label(case), (x, y), place, fontsize=8, color=CELLS[case.cell], va="center",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
                      arrowprops={"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.7, "shrinkB": 3})
    axes.set(xlabel="operations per byte of recurrent weights, if these are read once a step", ylabel="GFLOP/s on the device",
             xlim=(0.5, 512), ylim=(least, most))
    axes.set_title(f"{OURS}, {TYPE}, and the ceilings of the device. Labels: T, B, I, H\n{device(report)}", fontsize=11)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(loc="lower right", fontsize=9)
    save(figure, path)


Point = tuple[float, float, Case]


def label_places(points: Sequence[Point], gap: float) -> list[tuple[tuple[float, float], Point]]:
    """Places of the points' labels: a column to the right of them, no two nearer than a gap (of logarithms)."""
    columns: list[list[Point]] = []
    for point in sorted(points, key=lambda point: point[0]):
        if columns and point[0] < 8 * columns[-1][0][0]:
            columns[-1].append(point)
        else:
            columns.append([point])
    placed = []
    for column in columns:
        column.sort(key=lambda point: point[1])
        heights = np.log([y for _, y, _ in column])
        for _ in range(200):  # neighbours that are too near move apart by turns
            for lower in range(len(heights) - 1):
                overlap = gap - (heights[lower + 1] - heights[lower])
                if overlap > 0:
                    heights[lower] -= overlap / 2
                    heights[lower + 1] += overlap / 2
        right = 1.8 * max(x for x, _, _ in column)
        placed += [((right, float(np.exp(height))), point) for height, point in zip(heights, column)]
    return placed


def ordered(workers: Sequence[Row]) -> list[Row]:
    """Workers that compute the same in one type: with Vulkan first, others beside the vkdml that they are compared with."""
    platforms = [VULKAN, CPU, GPU]
    places = {worker["name"]: place for place, worker in enumerate(workers)}
    shown = [worker for worker in workers if worker["platform"]]
    return sorted(shown, key=lambda worker: (
        platforms.index(worker["platform"]),
        places.get(worker["name"] if is_ours(worker["name"]) else worker["baseline"], len(places)),
        not is_ours(worker["name"])))


def shown_names(workers: Sequence[Row]) -> dict[str, str]:
    """What the pictures call each worker: on another device than vkdml's, with the first word of that device's name."""
    words = {worker["name"]: re.split("[ ,]", worker["device"])[0] for worker in workers
             if worker["platform"] and is_ours(worker["name"]) and worker["name"] != OURS}
    unique = {name: word for name, word in words.items() if Counter(words.values())[word] == 1}
    names = {}
    for worker in workers:
        name = worker["name"]
        word = unique.get(name if is_ours(name) else worker.get("baseline", ""))
        names[name] = f"{OURS if is_ours(name) else name}, {word}" if word else name
    return names


def is_ours(worker: str) -> bool:
    return worker.split("-")[0] == OURS


def device(report: Report) -> str:
    return next((str(worker["device"]) for worker in report.workers if worker["name"] == OURS), "")


def sizes(case: Case) -> str:
    return f"T = {case.steps}, B = {case.batch}, I = {case.inputs}, H = {case.hidden}"


def label(case: Case) -> str:
    """Sizes of a case, and what else is in its name."""
    return " ".join([f"{case.steps},{case.batch},{case.inputs},{case.hidden}", *case.name.split("-")[2:]])


def weight_bytes(case: Case) -> int:
    return case.steps * case.recurrent_weights * 4


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    draw(Report(**json.loads((Path(sys.argv[1]) / "results.json").read_text())), Path(sys.argv[1]))
