"""The least time that a device's measured limits (its ceilings) allow for a case."""

from __future__ import annotations

from typing import Any

from vkdml_lab.bench.cases import Case


def bound(case: Case, ceilings: dict[str, Any], weight_bytes: int = 4) -> tuple[str, float]:
    """Return what limits a case (arithmetic, reads or a submission), and the least seconds of a call by this limit.

    Recurrent weights count as read once a step, although kernels may keep them in private memory. W does not count, as one
    product over all steps can read it once. weight_bytes: the size of one weight.
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
    """Return the GB/s of reads of the smallest measured buffer with at least `size` bytes, or else of the largest."""
    rates = sorted((int(measured), rate) for measured, rate in ceilings["read_gb_s"].items())
    return next((float(rate) for measured, rate in rates if measured >= size), float(rates[-1][1]))
