"""Several libraries in one process, which take turns so that the GPU does not rest. Ways to call them are named LIBRARY/WAY."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vkdml_lab.bench.adapters import load
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.runner import Runner
from vkdml_lab.processes import UnavailableError


class Library:
    """Holds the libraries. libraries: adapter and settings by name. description: each one's, or why it is missing."""

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
