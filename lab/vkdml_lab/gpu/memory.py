"""What memory, queues and features the drivers of real GPUs offer, and which of them are taken, on a machine without a GPU.

    python -m vkdml_lab.gpu.memory [--gpus NAME ...] [--drivers DIR]

Needs the drivers that `lab/vkdml_lab/gpu/fetch .gpu-drivers` makes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from vkdml_lab.gpu.drivers import FETCHED, driver
from vkdml_lab.gpu.gpus import GPUS, Gpu
from vkdml_lab.reports import table

_ASK = """
import json
from vkdml_lab.internals import select_device
from vkdml_lab.facts import device_facts, memory_types, queue_families
info = select_device(0)
print(json.dumps([memory_types(info), queue_families(info), device_facts(info)]))
"""


def ask(gpu: Gpu, drivers: Path | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """The memory types, queue families and facts of a GPU, by a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        found = driver(gpu, drivers, Path(temporary))
        run = subprocess.run([*found.python(), "-c", _ASK], env=found.environment, text=True, capture_output=True)
    if run.returncode:
        raise RuntimeError(f"{gpu.name}: the driver does not load: {run.stderr.strip()[-500:]}")
    memory, families, facts = json.loads(run.stdout.splitlines()[-1])
    return memory, families, facts


def row(gpu: Gpu, drivers: Path | None) -> dict[str, Any]:
    """A row of the table. Drivers that make up a GPU without memory have none to take."""
    memory, families, facts = ask(gpu, drivers)
    types = {use: next((f"{one['type']}: {_flags(one)}" for one in memory if use in one["taken"]), "")
             for use in ("host", "device")}
    return {"GPU": gpu.name, **types, "queues": next(f"{one['family']}: {_flags(one)}" for one in families if one["taken"]),
            "subgroups": "{} to {}".format(*facts["subgroup sizes"]),
            **{name: "yes" if facts[name] else "no" for name in ("subgroup-size control", "16-bit storage", "float16")},
            "cooperative matrices": len(facts["cooperative matrices"])}


def _flags(thing: dict[str, Any]) -> str:
    return " ".join(thing["flags"]).lower()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.gpu.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", nargs="+", choices=GPUS, default=list(GPUS), metavar="NAME", help=" ".join(GPUS))
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="what lab/vkdml_lab/gpu/fetch made (.gpu-drivers)")
    arguments = parser.parse_args()
    print(table(row(GPUS[name], arguments.drivers) for name in arguments.gpus))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
