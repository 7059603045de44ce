"""A case's least time on a device, by its measured ceilings."""

from __future__ import annotations

from typing import Any

from bench.cases import Case


def bound(case: Case, ceilings: dict[str, Any], weight_bytes: int = 4) -> tuple[str, float]:
    """The ceiling that binds, and the seconds that it allows a call.

    The recurrent weights are read once a step, which kernels that keep them in private memory need not do; W is not counted, as
    a product over all steps need not read it again.
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
    """In GB/s, of the smallest buffer measured that is as large, or of the largest."""
    rates = sorted((int(measured), rate) for measured, rate in ceilings["read_gb_s"].items())
    return next((float(rate) for measured, rate in rates if measured >= size), float(rates[-1][1]))
