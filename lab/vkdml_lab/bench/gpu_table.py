"""Draws the comparison of vkdml with PyTorch on a GPU, from the table of times in a page of docs/gpu/.

python -m bench.gpu_table docs/gpu/h200.md docs/gpu/h200.png
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("agg")  # writes files only, so that no screen is needed
from matplotlib import pyplot as plt

COLORS = {"device": "#c9541b", "host": "#0b5fa5"}


class Ratios(NamedTuple):
    """PyTorch's time divided by vkdml's for one problem. device: with all tensors on the GPU. host: from numpy to numpy."""

    problem: str
    device: float
    host: float


def ratios(page: str) -> list[Ratios]:
    """Compute the ratios from the times in a page's table. The ratios in the table itself are rounded. page: Markdown."""
    found = []
    for row in re.findall(r"^\|((?:GRU|LSTM|RNN) \(.*)\|$", page, re.M):
        problem, *cells = row.split("|")
        ours, theirs, _, our_host, their_host = (float(cell.replace(",", "")) for cell in cells[:5])
        found.append(Ratios(problem, theirs / ours, their_host / our_host))
    return found


def draw(rows: list[Ratios], path: Path) -> None:
    """Draw a picture to a file. Each problem has one line, with a point for each of its two ratios."""
    rows = sorted(rows, key=lambda row: row.host)
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    places = range(len(rows))
    axes.hlines(places, [row.host for row in rows], [row.device for row in rows], color="0.8", zorder=1)
    axes.scatter([row.host for row in rows], places, color=COLORS["host"], zorder=2, label="from numpy to numpy")
    axes.scatter([row.device for row in rows], places, facecolor="white", edgecolor=COLORS["device"], zorder=2,
                 label="all tensors on the GPU")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"], fontsize=8)
    axes.set_xlabel("cuDNN's time / vkdml's: right of the line, vkdml is faster", fontsize=8)
    axes.minorticks_off()
    axes.set_xlim(0.6, 10)
    axes.set_yticks(places, [row.problem for row in rows], fontsize=8)
    figure.suptitle("vkdml beside PyTorch's cuDNN on an H200: (T, B, I, H), float32 without TF32", fontsize=9)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    draw(ratios(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
