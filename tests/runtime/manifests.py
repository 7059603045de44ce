"""Drivers that the loader takes for others, as their manifests say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def installed(name, folder=Path("/usr/share/vulkan/icd.d")):
    """The manifest of one of Mesa's drivers: newer versions leave the processor out of its name."""
    found = [path for path in (folder / f"{name}_icd.x86_64.json", folder / f"{name}_icd.json") if path.exists()]
    return found[0] if found else pytest.skip(f"Mesa's driver {name} is not installed")


def cpu_driver(**says):
    """The manifest of Mesa's driver for CPUs, which says this of it."""
    manifest = json.loads(installed("lvp").read_text())
    return {**manifest, "ICD": {**manifest["ICD"], **says}}


def with_manifest(folder, manifest, code, **environment):
    """What a program prints, with the driver of this manifest alone."""
    path = folder / "icd.json"
    path.write_text(json.dumps(manifest))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                           env={**os.environ, "VK_ICD_FILENAMES": str(path), "VK_DRIVER_FILES": str(path), **environment})
    return found.stdout
