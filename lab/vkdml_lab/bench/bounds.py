"""Computes the least time that a call of a case can take, from the measured limits of a device (its ceilings)."""

from __future__ import annotations

from typing import Any

from vkdml_lab.bench.cases import Case


def bound(case: Case, ceilings: dict[str, Any], weight_bytes: int = 4) -> tuple[str, float]:
    """Return the name of what limits a call of a case, and the least seconds that the call can take.

    The limit is "arithmetic", "reads" or "submission". All recurrent weights count as read in each step, although kernels may
    keep them in private memory. W does not count, as one product for all steps reads it. weight_bytes: size of one weight.
    """
    recurrent_bytes = case.recurrent_weights * weight_bytes
    seconds = {
        "arithmetic": case.flops / (ceilings["gflops"] * 1e9),
        "reads": case.steps * recurrent_bytes / (read_rate(ceilings, recurrent_bytes) * 1e9),
        "submission": ceilings["submission_us"] / 1e6,
    }
    name = max(seconds, key=lambda name: seconds[name])
    return name, seconds[name]


def read_rate(ceilings: dict[str, Any], size: int) -> float:
    """Return the measured GB/s of reads of a buffer: the smallest one with at least `size` bytes, or else the largest one."""
    rates = sorted((int(measured), rate) for measured, rate in ceilings["read_gb_s"].items())
    return next((float(rate) for measured, rate in rates if measured >= size), float(rates[-1][1]))
