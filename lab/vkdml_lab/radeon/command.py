"""The command `vkdml radeon COMMAND`, which runs COMMAND, and the processes that COMMAND starts, on the emulated GPU."""

from __future__ import annotations

import argparse
import ctypes
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from vkdml_lab import ROOT
from vkdml_lab.gpu.drivers import FETCHED, LIBRARIES, driver
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.radeon import building
from vkdml_lab.radeon.server import Server

# By GPU: LLVM's name of the chip, and the generation of RDNA. The rx9070 is emulated at the RX 7900 XTX's size
CHIPS = {"rx7900xtx": ("gfx1100", 3), "rx6900xt": ("gfx1030", 2), "rx9070": ("gfx1201", 4)}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", choices=tuple(CHIPS), default="rx7900xtx", help="which GPU (rx7900xtx)")
    parser.add_argument("--drivers", type=Path, default=FETCHED, help="folder that gpu/fetch made")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND", help="command to run, such as python script.py")


def run(arguments: argparse.Namespace) -> int:
    """Run the given command. Returns its exit code, 1 if it succeeded but the emulator found faults, or 2 if nothing ran."""
    if not arguments.argv:
        print("radeon: no command: say what to run, such as `vkdml radeon vkdml devices`", file=sys.stderr)
        return 2
    fetch = [ROOT / "lab/vkdml_lab/gpu/fetch", arguments.drivers]
    if not (arguments.drivers / "done").exists():
        print("radeon: no drivers are here. Fetch 0.6 GB, in some five minutes? [y/N] ", end="", file=sys.stderr, flush=True)
        is_wanted = sys.stdin.isatty() and input().strip().lower() in ("y", "yes")
        if not is_wanted or subprocess.run(fetch).returncode:
            print(f"radeon: {arguments.drivers} has no drivers: {' '.join(map(str, fetch))} fetches them", file=sys.stderr)
            return 2
    program = Path(arguments.argv[0])
    if len(program.parts) > 1:
        if Path(os.path.abspath(program)).parent == Path(sys.executable).parent:
            arguments.argv[0] = program.name  # PATH then finds it in the environment with the driver's C library
        elif program.resolve().name.startswith("python"):
            print(f"radeon: {program} has another C library than the driver: say python, which is {sys.executable}",
                  file=sys.stderr)
            return 2
    chip, rdna = CHIPS[arguments.gpu]
    gpu, folder = GPUS["rx7900xtx" if rdna == 4 else arguments.gpu], arguments.drivers.resolve() / "radeon"
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    found = driver(gpu, arguments.drivers, folder)
    python = found.virtual_environment(folder / "venv")
    shim = found.environment.pop("LD_PRELOAD")
    if sys.executable != str(python):  # this process loads LLVM, which needs the driver's C library
        again = ["--gpu", arguments.gpu, "--drivers", str(arguments.drivers), *arguments.argv]
        os.execve(python, [str(python), "-m", "vkdml", "radeon", *again], found.environment)
    name, prctl = f"vkdml-radeon-{secrets.token_hex(8)}", ctypes.CDLL(None).prctl
    libraries = arguments.drivers.resolve() / gpu.suite / LIBRARIES
    server = Server(name, chip, libraries, folder / "programs")
    inside = found.environment | {
        "LD_PRELOAD": f"{building.build(folder)}:{shim}", "VKDML_RADEON": name, "VKDML_RADEON_RDNA": str(rdna),
        "PATH": f"{python.parent}:{os.environ['PATH']}", "VKDML_SELFTEST": os.environ.get("VKDML_SELFTEST", "off")}
    code = subprocess.run(arguments.argv, env=inside, preexec_fn=lambda: prctl(_DIE_WITH_PARENT, signal.SIGKILL)).returncode
    print(server.summary(), file=sys.stderr)
    return code or int(not server.is_clean())
