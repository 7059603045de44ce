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

# Variants. lanes: values pass round a subgroup (lib/lanes.glsl). rows: and its invocations hold rows, not units
# (lib/row_lanes.glsl). resident: and recurrent weights stay in private memory (lib/resident.glsl). pairs: float64 as pairs of
# floats (lib/pairs.glsl).
LANES, ROWS, PAIRS = {"_lanes": ["SHUFFLE"]}, {"_rows": ["SHUFFLE", "ROW_LANES"]}, {"_pairs": ["PAIRS"]}
RESIDENT = {"_resident": ["SHUFFLE", "RESIDENT"]}
PLAIN: dict[str, list[str]] = {"": []}

# kernel: (source, macros)
KERNELS: dict[str, tuple[str, list[str]]] = {
    name + suffix: (source, macros + variant)
    for name, source, macros, variants in (
        ("pack", "pack.comp", [], PLAIN | PAIRS),
        ("elementwise", "elementwise.comp", [], PLAIN | PAIRS),
        ("input_projection", "input_projection.comp", [], PLAIN | LANES | ROWS | PAIRS),
        *((f"sequence_{cell}", "sequence.comp", [f"CELL_{cell.upper()}"], PLAIN | LANES | ROWS | RESIDENT | PAIRS)
          for cell in CELLS),
    )
    for suffix, variant in variants.items()
}


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
