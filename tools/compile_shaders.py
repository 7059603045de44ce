"""Compile shaders/ to SPIR-V with glslangValidator.

    python tools/compile_shaders.py DIRECTORY

Each shaders/PATH.comp becomes DIRECTORY/PATH.spv. A file with CELL in its name is a template for a kernel of each cell in
src/vkdml/operators/cells.py, whose name replaces CELL in path and text. A file with STORAGE in its text gives two kernels: with
`words`, and, as DIRECTORY/halves/PATH.spv, with `halves` in its place. DIRECTORY/checksums.txt lists the files, as sha256sum
does. DIRECTORY/sources.txt lists the sources in the same way, below a remedy: vkdml refuses its kernels if a source changed.
The package's build runs this, and tests compare its result with the installed files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHADERS = ROOT / "shaders"
CELL, STORAGE = "CELL", "STORAGE"  # the placeholders
ROOMS = {"words": "", "halves": "halves/"}  # folders of kernels, by the text for STORAGE


def cells() -> list[str]:
    """Return the names of cells, read without importing the package."""
    table = (ROOT / "src/vkdml/operators/cells.py").read_text()
    return [name.lower() for name in re.findall(r'^\w+ = Cell\(\s*name="(\w+)"', table, re.MULTILINE)]


def has(cell: str, name: str, storage: str | None) -> bool:
    """Whether a cell needs a kernel. Gradients are in float32, and need none that keep weights in private memory."""
    is_forward = (SHADERS / f"float64/{cell}.glsl").exists()
    return is_forward or not (storage == "halves" or name.startswith(("float64", "cpu/CELL_resident")))


def sources(shaders: Path) -> dict[str, tuple[Path, dict[str, str]]]:
    """Return by kernel (its path without suffix) its source file and the texts for the placeholders."""
    found: dict[str, tuple[Path, dict[str, str]]] = {}
    for source in sorted(shaders.rglob("*.comp")):
        name, text = str(source.relative_to(shaders).with_suffix("")), source.read_text()
        fillings = {CELL: cells() if CELL in name else [], STORAGE: ROOMS if STORAGE in text else []}
        holes = [hole for hole, filling in fillings.items() if filling]
        for values in product(*(fillings[hole] for hole in holes)):
            filled = dict(zip(holes, values))
            if CELL in filled and not has(filled[CELL], name, filled.get(STORAGE)):
                continue
            found[ROOMS.get(filled.get(STORAGE, ""), "") + name.replace(CELL, filled.get(CELL, ""))] = source, filled
    return dict(sorted(found.items()))


def kernels() -> list[str]:
    """Return the names of all kernels."""
    return list(sources(SHADERS))


def sources_text(directory: Path) -> str:
    """Return the text of sources.txt. Paths in it are relative to the directory."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {os.path.relpath(path, directory)}\n"
             for path in sorted([*SHADERS.rglob("*.comp"), *SHADERS.rglob("*.glsl")])]
    return "".join([f"run: python tools/compile_shaders.py {os.path.relpath(directory, ROOT)}\n", *lines])


def compile_shaders(directory: Path) -> None:
    """Compile all kernels, and write checksums of kernels and sources. Replaces each file at once, as others may read it.

    Raises SystemExit with one line if glslangValidator is missing or refuses a shader. Then no file changes.
    """
    _compiler()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        made, checksums, read = Path(folder), [], sources_text(directory)
        for kernel, (source, holes) in sources(SHADERS).items():
            target = made / f"{kernel}.spv"
            target.parent.mkdir(parents=True, exist_ok=True)
            compile_source(source, target, holes)
            checksums.append(f"{hashlib.sha256(target.read_bytes()).hexdigest()}  {kernel}.spv\n")
        (made / "checksums.txt").write_text("".join(checksums))
        (made / "sources.txt").write_text(read)
        names = {path.relative_to(made) for path in made.rglob("*.*")}
        for name in names:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).replace(directory / name)
    for stale in directory.rglob("*.spv"):
        if stale.relative_to(directory) not in names:
            stale.unlink()


def compile_source(source: Path, target: Path, holes: Mapping[str, str] = {}) -> None:
    """Compile one shader. Raises SystemExit with one line if glslangValidator is missing or refuses it."""
    error = refusal(source, target, holes)
    if error:
        raise SystemExit(f"{source}{''.join(f' with {value}' for value in holes.values())} does not compile: {error}")


def mistaken(folder: Path, file: str, old: str, new: str, kernels: Callable[[str], bool]) -> dict[str, bytes]:
    """Compile kernels from shaders in which `old` became `new` in one file. The changed shaders are copied to the folder."""
    shaders = folder / "shaders"
    shutil.copytree(SHADERS, shaders)
    text = (shaders / file).read_text()
    assert old in text, f"{file} has no {old!r}"
    (shaders / file).write_text(text.replace(old, new))
    found = {}
    for kernel, (source, holes) in sources(shaders).items():
        if kernels(kernel):
            compile_source(source, folder / "wrong.spv", holes)
            found[kernel] = (folder / "wrong.spv").read_bytes()
    return found


def refusal(source: Path, target: Path, holes: Mapping[str, str]) -> str:
    """Return glslangValidator's errors about a shader, or "" after compiling it."""
    command = [_compiler(), "-V", "--quiet", "--target-env", "vulkan1.1", "--stdin", "-S", "comp", "-o", str(target.resolve())]
    text = source.read_text()
    for hole, value in holes.items():
        text = text.replace(hole, value)
    result = subprocess.run(command, input=text, cwd=source.parent, capture_output=True, text=True)
    return (result.stdout.strip() or result.stderr.strip()) if result.returncode else ""


def _compiler() -> str:
    glslang = shutil.which("glslangValidator")
    if glslang is None:
        raise SystemExit("glslangValidator is missing; install it, on Debian: apt-get install glslang-tools")
    return glslang


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    compile_shaders(Path(sys.argv[1]))
