"""The devices of this machine with their limits, what the planner takes the chosen one for, and what all this runs on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict

import numpy as np

import vkdml
from tools.gpu_report.outcome import PASSED, Job, Outcome, write
from vkdml.laboratory import KP_VERSION, PROFILES, compute_units, gpu_rates, select_device


def run(job: Job) -> Outcome:
    chosen, infos = select_device(None), vkdml.Device.enumerate()
    row = next(name for name, row in PROFILES.items() if row.fits(chosen))
    facts = {"row": row, **asdict(gpu_rates(chosen)), "units": compute_units(chosen),
             "tensors are copied": not chosen.unified_memory}
    machine = {"system": platform.platform(), "processors": len(os.sched_getaffinity(0)), "Python": platform.python_version(),
               "numpy": np.__version__, "vkdml": vkdml.__version__, "kp": KP_VERSION}
    columns = [{"": name, **{f"[{info.index}] {info.name}": asdict(info)[name] for info in infos}} for name in asdict(chosen)]
    write(job.folder, "devices", "Devices", f"The report is about [{chosen.index}] {chosen.name}.", {
        "Devices": columns,
        "What the planner takes it for": [{"": name, "value": value} for name, value in facts.items()],
        "Machine": [{"": name, "value": value} for name, value in machine.items()],
    })
    return Outcome(PASSED, f"{len(infos)} devices; {chosen.name} is planned for as {row}, with {compute_units(chosen)} units")
