"""What the planner's model expects of the device, beside what is measured: its rates, a time step, a projection."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.trials import arrays, seconds
from tools.gpu.cases import Case
from tools.gpu_report import ceilings
from tools.gpu_report.outcome import PASSED, Job, Outcome, Row, announced, write
from tools.gpu_report.problems import ESTIMATES, QUICK_ESTIMATES, QUICK_SAMPLES, SAMPLES, WAYS
from vkdml import DeviceInfo, InvalidArgumentError, Options
from vkdml.laboratory import Gpu, Plan, Planner, Trial, gpu_rates, open_device, plan_of, profile, select_device

NOTES = """A step is what an execution takes beyond its projection, divided by T. The projection is measured with a submission
of its own, which the estimate has too. Both are in microseconds. `times`: measured by estimated. Rates are those of the
device's row in the planner's table (src/vkdml/planning/gpus.py), beside the ceilings: of reads, the largest buffer's for
memory, and the fastest for the cache."""


def run(job: Job) -> Outcome:
    gpu = open_device(select_device(None))
    tables = {"Rates": rates(gpu.info, job.others / "ceilings" / ceilings.FILE), "Steps": []}
    for case in announced(QUICK_ESTIMATES if job.quick else ESTIMATES):
        tables["Steps"] += [measure(gpu, case, way, QUICK_SAMPLES if job.quick else SAMPLES) for way in WAYS]
        write(job.folder, "estimates", "Estimates beside measurements", NOTES, tables)  # now, in case the next one hangs
    times = [row["times"] for row in tables["Steps"] if row["times"]]
    middle = f"; a step takes {median(times):.2g} times as long as estimated, in the middle" if times else ""
    return Outcome(PASSED, f"{len(times)} of {len(tables['Steps'])} schedules of problems measured{middle}")


def rates(info: DeviceInfo, measured: Path) -> list[Row]:
    """Rows of rates. measured: the ceilings' file; without it there are estimates only."""
    found: dict[str, Any] = json.loads(measured.read_text()) if measured.exists() else {}
    gpu, calls = gpu_rates(info), profile(info).rates
    reads = list(found.get("read_gb_s", {}).values())
    barriers = [us for us in found.get("barrier_us", {}).values() if us is not None]
    return [beside({"rate": name}, expected, real) for name, expected, real in (
        ("multiply-adds, GFLOP/s", 2 * gpu.lanes * gpu.clock * gpu.units / 1e9, found.get("gflops")),
        ("cache, GB/s", gpu.cache_rate / 1e9, max(reads, default=None)),
        ("memory, GB/s", gpu.memory_rate / 1e9, reads[-1] if reads else None),
        ("a barrier between workgroups, us", gpu.meeting * 1e6, barriers[-1] if barriers else None),
        ("a submission, us", calls.submission * 1e6, found.get("submission_us")),
        ("a dispatch, us", calls.dispatch * 1e6, found.get("dispatch_us")))]


def measure(gpu: Gpu, case: Case, way: str, samples: int) -> Row:
    row: Row = {"problem": case.name, "way": way}
    try:
        return row | timed(gpu, case, WAYS[way], samples)
    except InvalidArgumentError as error:
        return beside(row, None, None) | {"no time because": str(error)}


def timed(gpu: Gpu, case: Case, options: Options, samples: int) -> Row:
    problem = case.problem
    planner = Planner(problem, gpu.info, options)
    tiling = planner.best()
    whole = plan_of(planner, tiling)
    found = seconds(Trial(gpu, problem, arrays(problem)), [whole, projection_alone(whole)], samples)
    reasons = [one for one in found if isinstance(one, str)]
    times = [one for one in found if not isinstance(one, str)]
    if reasons:
        return beside({}, None, None) | {"no time because": ", ".join(reasons)}
    costs = planner.costs
    assert tiling.projection
    projected = costs.projection_seconds(tiling, problem.steps) + costs.rates.submission + costs.rates.dispatch
    return (beside({}, costs.step_seconds(tiling) * 1e6, (times[0] - times[1]) / problem.steps * 1e6)
            | {"projection: " + name: value for name, value in beside({}, projected * 1e6, times[1] * 1e6).items()}
            | {"no time because": ""})


def projection_alone(plan: Plan) -> Plan:
    only = tuple(dispatch for dispatch in plan.execute if "projection" in dispatch.kernel)
    return replace(plan, execute=only, fallback=(), timed_out=None)


def beside(row: Row, estimated: float | None, measured: float | None) -> Row:
    times = measured / estimated if measured and estimated else None
    return row | {"estimated": estimated, "measured": measured, "times": times}
