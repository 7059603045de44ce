"""`vkdml radeon`: runs a command on the emulated GPU, with all processes that it starts."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from vkdml_lab import ROOT
from vkdml_lab.gpu.drivers import FETCHED, LIBRARIES, Driver, driver
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.radeon import building
from vkdml_lab.radeon.server import Server, listen

_GPUS = ("rx7900xtx", "rx6900xt")


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--gpu", choices=_GPUS, default="rx7900xtx", help="which GPU (rx7900xtx)")
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="the folder that gpu/fetch made")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND", help="such as python script.py, or pytest tests")


def run(arguments: argparse.Namespace) -> int:
    """The command's exit code, or 1 where something was found beside it."""
    if not arguments.argv:
        print("radeon: no command: say what to run, such as `vkdml radeon vkdml devices`", file=sys.stderr)
        return 2
    if not (arguments.drivers / "done").exists():
        fetched = subprocess.run([ROOT / "lab/vkdml_lab/gpu/fetch", arguments.drivers])
        if fetched.returncode:
            print(f"radeon: {arguments.drivers} has no drivers, and they cannot be fetched", file=sys.stderr)
            return fetched.returncode
    folder = arguments.drivers.resolve() / "radeon"
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    gpu = GPUS[arguments.gpu]
    found = driver(gpu, arguments.drivers, folder)
    python = _virtual_environment(found, folder / "venv")
    shim = found.environment.pop("LD_PRELOAD")
    if sys.executable != str(python):  # LLVM needs the driver's C library, too
        again = ["--gpu", arguments.gpu, "--drivers", str(arguments.drivers), *arguments.argv]
        os.execve(python, [str(python), "-m", "vkdml", "radeon", *again], found.environment)
    libraries = arguments.drivers.resolve() / gpu.suite / LIBRARIES
    state = Server(found.environment["AMDGPU_GPU_ID"], libraries, folder / "programs")
    with tempfile.TemporaryDirectory(prefix="vkdml-radeon-") as temporary:
        path = Path(temporary, "socket")
        listen(state, path)
        inside = found.environment | {"LD_PRELOAD": f"{building.build(folder)}:{shim}", "VKDML_RADEON": str(path),
                                      "PATH": f"{python.parent}:{os.environ['PATH']}", "VKDML_SELFTEST": os.environ.get("VKDML_SELFTEST", "off")}
        code = subprocess.run(arguments.argv, env=inside).returncode
    print("\n".join(state.summary()), file=sys.stderr)
    return code or int(not state.is_clean())


def _virtual_environment(found: Driver, folder: Path) -> Path:
    """A virtual environment like this one, whose Python runs with the driver's C library; that Python."""
    script = folder / "bin" / "python"
    if sys.executable == str(script):
        return script
    real = Path(sys.executable).resolve()
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    if not (folder / "lib").exists() and sys.prefix != sys.base_prefix:
        (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = {str(sys.prefix == sys.base_prefix).lower()}\n")
    loader, *options = found.prefix
    texts = {"python": f'{loader} --argv0 "$0" {" ".join(options)} {real}'}
    for path in Path(sys.prefix, "bin").iterdir():  # pytest, vkdml, ...
        if path.is_file() and path.read_bytes()[:100].startswith(f"#!{sys.prefix}/bin/python".encode()):
            texts[path.name] = f'"{script}" "{path}"'
    for name, text in texts.items():
        (script.parent / name).write_text(f'#!/bin/sh\nexec {text} "$@"\n')
        (script.parent / name).chmod(0o755)
    return script
