"""setuptools' build_py, which also puts into a wheel, as vkdml/suite, what `vkdml conformance` and `vkdml gpu-report` run.

There it is as in a source tree, the folders `tests`, `tools` and `bench` with modules in them, since they import each other by
those names.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("__init__", "conftest", "describing", "dumping", "guards", "recording", "replay", "support")
SUITE = [*(f"tests/{name}.py" for name in MODULES), "tests/conformance/*.py",
         "tools/__init__.py", "tools/validate.py", "tools/gpu/__init__.py", "tools/gpu/cases.py", "tools/gpu_report/*.py",
         "tools/targets/*.py",
         *(f"bench/{name}.py" for name in ("__init__", "candidates", "cases", "ceilings", "measure", "models", "nodes",
                                           "one_node", "peers", "processes", "runner", "shapes", "targets", "trials",
                                           "worker")),
         "bench/adapters/*.py"]
CEILINGS = "bench/shaders"  # compiled into the wheel, as few of its users have a compiler
CHAINS = (2, 3, 4, 8)  # each has a variant of its own, as unrolling needs
VARIANTS = {**{name: (name, {}) for name in ("barrier", "empty", "read")},
            **{f"fma-{chains}": ("fma", {"CHAINS": chains}) for chains in CHAINS}}


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the source tree has it
            return
        for source, target in self._suite():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))
        for target, (name, macros) in self._ceilings().items():
            self.mkpath(str(target.parent))
            given = [f"-D{macro}={value}" for macro, value in macros.items()]
            subprocess.run(["glslangValidator", "-V", "--quiet", "--target-env", "vulkan1.1", *given,
                            ROOT / CEILINGS / f"{name}.comp", "-o", target], check=True)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        suite = [] if self.editable_mode else [str(target) for target in (*dict(self._suite()).values(), *self._ceilings())]
        return [*super().get_outputs(include_bytecode), *suite]

    def _suite(self) -> list[tuple[Path, Path]]:
        """The suite's files, and where each goes."""
        folder = Path(self.build_lib, "vkdml", "suite")
        return [(source, folder / source.relative_to(ROOT)) for pattern in SUITE for source in sorted(ROOT.glob(pattern))]

    def _ceilings(self) -> dict[Path, tuple[str, dict[str, int]]]:
        """Shaders of bench/ceilings.py by their files, each by its source's name and its macros."""
        return {Path(self.build_lib, "vkdml", "suite", CEILINGS, f"{variant}.spv"): made for variant, made in VARIANTS.items()}
