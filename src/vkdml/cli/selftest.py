"""The command `vkdml selftest`: runs each kernel that a device may be given, and checks its results."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tabulate import tabulate

from ..engine.trust.self_test import outcomes
from ..faces.directml.device import Device
from .common import add_common, print_json, progress


def add(command: argparse.ArgumentParser) -> None:
    add_common(command)


def run(chosen: argparse.Namespace) -> int:
    device = Device(chosen.device)
    name, driver = device.info.name, f"{device.info.driver} {device.info.driver_version}"
    found = list(progress(outcomes(device.gpu)))
    rows = [{**asdict(outcome), "kernels": ", ".join(outcome.kernels)} for outcome in found]
    if chosen.json:
        print_json({"device": name, "driver": driver, "results": rows})
    else:
        print(f"{name} ({driver})")
        print(tabulate([{**row, "wrong": row["wrong"] or "-"} for row in rows], headers="keys", floatfmt=".2f"))
    return int(any(outcome.wrong for outcome in found))
