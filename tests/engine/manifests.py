"""Drivers that the loader takes for others, as their manifests say."""

import json
import os
import subprocess
import sys

import pytest

from vkdml_lab.gpu.drivers import manifest


def installed(name, *folder):
    """The manifest of one of Mesa's drivers."""
    found = manifest(name, *folder)
    return found if found.exists() else pytest.skip(f"Mesa's driver {name} is not installed")


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
