"""Reports facts about the device (limits, features), about the planner's profile of the device, and about the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import vkdml
from vkdml_lab.facts import device_facts, memory_types, queue_families
from vkdml_lab.gpu_report import machine
from vkdml_lab.gpu_report.steps import Job, Row, Step
from vkdml_lab.internals import GPUS, PROFILES, DeviceProfile, gpu_rates, select_device

UNKNOWN = "unknown"
PLANNED, MACHINE, FEATURES = "What the planner takes it for", "Machine", "What kernels may use"
VARIABLES = "Environment variables of drivers"
MATRICES = "cooperative matrices"
NOTES = "Facts that times depend on, and those that decide what is worth being written for this GPU next."


def steps(job: Job) -> list[Step]:
    return [Step("devices", facts, first=True)]


def facts() -> list[Row]:
    chosen = select_device(None)
    others = [f"[{info.index}] {info.name}" for info in vkdml.Device.enumerate() if info.index != chosen.index]
    name = next(name for name, row in PROFILES.items() if row.fits(chosen))
    tables: dict[str, Mapping[str, object]] = {
        FEATURES: features(chosen),
        "Device": {**asdict(chosen), "other devices": ", ".join(others) or "none"},
        PLANNED: {"row": name, "figures of": figures_of(PROFILES[name]), **asdict(gpu_rates(chosen)),
                  **{rate: getattr(PROFILES[name].rates, rate) for rate in ("submission", "dispatch")},
                  "tensors are copied": not chosen.unified_memory},
        MACHINE: machine.facts(), "Packages": machine.packages(), VARIABLES: machine.variables() or {"none of those known": ""}}
    return [{"table": table, "fact": fact, "value": value} for table, found in tables.items() for fact, value in found.items()]


def features(info: vkdml.DeviceInfo) -> Row:
    found = device_facts(info)
    matrices = [" ".join(["x".join(map(str, one["M N K"])), *one["A B C result"]]) for one in found[MATRICES]]
    return found | {MATRICES: matrices, "memory": list(map(shown, memory_types(info))),
                    "queues": list(map(shown, queue_families(info)))}


def shown(one: Row) -> str:
    """Return a memory type's or queue family's flags, and "(taken)" if vkdml uses it. one: a row from vkdml_lab/facts.py."""
    uses = f" for {' and '.join(one['taken'])}" if isinstance(one["taken"], list) else ""
    return " ".join(one["flags"]) + (f" (taken{uses})" if one["taken"] else "")


def figures_of(row: DeviceProfile) -> str:
    """Return the name in GPUS of the figures that a profile uses; "unknown" for unknown GPUs and CPU drivers."""
    return next((name for name, figures in GPUS.items() if figures is row.gpu), UNKNOWN)


def summary(found: list[Row]) -> str:
    value = {row["fact"]: row["value"] for row in found if "fact" in row}
    units = f"{value.get('cores')} cores" if value.get("type") == "cpu" else f"{value.get('units')} units"
    return f"{value.get('name')} is planned for as {value.get('row')}, with {units}"
