"""setuptools' build_py, which also puts the conformance suite into a wheel, as vkdml/suite.

There it is as in a source tree, the folder `tests` with its modules in it, since they import each other by that name.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("__init__", "conftest", "describing", "dumping", "guards", "recording", "replay", "support")
SUITE = [*(f"tests/{name}.py" for name in MODULES), "tests/conformance/*.py"]


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
