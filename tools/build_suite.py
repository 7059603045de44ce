"""setuptools' build_py, which also puts into a wheel, as vkdml/suite, what `vkdml conformance` and `vkdml gpu-report` run.

There it is as in a source tree, the folders `tests`, `tools` and `bench` with modules in them, since they import each other by
those names.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
SUITE = ["tests/__init__.py", "tests/conftest.py", "tests/guards.py", "tests/recording.py", "tests/support.py",
         "tests/conformance/*.py",
         "tools/__init__.py", "tools/validate.py", "tools/gpu/__init__.py", "tools/gpu/cases.py", "tools/gpu_report/*.py",
         *(f"bench/{name}.py" for name in ("__init__", "candidates", "cases", "ceilings", "measure", "models", "peers",
                                           "processes", "runner", "shapes", "trials", "worker")),
         "bench/adapters/*.py", "bench/shaders/*.comp"]


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the source tree has it
            return
        for source, target in self._suite():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        suite = [] if self.editable_mode else [str(target) for _, target in self._suite()]
        return [*super().get_outputs(include_bytecode), *suite]

    def _suite(self) -> list[tuple[Path, Path]]:
        """The suite's files, and where each goes."""
        folder = Path(self.build_lib, "vkdml", "suite")
        return [(source, folder / source.relative_to(ROOT)) for pattern in SUITE for source in sorted(ROOT.glob(pattern))]
