"""Compile shaders/ to SPIR-V with glslangValidator.

    python tools/compile_shaders.py DIRECTORY

Every kernel in KERNELS becomes DIRECTORY/NAME.spv. The package's build calls this; the tests compare its result with what
is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SHADERS = Path(__file__).resolve().parent.parent / "shaders"
CELLS = ("gru", "lstm", "rnn")

# kernel: (source, macros). The *_lanes kernels pass values round a subgroup instead of loading them (lib/lanes.glsl).
KERNELS: dict[str, tuple[str, list[str]]] = {"pack": ("pack.comp", [])}
VARIANTS: dict[str, list[str]] = {"": [], "_lanes": ["SHUFFLE"]}
for suffix, macros in VARIANTS.items():
    KERNELS["input_projection" + suffix] = ("input_projection.comp", macros)
    for cell in CELLS:
        KERNELS[f"sequence_{cell}{suffix}"] = ("sequence.comp", [f"CELL_{cell.upper()}", *macros])


def compile_shaders(directory: Path) -> None:
    """Write every kernel's SPIR-V. Raises SystemExit with one line when glslangValidator is missing or refuses a shader."""
    glslang = shutil.which("glslangValidator")
    if glslang is None:
        raise SystemExit("glslangValidator is missing; install it, on Debian: apt-get install glslang-tools")
    directory.mkdir(parents=True, exist_ok=True)
    for stale in directory.glob("*.spv"):
        stale.unlink()
    for kernel, (source, macros) in KERNELS.items():
        command = [glslang, "-V", "--quiet", "--target-env", "vulkan1.1", f"-I{SHADERS}", *[f"-D{macro}" for macro in macros],
                   str(SHADERS / source), "-o", str(directory / f"{kernel}.spv")]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise SystemExit(f"{source} does not compile as {kernel}: {result.stdout.strip() or result.stderr.strip()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    compile_shaders(Path(sys.argv[1]))
