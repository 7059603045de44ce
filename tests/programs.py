"""Programs in processes of their own. To import takes most of a short one's time, so a process that has imported forks for each."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

# Opens no device. For each program it reads seconds and a folder that has the program. It ends a program that takes longer, and
# prints the exit code
FORKS = """
import atexit
behind = []  # what a program calls at exit behind vkdml's own handler, as it was registered before
atexit.register(lambda: [call() for call in behind])
import gc, os, resource, signal, sys, threading, time
import numpy as np
import vkdml
from vkdml.engine.vulkan import gpu as devices
{imports}

for line in sys.stdin:
    seconds, folder = line.split()
    child = os.fork()
    if child == 0:
        break
    begin = time.monotonic()
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(0.002)
        if time.monotonic() - begin > float(seconds):
            os.killpg(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(ended[1]), flush=True)
else:
    sys.exit()
os.setsid()
for stream in (1, 2):
    os.dup2(os.open(f"{{folder}}/{{stream}}", os.O_CREAT | os.O_WRONLY), stream)
os.environ.clear()
os.environ.update(eval(open(f"{{folder}}/environment").read()))
exec(open(f"{{folder}}/program").read())
"""


PROCESSES: dict[str, subprocess.Popen[str]] = {}  # by what they import, until the tests end


def run(program, ends_with=0, imports="", seconds=100, unless=""):
    """What a program prints, which has the exit code that it should, and prints no errors but lines with `unless`.

    seconds: far more than it takes.
    """
    if imports not in PROCESSES:
        PROCESSES[imports] = subprocess.Popen(
            [sys.executable, "-u", "-W", "ignore", "-c", FORKS.format(imports=imports)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=Path(__file__).parents[1],
            env={name: value for name, value in os.environ.items() if name != "VKDML_LOG"})  # read as vkdml is imported
    with TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "program").write_text(program)
        (path / "environment").write_text(repr(dict(os.environ)))
        PROCESSES[imports].stdin.write(f"{seconds} {folder}\n")
        code = int(PROCESSES[imports].stdout.readline())
        errors = [line for line in (path / "2").read_text().splitlines() if not unless or unless not in line]
        assert (code, errors) == (ends_with, []), (code, *errors)
        return (path / "1").read_text()
