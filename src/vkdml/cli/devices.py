"""The command `vkdml devices`: lists the Vulkan devices, their limits, and how tuning is set."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict

from ..engine.trust import choices, tuner
from ..engine.vulkan import system
from ..engine.vulkan.gpu import KP_VERSION, select_device
from ..engine.vulkan.queries import enumerate_devices
from ..errors import DriverError
from ..planning.profiles import profile
from .common import add_common, print_json

_TUNING = {tuner.ON: "the best plans for new sizes are timed, and the fastest is kept",
           tuner.READ: "plans that were kept are used, and nothing is timed",
           tuner.OFF: "the model of costs chooses, and nothing is read, timed or kept"}

_WIDTH, _INDENT, _JOINED = 80, " " * 5, "\N{NO-BREAK SPACE}"


def add(command: argparse.ArgumentParser) -> None:
    add_common(command, device=False)


def run(chosen: argparse.Namespace) -> int:
    infos = enumerate_devices()
    try:
        default, wrong = select_device(None), ""
    except DriverError as error:  # the list is still of use
        default, wrong = None, f"VKDML_DEVICE: {error}"
    rows = [{**asdict(info), "is_default": info == default} for info in infos]
    if chosen.json:
        print_json(rows)
        return 0
    for info in infos:
        least, most = info.min_subgroup_size, info.max_subgroup_size
        facts = {"driver": f"{info.driver} {info.driver_version}", "Vulkan": info.api_version,
                 "units": info.cores if info.is_cpu else info.compute_units or "?",
                 "subgroup": f"{least} to {most}" if least < most else info.subgroup_size,
                 "workgroup": info.max_workgroup_invocations, "shared memory": _size(info.max_shared_memory),
                 "largest tensor": _size(info.max_storage_buffer_range), "memory": _size(info.memory),
                 "copies": "no" if info.unified_memory else "yes"}
        print(f"{'*' if info == default else ' '} {info.index}  {info.name} ({info.type})")
        print(textwrap.fill("; ".join(f"{name} {value}".replace(" ", _JOINED) for name, value in facts.items()), _WIDTH,
                            initial_indent=_INDENT, subsequent_indent=_INDENT).replace(_JOINED, " "))
    if wrong:
        print(wrong)
    if all(info.is_cpu for info in infos):
        print("No GPU was found: these are drivers for the CPU.")
    print("* is the default; VKDML_DEVICE chooses another. copies: whether tensors are\n"
          "copied to it. units: a processor's cores, or what a GPU's driver calls compute\n"
          "units, SMs or cores (?: it does not say).")
    if any(profile(info).tuned for info in infos):
        mode = system.setting("devices", "VKDML_TUNING", tuner.MODES) or tuner.ON
        print(textwrap.fill(f"Tuning of GPUs is {mode}: {_TUNING[mode]} "
                            f"(VKDML_TUNING in the environment: {', '.join(_TUNING)}).", _WIDTH))
        print(f"What was measured is in {choices.folder()}: {choices.count()} files, which may be deleted.")
    print(f"kp {KP_VERSION}")
    return 0


def _size(count: int) -> str:
    """Format a number of bytes in the largest unit that is not above it, or else in KiB."""
    unit, size = next(((unit, size) for unit, size in (("GiB", 2**30), ("MiB", 2**20)) if count >= size), ("KiB", 2**10))
    return f"{count / size:.3g} {unit}"
