"""Decides from samples whether a process's use of a resource grows with the number of calls, as in a leak.

The first third of the samples is left out, since a process needs more memory when it first meets operators and shapes. The
slope is the median of the slopes between all pairs of samples (Theil and Sen), which ignores outliers. A resource grows if two
numbers both exceed its noise in ALLOWED: the slope times the number of calls, and the median of the last quarter of samples
minus that of the first quarter. The report gives the least leak per call that would be noticed.
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
    """Growth of a resource in one process. first, last: medians of the first and last quarter. by: slope times `calls`."""

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
        """The least growth per call that would be noticed as a leak."""
        return self.allowed / max(self.calls, 1)


def growth(samples: Sequence[Sample], what: str) -> Growth | None:
    """Return the growth of the resource `what` in one process, or None if there are too few samples."""
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
