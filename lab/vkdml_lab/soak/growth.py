"""Decides from samples whether something grows with the number of calls, as a leak would.

A process needs more memory while it meets operators and shapes for the first time, so the first third of its samples is left
out. The slope is the median of the slopes between all pairs of samples (Theil and Sen), which ignores outliers. Something grows
if both the slope times the number of calls, and the last quarter minus the first quarter, exceed the noise in ALLOWED. So a
leak is noticed if it exceeds ALLOWED in this number of calls; the report gives the least leak per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MIB = 2.0**20

# What is sampled: its unit, and its noise over two thirds of a life
ALLOWED: Mapping[str, tuple[str, float]] = {
    "resident memory": ("MiB", 8.0), "file handles": ("", 0.5), "threads": ("", 0.5), "Python's objects": ("", 5000.0)}

Sample = Mapping[str, Any]  # a number for each row of ALLOWED, and "calls"


@dataclass(frozen=True)
class Growth:
    """How much something grew in one process. first, last: medians of the first and last quarter. by: slope times calls."""

    what: str
    unit: str
    allowed: float
    first: float
    last: float
    by: float
    calls: float

    @property
    def grows(self) -> bool:
        return min(self.by, self.last - self.first) > self.allowed

    @property
    def least_seen(self) -> float:
        """The least growth per call that would be noticed."""
        return self.allowed / max(self.calls, 1)


def growth(samples: Sequence[Sample], what: str) -> Growth | None:
    """Return the growth in one process, or None if there are too few samples."""
    later = samples[len(samples) // 3:]
    if len(later) < 4:
        return None
    calls, values = (np.array([sample[key] for sample in later], float) for key in ("calls", what))
    i, j = np.triu_indices(len(later), 1)
    span = float(calls[-1] - calls[0])
    slope = np.median((values[j] - values[i]) / np.maximum(calls[j] - calls[i], 1))
    quarter = len(later) // 4
    first, last = (float(np.median(part)) for part in (values[:quarter], values[-quarter:]))
    return Growth(what, *ALLOWED[what], first=first, last=last, by=float(slope * span), calls=span)
