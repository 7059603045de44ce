"""Whether something grows with calls, judged by samples of it.

A process may take what it wants while it meets its operators and shapes for the first time: the first third of a life's samples
is left out. Of the others the slope is the median of the slopes between all pairs (Theil and Sen), which single outliers do not
move. It grows if both what the slope makes over these samples, and what the last quarter has more than the first, are more than
is allowed for noise. So a leak is seen from about that much on, divided by the calls between these samples; the report says how
much that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MIB = 2.0**20

# What is sampled, its unit, and how much of it over two thirds of a life is noise
ALLOWED: Mapping[str, tuple[str, float]] = {
    "resident memory": ("MiB", 8.0), "file handles": ("", 0.5), "threads": ("", 0.5), "Python's objects": ("", 5000.0)}

Sample = Mapping[str, Any]  # a number for each row of ALLOWED, and for "calls"


@dataclass(frozen=True)
class Growth:
    """How something grows. first, last: medians of its first and last quarter. by: what the slope makes over all of it."""

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
        """The least growth per call that is noticed."""
        return self.allowed / max(self.calls, 1)


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[len(samples) // 3:]


def growth(samples: Sequence[Sample], what: str) -> Growth | None:
    """Growth in one life; None for fewer samples than say anything."""
    later = settled(samples)
    if len(later) < 4:
        return None
    calls, values = (np.array([sample[key] for sample in later], float) for key in ("calls", what))
    i, j = np.triu_indices(len(later), 1)
    span = float(calls[-1] - calls[0])
    slope = np.median((values[j] - values[i]) / np.maximum(calls[j] - calls[i], 1))
    quarter = len(later) // 4
    first, last = (float(np.median(part)) for part in (values[:quarter], values[-quarter:]))
    return Growth(what, *ALLOWED[what], first=first, last=last, by=float(slope * span), calls=span)
