"""Writes sentences about the grid-sync test (may workgroups wait for each other?) and about the cost model's estimates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from vkdml import DeviceInfo
from vkdml_lab.gpu_report.beside import brief
from vkdml_lab.gpu_report.fit import fit
from vkdml_lab.gpu_report.problems import WAYS
from vkdml_lab.gpu_report.steps import Row
from vkdml_lab.internals import PERSISTENT


def sentences(info: DeviceInfo, schedules: Sequence[Row]) -> list[str]:
    return [grid_sync(schedules), faster(schedules), off(schedules), *figures(info, schedules)]


def grid_sync(rows: Sequence[Row]) -> str:
    """Return a sentence that says whether workgroups may wait for each other on this GPU, as tests and runs show."""
    tests = [row["passed"] for row in rows if row.get("schedule") == PERSISTENT and "passed" in row]
    runs = [row for row in rows if row.get("schedule") == PERSISTENT and row.get("runs")]
    said = ["The grid-sync test passes" if all(tests) else "The grid-sync test fails"] if tests else ["Not tested"]
    many, gave_up = sum(row["runs"] for row in runs), sum(row["gave up"] for row in runs)
    said += [f"{gave_up or 'none'} of {many} runs gave up"] * bool(runs)
    return f"**May workgroups wait for each other?** {', and '.join(said)}."


def faster(rows: Sequence[Row]) -> str:
    """Return a sentence that says for how many problems each schedule is the fastest."""
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.get("seconds") and row.get("right"):
            times.setdefault(row["problem"], {})[row["schedule"]] = row["seconds"]
    best = [min(found, key=lambda way: found[way]) for found in times.values()]
    counted = ", ".join(f"*{way}* in {best.count(way)}" for way in WAYS if way in best)
    return f"**Which schedule is the fastest?** {f'{counted} of {len(best)} problems' if best else 'Not checked'}."


def off(rows: Sequence[Row]) -> str:
    """Return a sentence that says, for each schedule, how many times as long as the model's estimate a step takes."""
    timed = [row for row in rows if row.get("step us") and row.get("step estimate us")]
    by_way = {way: [row["step us"] / row["step estimate us"] for row in timed if row["schedule"] == way] for way in WAYS}
    if not any(by_way.values()):
        return "**How far is the model off?** Not checked."
    every = [times for found in by_way.values() for times in found]
    said = [f"*{way}* {brief(median(found))} ({brief(min(found))} to {brief(max(found))})"
            for way, found in by_way.items() if found]
    return (f"**How far is the model off?** A step takes {brief(median(every))} times as long as it says at the median: "
            f"{', '.join(said)}.")


def figures(info: DeviceInfo, schedules: Sequence[Row]) -> list[str]:
    """Return a list of one sentence: which figures make the cost model fit these times best. [] for a CPU driver."""
    if info.is_cpu:
        return []
    found = fit(schedules, info)
    left = ", ".join(f"{change.figure} ({change.reason})" for change in found.changes if change.reason)
    not_fitted = f" Not fitted: {left}." if left else ""
    if not found.lines:
        return [f"**What should the table of GPUs say?** Not checked: nothing could be fitted to {found.runs} runs."]
    pasted = " and ".join(f"`{line}`" for line in found.lines)
    return [f"**What should the table of GPUs say?** {pasted} in src/vkdml/planning: by that the model is off by a factor of "
            f"{found.off_after:.3g}, and not {found.off_before:.3g}, in {found.runs} runs.{not_fitted}"]
