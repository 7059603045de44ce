"""What adapters give the worker: a Runner for each way to call a layer, or an error that says what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from vkdml_lab.bench.cases import Case

SETTLING_CALLS, SETTLING_SECONDS = 5, 2.0  # at most
WARMING_SECONDS = 0.5  # a GPU at rest takes some tenths to raise its clocks


Key = TypeVar("Key")


class UnsupportedError(Exception):
    """An adapter cannot say a node in its library's terms. The text says what of it."""


class Runner:
    """One way to call a layer.

    call: takes the initial states, if the case has any. Returns y and the last states, as the library's own objects.
    zeros: makes the states before the first call, as the library's own objects.
    to_numpy: converts the outputs to numpy arrays in ONNX's shapes; not timed.
    calls: of the layer, that one call makes. before: called before each sample, and not timed.
    """

    def __init__(self, case: Case, call: Callable[..., Sequence[Any]], zeros: Callable[[], Sequence[Any]],
                 to_numpy: Callable[[Sequence[Any]], list[np.ndarray]], calls: int = 1,
                 before: Callable[[], object] = lambda: None) -> None:
        self.calls, self.before = calls, before
        self._call = call
        self._zeros = zeros
        self._to_numpy = to_numpy
        self._carried = slice(1, 1 + case.states)
        self.reset()

    def reset(self) -> None:
        self._states: Sequence[Any] = self._zeros()
        self._outputs: Sequence[Any] = ()

    def run(self) -> None:
        self._outputs = self._call(*self._states)
        self._states = self._outputs[self._carried]

    def outputs(self) -> list[np.ndarray]:
        return self._to_numpy(self._outputs)


def most_alike(names: Mapping[Key, str], wanted: str) -> Key:
    """The key of the name with most words of the wanted one, which another library may write otherwise; else the first."""
    words = set(wanted.lower().split())
    return max(names, key=lambda key: len(words & set(names[key].lower().split())))


def zero_arrays(case: Case, dtype: Any = np.float32) -> list[np.ndarray]:
    return [np.zeros(case.state_shape, dtype) for _ in range(case.states)]


def settle(run: Callable[[], object]) -> None:
    """Calls after the first, in which a library may still compile or choose between ways to run."""
    started = time.perf_counter()
    for _ in range(SETTLING_CALLS):
        if time.perf_counter() - started >= SETTLING_SECONDS:
            return
        run()


def warm_up(run: Callable[[], object]) -> None:
    """Call for half a second after the first call, which may compile, so that a GPU's clocks have risen."""
    run()
    started = time.perf_counter()
    while time.perf_counter() - started < WARMING_SECONDS:
        run()
