"""The process of one library, started by bench/processes.py: python -m vkdml_lab.bench.worker DESCRIPTOR_OF_PIPE"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vkdml_lab.bench.adapters import load
from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.nodes import Node
from vkdml_lab.bench.runner import Runner, UnsupportedError, settle, warm_up
from vkdml_lab.processes import serve

SAMPLE_SECONDS = 0.02  # a sample repeats calls for this long
TOO_SLOW_SECONDS = 20.0  # a slower first call is the only one, as compiling is then a small part of it


class LibraryWorker:
    """Answers commands about one library. Each public method is a command."""

    def open(self, adapter: str, settings: Mapping[str, Any]) -> dict[str, str]:
        """Load a library by its adapter (adapters/__init__.py). Returns the library's version and device, by name."""
        self._library = load(adapter, settings)
        description: dict[str, str] = self._library.description
        return description

    def prepare(self, case: Case) -> list[str]:
        """Build a case's layer. Returns the names of the ways to call it. Some ways are built only when they are first used."""
        self._case = case
        self._runners: dict[str, Runner | Callable[[], Runner]] = self._library.prepare(case)
        return list(self._runners)

    def compute(self, node: Node) -> dict[str, np.ndarray] | str:
        """Return a node's outputs by name, or a text that says what the library cannot express."""
        try:
            outputs: dict[str, np.ndarray] = self._library.compute(node)
        except UnsupportedError as error:
            return str(error)
        return outputs

    def code(self, node: Node) -> tuple[str, str]:
        """Return a program that prints a node's outputs by the library, in two texts: what all programs share, and the rest."""
        return self._library.setup, self._library.code(node)

    def warm_up(self, way: str) -> dict[str, Any]:
        """Make calls. Returns "first" and "call" (seconds of the first and a later one) and the last checked "outputs"."""
        runner = self._runner(way)
        runner.reset()
        first = self.sample(way, 1)
        for _ in range(self._case.checked_calls - 1):
            runner.run()
        outputs = runner.outputs()
        shapes = [output.shape for output in outputs]
        if shapes != self._case.output_shapes:
            raise ValueError(f"outputs of shapes {shapes}, not {self._case.output_shapes}")
        return {"first": first, "call": first if first > TOO_SLOW_SECONDS else self._lengthen(way), "outputs": outputs}

    def _lengthen(self, way: str) -> float:
        """Double the number of calls until they take SAMPLE_SECONDS. Returns the mean seconds of a call."""
        settle(self._runner(way).run)
        calls = 1
        while (seconds := self.sample(way, calls)) * calls < SAMPLE_SECONDS:
            calls *= 2
        return seconds

    def measure(self, *arguments: Any) -> dict[str, Any]:
        """Return what the library itself measures, such as the limits of a device."""
        measured: dict[str, Any] = self._library.measure(*arguments)
        return measured

    def busy(self, way: str) -> None:
        """Make calls for half a second, so that a GPU raises its clocks."""
        warm_up(self._runner(way).run)

    def sample(self, way: str, calls: int) -> float:
        """Time about `calls` calls together. Returns the mean seconds of a call."""
        runner = self._runner(way)
        runs = max(1, calls // runner.calls)
        runner.before()
        started = time.perf_counter()
        for _ in range(runs):
            runner.run()
        return (time.perf_counter() - started) / (runs * runner.calls)

    def _runner(self, way: str) -> Runner:
        made = self._runners[way]
        if not isinstance(made, Runner):
            made = self._runners[way] = made()
        return made


if __name__ == "__main__":
    serve(LibraryWorker(), sys.argv[1])
