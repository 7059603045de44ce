"""Measures the device's rates, such as GB/s, with kernels made for this, and compares them with the planner's figures."""

from __future__ import annotations

from typing import Any

from vkdml import DeviceInfo
from vkdml_lab.bench import ceilings
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import gpu_rates, profile, select_device

NOTES = """Multiply-adds count as two operations. Rates are the best of all numbers of workgroups tried: of reads, the largest
buffer's for memory, and the fastest for the cache. A submission is of one empty dispatch, with the wait for its end; a dispatch
in it waits for the one before.
`estimated`: of the device's row in the planner's table, src/vkdml/planning/gpus.py, for as many units as it has."""


def steps(job: Job) -> list[Step]:
    def measure() -> list[Row]:
        found = ceilings.Library(select_device(None).index, ceilings.QUICK if job.quick else ceilings.ALL).measure()
        return [*rates(select_device(None), found), {"table": "All", **found}]

    return [Step("ceilings", measure, seconds=60)]


def summary(found: list[Row]) -> str:
    return "; ".join(f"{row['rate']} {row['measured']:.3g}" for row in found if row.get("measured"))


def rates(info: DeviceInfo, found: dict[str, Any]) -> list[Row]:
    """Return a row for each rate: its value by the planner's figure, and the measured value. found: what was measured."""
    gpu, calls = gpu_rates(info), profile(info).rates
    reads = list(found["read_gb_s"].values())
    return [{"rate": name, "figure": figure, "estimated": expected, "measured": real, "times": real and real / expected}
            for name, figure, expected, real in (
        ("multiply-adds, GFLOP/s", "clock", 2 * gpu.lanes * gpu.clock * gpu.units / 1e9, found["gflops"]),
        ("cache, GB/s", "cache_rate", gpu.cache_rate / 1e9, max(reads)),
        ("memory, GB/s", "memory_rate", gpu.memory_rate / 1e9, reads[-1]),
        ("a submission, us", "submission", calls.submission * 1e6, found["submission_us"]),
        ("a dispatch, us", "dispatch", calls.dispatch * 1e6, found["dispatch_us"]))]
