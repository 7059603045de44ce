"""The command `vkdml devices`"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tabulate import tabulate

from ..engine.trust import choices, tuner
from ..engine.vulkan import system
from ..engine.vulkan.gpu import KP_VERSION, select_device
from ..engine.vulkan.queries import enumerate_devices
from ..errors import DriverError
from ..planning.device_info import DeviceInfo
from ..planning.profiles import profile
from .argument_types import add_common, print_json

_TUNING = {tuner.ON: "the best plans for new sizes are timed, and the fastest is kept",
           tuner.READ: "plans that were kept are used, and nothing is timed",
           tuner.OFF: "the model of costs chooses, and nothing is read, timed or kept"}


def add(command: argparse.ArgumentParser) -> None:
    add_common(command, device=False)


def run(chosen: argparse.Namespace) -> int:
    infos = enumerate_devices()
    try:
        default, wrong = select_device(None), ""
    except DriverError as error:  # the list says which there are
        default, wrong = None, f"VKDML_DEVICE: {error}"
    rows = [{**asdict(info), "is_default": info == default} for info in infos]
    if chosen.json:
        print_json(rows)
        return 0
    columns = {"index": "", "name": "name", "type": "type", "driver": "driver", "driver_version": "version",
               "api_version": "Vulkan", "units": "units", "subgroup": "subgroup", "max_workgroup_invocations": "workgroup",
               "max_shared_memory": "shared memory", "max_storage_buffer_range": "largest tensor", "memory": "memory",
               "copies": "copies"}
    sizes = ("max_shared_memory", "max_storage_buffer_range", "memory")
    shown = [{**asdict(info), **{name: _size(getattr(info, name)) for name in sizes}, "units": _units(info),
              "subgroup": _subgroup(info), "copies": "no" if info.unified_memory else "yes"} for info in infos]
    table = [["*" if info == default else "", *(row[column] for column in columns)] for info, row in zip(infos, shown)]
    print(tabulate(table, ["", *columns.values()]))
    if wrong:
        print(wrong)
    if all(info.is_cpu for info in infos):
        print("No GPU was found: these are drivers for the CPU.")
    print("* is the default; VKDML_DEVICE chooses another. copies: whether tensors are copied to it.\n"
          "units: a processor's cores, or what a GPU's driver calls compute units, SMs or cores (?: it does not say).")
    if any(profile(info).tuned for info in infos):
        mode = system.setting("devices", "VKDML_TUNING", tuner.MODES) or tuner.ON
        print(f"Tuning of GPUs is {mode}: {_TUNING[mode]} (VKDML_TUNING in the environment: {', '.join(_TUNING)}).\n"
              f"What was measured is in {choices.folder()}: {choices.count()} files, which may be deleted.")
    print(f"kp {KP_VERSION}")
    return 0


def _size(count: int) -> str:
    """A number of bytes in the largest unit of which there is one."""
    unit, size = next(((unit, size) for unit, size in (("GiB", 2**30), ("MiB", 2**20)) if count >= size), ("KiB", 2**10))
    return f"{count / size:.3g} {unit}"


def _units(info: DeviceInfo) -> str:
    return str(info.cores if info.is_cpu else info.compute_units or "?")


def _subgroup(info: DeviceInfo) -> str:
    """Number of a subgroup's invocations, or the fewest and the most."""
    if info.min_subgroup_size == info.max_subgroup_size:
        return str(info.subgroup_size)
    return f"{info.min_subgroup_size} to {info.max_subgroup_size}"
