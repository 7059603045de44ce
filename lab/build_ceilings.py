"""A build_py command for setuptools that also compiles the shaders of bench/ceilings.py into the wheel."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools.command.build_py import build_py

SHADERS = "vkdml_lab/bench/shaders"
CHAINS = (2, 3, 4, 8)  # each gets its own variant, as loops are unrolled
VARIANTS = {**{name: (name, {}) for name in ("empty", "read")},
            **{f"fma-{chains}": ("fma", {"CHAINS": chains}) for chains in CHAINS}}


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # then they are compiled when used
            return
        for target, (name, macros) in self._compiled().items():
            self.mkpath(str(target.parent))
            given = [f"-D{macro}={value}" for macro, value in macros.items()]
            subprocess.run(["glslangValidator", "-V", "--quiet", "--target-env", "vulkan1.1", *given,
                            Path(__file__).parent / SHADERS / f"{name}.comp", "-o", target], check=True)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *map(str, {} if self.editable_mode else self._compiled())]

    def _compiled(self) -> dict[Path, tuple[str, dict[str, int]]]:
        """Return a dict from the path of each compiled shader to its source's name and the macros to compile it with."""
        return {Path(self.build_lib, SHADERS, f"{variant}.spv"): made for variant, made in VARIANTS.items()}
