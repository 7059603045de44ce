"""Draws the pictures of a benchmark's report: the throughput of vkdml and of other libraries.

    python -m bench.pictures FOLDER    # draws those of FOLDER/results.json again
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")  # needs no screen
from matplotlib import pyplot as plt

from vkdml_lab.bench.cases import CASES, Case
from vkdml_lab.bench.peers import CPU, GPU, OURS, VULKAN
from vkdml_lab.bench.report import Report, Row

TYPE = "float32"  # the type of all workers that have a platform
THROUGHPUT = ("gru-100x1x256x256", "gru-50x32x256x256", "gru-50x64x512x512", "lstm-50x32x256x256")
COLORS = {OURS: "#0b5fa5", VULKAN: "#6aaed6", CPU: "#9a9a9a", GPU: "#5a9e3d"}
COLUMNS = {VULKAN: "With Vulkan", CPU: "Beside libraries for the CPU", GPU: "Beside others on the GPU"}
SUFFIXES = {VULKAN: "", CPU: "-cpu", GPU: "-gpu"}  # suffixes of the pictures' names
DPI = 120


def draw(report: Report, folder: Path) -> None:
    """Draw a report's pictures into a folder, for the cases in THROUGHPUT that vkdml has times of. Without any, draw none."""
    shown = [case for case in CASES if case.name in THROUGHPUT and any(
        (row["case"], row["worker"]) == (case.name, OURS) and "ms" in row for row in report.results)]
    if shown:
        draw_throughput(report, shown, folder)


def draw_throughput(report: Report, cases: Sequence[Case], folder: Path) -> None:
    """Draw a picture for each platform (Vulkan, CPU, GPU) into a folder: bars of GFLOP/s from numpy to numpy, by case."""
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


def ordered(workers: Sequence[Row]) -> list[Row]:
    """Return the workers that pictures show, Vulkan's first. Libraries come right after the vkdml worker on their device."""
    platforms = [VULKAN, CPU, GPU]
    places = {worker["name"]: place for place, worker in enumerate(workers)}
    shown = [worker for worker in workers if worker["platform"]]
    return sorted(shown, key=lambda worker: (
        platforms.index(worker["platform"]),
        places.get(worker["name"] if is_ours(worker["name"]) else worker["baseline"], len(places)),
        not is_ours(worker["name"])))


def shown_names(workers: Sequence[Row]) -> dict[str, str]:
    """Return each worker's name for pictures, by its own name. A device other than vkdml's is added: "vkdml, SwiftShader"."""
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


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    draw(Report(**json.loads((Path(sys.argv[1]) / "results.json").read_text())), Path(sys.argv[1]))
