"""Meetings of workgroups and the planner's model, as sentences: what a GPU's row in the planner's table should say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tools.gpu_report.devices import UNKNOWN
from tools.gpu_report.problems import WAYS
from tools.gpu_report.steps import Row
from vkdml import DeviceInfo

BARRIER, FLOW = "persistent, barrier", "persistent, flow"
# What a step has of each schedule once a phase, and a figure says how long that takes
WAITING = {"stepped": "dispatch", BARRIER: "meeting", FLOW: "seen"}
RATES = ("clock", "cache_rate", "memory_rate")  # that ceilings measure
CHANGE = 1.25  # times, up or down, from which on a figure is worth being changed


def sentences(info: DeviceInfo, planned: Mapping[str, Any], schedules: Sequence[Row], ceilings: Sequence[Row]) -> list[str]:
    return [meetings(schedules), faster(schedules), off(schedules), *figures(info, planned, schedules, ceilings)]


def meetings(rows: Sequence[Row]) -> str:
    """Do workgroups meet?"""
    said = []
    for way in (BARRIER, FLOW):
        tests = [row["meet"] for row in rows if row.get("schedule") == way and "meet" in row]
        runs = [row for row in rows if row.get("schedule") == way and row.get("runs")]
        if not tests and not runs:
            said.append(f"{name(way)} not checked")
            continue
        passed = f"{name(way)} " + ("was not tested" if not tests else "passes the test" if all(tests) else "fails the test")
        many, gave_up = sum(row["runs"] for row in runs), sum(row["gave up"] for row in runs)
        said.append(passed + (f", and {gave_up or 'none'} of {many} runs gave up" if runs else ""))
    return f"**Do workgroups meet?** {'; '.join(said)}."


def faster(rows: Sequence[Row]) -> str:
    """Flow or barrier? And which schedule is the fastest where."""
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.get("seconds") and row.get("right"):
            times.setdefault(row["problem"], {})[row["schedule"]] = row["seconds"]
    both = [found[BARRIER] / found[FLOW] for found in times.values() if BARRIER in found and FLOW in found]
    if both:
        is_flow = median(both) >= 1
        middle = median(both) if is_flow else 1 / median(both)
        wins = sum((ratio >= 1) == is_flow for ratio in both)
        winner = "flow" if is_flow else "barrier"
        said = f"*{winner}* in {wins} of {len(both)} problems, {middle:.3g} times as fast at the median"
    else:
        said = "not checked: no problem ran both ways without giving up"
    best = [min(found, key=lambda way: found[way]) for found in times.values()]
    counted = ", ".join(f"{name(way)} in {best.count(way)}" for way in WAYS if way in best)
    return f"**Flow or barrier?** {said}." + (f" The fastest schedule is {counted} of {len(best)} problems." if best else "")


def off(rows: Sequence[Row]) -> str:
    """How far is the model off?"""
    timed = [row for row in rows if row.get("step us") and row.get("step estimate us")]
    by_way = {way: [row["step us"] / row["step estimate us"] for row in timed if row["schedule"] == way] for way in WAYS}
    if not any(by_way.values()):
        return "**How far is the model off?** Not checked."
    every = [times for found in by_way.values() for times in found]
    said = [f"{name(way)} {median(found):.2g} ({min(found):.2g} to {max(found):.2g})" for way, found in by_way.items() if found]
    return (f"**How far is the model off?** A step takes {median(every):.2g} times as long as it says at the median: "
            f"{', '.join(said)}.")


def figures(info: DeviceInfo, planned: Mapping[str, Any], schedules: Sequence[Row], ceilings: Sequence[Row]) -> list[str]:
    """Which figure should be what? Of waiting, by what steps of a row take beyond the estimate; of rates, by ceilings."""
    if info.is_cpu or not planned:
        return []
    changes = {}  # how a figure is told, by how many times it should be what it is
    for way, figure in WAITING.items():
        found = [planned[figure] + (one["step us"] - one["step estimate us"]) * 1e-6 / one["phases"] for one in schedules
                 if one.get("schedule") == way and one.get("step us") and one["B"] == 1]
        if found:
            of_all = " (in profiles.py, of all GPUs)" if figure == "dispatch" else ""
            told = f"`{figure}` from {planned[figure]:.2g} to {max(median(found), 0):.2g} s{of_all}"
            changes[told] = median(found) / planned[figure]
    changes |= {f"`{one['figure']}` times {one['times']:.2g}": one["times"] for one in ceilings
                if one.get("times") and one["figure"] in RATES}
    if not changes:
        return ["**What should the table of GPUs say?** Not checked: no problem of one row, no ceilings."]
    row = planned["figures of"]
    place = f'a new row for this GPU, beginning with "{UNKNOWN}"' if row == UNKNOWN else f'the row "{row}"'
    said = ", ".join(told for told, times in changes.items() if is_off(times)) or "no figure is off by a quarter"
    return [f"**What should the table of GPUs say?** In src/vkdml/planning/gpus.py, {place}: {said}."]


def is_off(times: float) -> bool:
    return not 1 / CHANGE < times < CHANGE


def name(way: str) -> str:
    """A schedule's name in a sentence."""
    return f"*{way.removeprefix('persistent, ')}*"
