"""The adapter for several libraries in one process, so that the GPU does not rest. It names ways to call them LIBRARY/WAY."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vkdml_lab.bench.adapters import load
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.runner import Runner
from vkdml_lab.processes import UnavailableError


class Library:
    """Several libraries. libraries: adapter and settings by name. description: a library's, or why it is missing, by name."""

    def __init__(self, libraries: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
        self._libraries: dict[str, Any] = {}
        self.description: dict[str, dict[str, str]] = {}
        for name, (adapter, settings) in libraries.items():
            try:
                self._libraries[name] = load(adapter, settings)
                self.description[name] = self._libraries[name].description
            except (ImportError, UnavailableError) as error:
                self.description[name] = {"missing": str(error)}

    def prepare(self, case: Case) -> dict[str, Callable[[], Runner]]:
        return {f"{name}/{way}": make for name, library in self._libraries.items() for way, make in library.ways(case).items()}
