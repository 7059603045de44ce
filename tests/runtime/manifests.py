"""Drivers that the loader takes for others, as their manifests say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_CPU_DRIVER = Path("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json")


def cpu_driver(**says):
    """The manifest of Mesa's driver for CPUs, which says this of it."""
    if not _CPU_DRIVER.exists():
        pytest.skip("Mesa's driver for CPUs is not installed")
    manifest = json.loads(_CPU_DRIVER.read_text())
    return {**manifest, "ICD": {**manifest["ICD"], **says}}


def with_manifest(folder, manifest, code, **environment):
    """What a program prints, with the driver of this manifest alone."""
    path = folder / "icd.json"
    path.write_text(json.dumps(manifest))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                           env={**os.environ, "VK_ICD_FILENAMES": str(path), "VK_DRIVER_FILES": str(path), **environment})
    return found.stdout
