"""Runner: a way to call a layer, made by adapters for the worker (bench/worker.py). Also functions that adapters share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from vkdml_lab.bench.cases import Case

SETTLING_CALLS, SETTLING_SECONDS = 5, 2.0  # limits of `settle`
WARMING_SECONDS = 0.5  # a GPU at rest raises its clocks within some tenths


Key = TypeVar("Key")


class UnsupportedError(Exception):
    """A library cannot express something in a node. The text says what."""


class Runner:
    """One way to call a layer, such as from numpy to numpy.

    call: takes the initial states, if the case has any. Returns y and the last states, as the library's own objects.
    zeros: returns the initial states of the first call, as the library's own objects.
    to_numpy: converts the outputs to numpy arrays in ONNX's shapes; not timed.
    calls: how often one call runs the layer. before: called before each sample, and not timed.
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
    """Return the first key whose name shares the most words with `wanted`. Libraries write a device's name differently."""
    words = set(wanted.lower().split())
    return max(names, key=lambda key: len(words & set(names[key].lower().split())))


def zero_arrays(case: Case, dtype: Any = np.float32) -> list[np.ndarray]:
    return [np.zeros(case.state_shape, dtype) for _ in range(case.states)]


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def settle(run: Callable[[], object]) -> None:
    """Call a function up to 5 times in 2 seconds, as a library may still compile or compare kernels after its first call."""
    started = time.perf_counter()
    for _ in range(SETTLING_CALLS):
        if time.perf_counter() - started >= SETTLING_SECONDS:
            return
        run()


def warm_up(run: Callable[[], object]) -> None:
    """Call a function for half a second, so that a GPU raises its clocks."""
    run()
    started = time.perf_counter()
    while time.perf_counter() - started < WARMING_SECONDS:
        run()
