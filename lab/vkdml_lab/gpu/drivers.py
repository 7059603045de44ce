"""Runs programs with a real GPU's Vulkan driver, but without the GPU. The driver is in a folder that gpu/fetch made. A library
in the process, the shim, answers in place of the GPU's Linux kernel driver.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from vkdml_lab import ROOT
from vkdml_lab.gpu.gpus import Gpu

FETCHED = ROOT / ".gpu-drivers"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def manifest(name: str, folder: Path = Path("/usr/share/vulkan/icd.d")) -> Path:
    """Return the path of the manifest (JSON) of Mesa's driver `name`. Old versions of Mesa put the processor in its name."""
    return max(folder / f"{name}_icd.x86_64.json", folder / f"{name}_icd.json", key=Path.exists)


INSTALLED = manifest("radeon")  # the driver for GPUs whose suite is ""


@dataclass(frozen=True)
class Driver:
    """How to run commands with a driver. prefix: words to put before a command. environment: all variables of the command."""

    prefix: list[str]
    environment: dict[str, str]

    def python(self) -> list[str]:
        """Return the command that runs this Python with the driver. It names no link: ld.so would seek libraries beside it."""
        return [*self.prefix, os.path.realpath(sys.executable)]

    def virtual_environment(self, folder: Path) -> Path:
        """Make a virtual environment like this one, whose programs run with the driver. Returns the path of its Python."""
        script, real = folder / "bin" / "python", Path(sys.executable).resolve()
        if sys.executable == str(script):
            return script
        script.parent.mkdir(parents=True, exist_ok=True)
        is_system = sys.prefix == sys.base_prefix
        if not is_system and not (folder / "lib").exists():
            (folder / "lib").unlink(missing_ok=True)  # left by an environment that is gone
            (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
        (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = {str(is_system).lower()}\n")
        names = "python", "python3", "python{}.{}".format(*sys.version_info)
        texts = dict.fromkeys(names, f'{self.prefix[0]} --argv0 "{script}" {" ".join(self.prefix[1:])} {real}')
        for path in Path(sys.prefix, "bin").iterdir():  # pytest, vkdml, ...
            if path.is_file() and path.read_bytes().startswith(f"#!{sys.prefix}/bin/python".encode()):
                texts[path.name] = f'"{script}" "{path}"'
        for name, text in texts.items():
            new = script.parent / f"{name}.{os.getpid()}"  # others may run the old one
            new.write_text(f'#!/bin/sh\nexec {text} "$@"\n')
            new.chmod(0o755)
            new.rename(script.parent / name)
        return script


def driver(gpu: Gpu, folder: Path | None, temporary: Path) -> Driver:
    """Return how to run commands with a GPU's driver. folder: made by gpu/fetch. temporary: folder for the manifest."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VK_", "LD_"))}
    environment = kept | gpu.environment | {"MESA_SHADER_CACHE_DISABLE": "true", "PYTHONPATH": python_path(),
                                            "VKDML_SELFTEST": "off"}  # nothing is computed
    if not gpu.suite:
        return Driver([], environment | _icd(INSTALLED))
    assert folder is not None, f"{gpu.name} needs fetched drivers"
    libraries = folder.resolve() / gpu.suite / LIBRARIES
    icd = temporary / "icd.json"
    icd.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {
        "library_path": str(libraries / f"libvulkan_{gpu.driver}.so"), "api_version": "1.3.0"}}))
    if gpu.shim:
        environment["LD_PRELOAD"] = str(folder.resolve() / "shims" / f"lib{gpu.shim}_noop_drm_shim.so")
    # The drivers need a newer C library, so the whole process must use it. This Python's own library comes first, as the
    # system's may be of another Python
    paths = f"{libraries}:{sysconfig.get_config_var('LIBDIR')}:/{LIBRARIES}"
    return Driver([str(libraries / "ld-linux-x86-64.so.2"), "--library-path", paths], environment | _icd(icd))


def python_path() -> str:
    """Return a value for PYTHONPATH: this process's folders of modules, for a Python outside of the virtual environment."""
    return os.pathsep.join([str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)])


def _icd(path: Path) -> dict[str, str]:
    return {"VK_ICD_FILENAMES": str(path), "VK_DRIVER_FILES": str(path)}
