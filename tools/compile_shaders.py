"""Compile shaders/ to SPIR-V with glslangValidator.

    python tools/compile_shaders.py DIRECTORY

Every shaders/PATH.comp becomes DIRECTORY/PATH.spv, and DIRECTORY/checksums.txt says what is in each, as sha256sum does. The
package's build calls this; the tests compare its result with what is installed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

SHADERS = Path(__file__).resolve().parent.parent / "shaders"


def kernels() -> list[str]:
    """The paths of all kernels in shaders/, without suffix: their names."""
    return sorted(str(source.relative_to(SHADERS).with_suffix("")) for source in SHADERS.rglob("*.comp"))


def compile_shaders(directory: Path) -> None:
    """Write every kernel's SPIR-V, and their checksums.

    Raises SystemExit with one line when glslangValidator is missing or refuses a shader.
    """
    _compiler()  # missing? Then nothing is removed
    for stale in directory.rglob("*.spv"):
        stale.unlink()
    checksums = []
    for kernel in kernels():
        target = directory / f"{kernel}.spv"
        target.parent.mkdir(parents=True, exist_ok=True)
        compile_source(SHADERS / f"{kernel}.comp", target)
        checksums.append(f"{hashlib.sha256(target.read_bytes()).hexdigest()}  {kernel}.spv\n")
    (directory / "checksums.txt").write_text("".join(checksums))


def compile_source(source: Path, target: Path) -> None:
    """Compile one shader. Raises SystemExit with one line when glslangValidator is missing or refuses it."""
    command = [_compiler(), "-V", "--quiet", "--target-env", "vulkan1.1", str(source), "-o", str(target)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{source} does not compile: {result.stdout.strip() or result.stderr.strip()}")


def _compiler() -> str:
    glslang = shutil.which("glslangValidator")
    if glslang is None:
        raise SystemExit("glslangValidator is missing; install it, on Debian: apt-get install glslang-tools")
    return glslang


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    compile_shaders(Path(sys.argv[1]))
