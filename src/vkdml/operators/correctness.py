"""Checks a device's results: computes each of them again in float64, with a bound on its rounding errors.

Every time step is computed from the state that the device returned for the step before. So no error grows from step to step,
however long or chaotic the sequence is, and the bound holds for any weights. Only an LSTM's c is in no result: it is carried
along, and its error is multiplied by the forget gate at each step.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .activations import MAX_FLOAT32, ParametrizedActivation
from .bounded import Arithmetic, Bounded
from .checks import least_tensor, packed_strides
from .element_types import ElementType
from .plain_problem import OUTPUT, ComputedProblem, MovedProblem, PlainProblem
from .problem import Problem
from .reference import STEPS, direction_weights, initial_states, parts, view

SEQUENCE = "OutputSequenceTensor"

_NUMBERS_AT_ONCE = 2**20  # most numbers of a state in a block of steps, which bounds some twenty arrays


@dataclass(frozen=True)
class _Precision:
    """How accurately devices compute numbers of a type (see Arithmetic). rounding: the relative error of storing a result."""

    unit: float
    rounding: float
    largest: float
    tiny: float = 2.0**-120
    denormal: float = 0.0  # numbers below it are denormal, and may be read as 0
    least: float = 0.0  # the absolute error of storing a result


_MOST_COMPUTED = 1e30  # numbers up to this do not overflow float32 on the way, in activations' factors or when pairs are split
_FLOAT32_UNIT = 2.0**-23  # twice the error of rounding to nearest, which Vulkan does not promise
_PRECISIONS = {
    "float32": _Precision(_FLOAT32_UNIT, 0.0, MAX_FLOAT32),
    "float16": _Precision(_FLOAT32_UNIT, 2.0**-11, 65504.0, denormal=2.0**-14, least=2.0**-25),
    "bfloat16": _Precision(_FLOAT32_UNIT, 2.0**-8, 3.38e38, least=2.0**-120),
    "float64": _Precision(2.0**-45, 0.0, MAX_FLOAT32, tiny=1e-34),
}


@dataclass(frozen=True)
class Difference:
    """An output with wrong elements. wrong: how many. index, found, expected, tolerance: of the worst one."""

    field: str
    wrong: int
    elements: int
    index: tuple[int, ...]
    found: float
    expected: float
    tolerance: float

    def __str__(self) -> str:
        return (f"{self.field}: {self.wrong} of {self.elements} elements are wrong, the worst at {list(self.index)}: found "
                f"{self.found:.9g}, expected {self.expected:.9g} within {self.tolerance:.2g}")


def with_sequence(problem: Problem) -> Problem:
    """Add OutputSequenceTensor to a problem's outputs, as the check needs the state before each step."""
    if problem.has(SEQUENCE):
        return problem
    sizes = problem.steps, problem.directions, problem.batch, problem.loop.words * problem.hidden
    tensor = least_tensor(problem.element.data_type, sizes, packed_strides(sizes), problem.element.itemsize)
    return replace(problem, tensors={**problem.tensors, SEQUENCE: tensor})


def differences(problem: Problem | PlainProblem, memory: Mapping[str, np.ndarray]) -> list[Difference]:
    """List the outputs whose errors exceed the bound. Elements that should be infinite, NaN or too large are never wrong.

    memory: the bytes of all inputs and outputs that the problem has, by field. A recurrent problem has OutputSequenceTensor.
    """
    if isinstance(problem, MovedProblem):
        return _moved(problem, memory)
    arrays = {field: _decoded(problem, field, array) for field, array in memory.items()}
    found = {field: problem.tensor(field).view(arrays[field]) for field in problem.outputs if problem.has(field)}
    with np.errstate(all="ignore"):
        if isinstance(problem, ComputedProblem):
            views = {field: problem.tensor(field).view(array) for field, array in arrays.items()}
            expected = {OUTPUT: problem.expected(views, _arithmetic(problem, problem.terms))}
        else:
            expected = _recurrent(problem, arrays, found[SEQUENCE])
        return [difference for field, array in found.items()
                if (difference := _difference(field, array, expected[field], _PRECISIONS[problem.element.name]))]


def _moved(problem: MovedProblem, memory: Mapping[str, np.ndarray]) -> list[Difference]:
    """Compare the output of an operator that copies elements: all bits must be the same."""
    views = {}
    for field, array in memory.items():
        tensor = problem.tensor(field)
        dtype = np.dtype(tensor.data_type.name.lower())
        if field != problem.checked_input:  # compared as bits, so that a NaN equals itself
            dtype = np.dtype(f"u{problem.element.itemsize}")
        views[field] = tensor.view(array[:tensor.size_of_elements * dtype.itemsize].view(dtype))
    expected = problem.moved(views)
    wrong = np.argwhere(views[OUTPUT] != expected)
    if not len(wrong):
        return []
    index = tuple(int(place) for place in wrong[0])
    found, right = (array[index].reshape(1).view(problem.element.name)[0] for array in (views[OUTPUT], expected))
    return [Difference(OUTPUT, len(wrong), expected.size, index, float(found), float(right), 0.0)]


def _decoded(problem: Problem | PlainProblem, field: str, memory: np.ndarray) -> np.ndarray:
    """Convert a tensor's memory, gaps included, to float64."""
    element = problem.input_element if field in problem.inputs else problem.element
    dtype = {"SequenceLengthsTensor": "uint32"}.get(field, element.name)
    itemsize = element.itemsize if dtype != "uint32" else 4
    elements = memory[:problem.tensor(field).size_of_elements * itemsize]
    if dtype == "bfloat16":  # the upper half of a float32
        return (elements.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return elements.view(dtype).astype(np.float64)


def encoded(numbers: np.ndarray, element: ElementType) -> np.ndarray:
    """Return numbers as the bytes of a type."""
    if element.name == "bfloat16":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return numbers.astype(element.name).view(np.uint8)


def _difference(field: str, found: np.ndarray, expected: Bounded, precision: _Precision) -> Difference | None:
    tolerance = expected.error + precision.rounding * (np.abs(expected.value) + expected.error) + precision.least
    is_known = np.isfinite(tolerance) & (np.abs(expected.value) + tolerance < precision.largest)
    errors = np.abs(found - expected.value)
    is_wrong = is_known & ~(errors <= tolerance)
    if not is_wrong.any():
        return None
    excess = np.where(is_wrong, np.where(np.isfinite(errors), errors / tolerance, np.inf), 0)
    index = tuple(int(place) for place in np.unravel_index(np.argmax(excess), excess.shape))
    return Difference(field, int(is_wrong.sum()), found.size, index, float(found[index]), float(expected.value[index]),
                      float(tolerance[index]))


def _arithmetic(problem: Problem | PlainProblem, terms: int) -> Arithmetic:
    precision = _PRECISIONS[problem.element.name]
    denormal = _PRECISIONS[problem.input_element.name].denormal
    return Arithmetic(precision.unit, precision.tiny, _MOST_COMPUTED, terms, denormal)


def _recurrent(problem: Problem, arrays: Mapping[str, np.ndarray], sequence: np.ndarray) -> dict[str, Bounded]:
    """Compute all outputs of the cell, in DirectML's sizes. sequence: the device's OutputSequenceTensor."""
    steps, rows = np.arange(problem.steps)[:, None], np.arange(problem.batch)
    lengths = view(problem, arrays, "SequenceLengthsTensor", np.full(problem.batch, problem.steps)).reshape(-1).astype(np.int64)
    lengths = np.minimum(lengths, problem.steps)  # as kernels clip lengths that the host has not checked
    arithmetic = _arithmetic(problem, problem.input_size + problem.columns + 4)
    last_states = [field for field in problem.cell.outputs if field != SEQUENCE]
    shapes = [sequence.shape, *[(1, *sequence.shape[1:-1], problem.hidden)] * len(last_states)]
    results = {field: (np.zeros(shape), np.zeros(shape)) for field, shape in zip(problem.cell.outputs, shapes)}
    for direction, reverse in enumerate(problem.reverse):
        first, last = (lengths - 1, np.zeros_like(lengths)) if reverse else (np.zeros_like(lengths), lengths - 1)
        states = _states(problem, arrays, sequence[:, direction], direction, steps == first, arithmetic)
        for result, *words in zip(results[SEQUENCE], *states[:problem.loop.words]):
            result[:, direction] = np.where((steps < lengths)[..., None], np.concatenate(words, -1), 0)
        for field, state in zip(last_states, states[len(states) - len(last_states):]):
            for result, array in zip(results[field], state):
                result[0, direction] = np.where(lengths[:, None] > 0, array[last, rows], 0)
    return {field: Bounded(value, error, arithmetic) for field, (value, error) in results.items()}


def _states(problem: Problem, arrays: Mapping[str, np.ndarray], sequence: np.ndarray, direction: int, is_first: np.ndarray,
            arithmetic: Arithmetic) -> list[tuple[np.ndarray, ...]]:
    """Compute all results of each step, such as h and the LSTM's c, [T, B, H] each: values and errors.

    is_first: [T, B], True at first steps.
    """
    reverse, precision = problem.reverse[direction], _PRECISIONS[problem.element.name]
    x = view(problem, arrays, "InputTensor", np.empty(0))[0]
    initial, *initial_c = (array[direction] for array in initial_states(problem, arrays))
    before = np.where(is_first[..., None], initial, np.roll(sequence, -1 if reverse else 1, 0)[..., :problem.columns])
    rounding = np.where(is_first[..., None], arithmetic.lost(initial), precision.rounding * np.abs(before) + precision.least)
    bounded = replace(problem, activations=tuple(map(_of_bounded, problem.activations)))
    w, r, *vectors = direction_weights(problem, arrays, direction)
    of_weights: Any = functools.partial(STEPS[problem.cell.name], bounded, direction)
    columns_of = [vector[..., None] for vector in vectors]
    nothing = np.empty((problem.steps, 2, problem.batch, 0))
    saved = parts(view(problem, arrays, "SavedTensor", nothing)[:, direction], problem.hidden)
    shape, results = (*before.shape[:2], problem.hidden), list[tuple[np.ndarray, ...]]()
    first_c: Any = arithmetic.read(initial_c[0].T) if initial_c else None
    c = first_c
    at_once = max(1, _NUMBERS_AT_ONCE // before[0].size)
    starts = range(0, problem.steps, at_once)
    for start in reversed(starts) if reverse else starts:
        block = slice(start, start + at_once)
        x_columns = arithmetic.read(_columns(x[block]))
        h_columns = Bounded(_columns(before[block]), _columns(rounding[block]), arithmetic)
        given = [arithmetic.read(_columns(part[block])) for part in saved]
        if c is None:
            _store(results, shape, block, of_weights(w, r, *columns_of)(x_columns, h_columns, *given))
            continue
        # The weights are multiplied by all columns at once; a step then gets slices of columns instead of numbers
        step = of_weights([gate @ x_columns for gate in w], [gate @ h_columns for gate in r], *columns_of)
        places = range(start, min(start + at_once, problem.steps))
        for place in reversed(places) if reverse else places:
            first = is_first[place]
            c = Bounded(np.where(first, first_c.value, c.value), np.where(first, first_c.error, c.error), arithmetic)
            columns = slice((place - start) * problem.batch, (place - start + 1) * problem.batch)
            of_place = step(columns, columns, c, *(part @ columns for part in given))
            c = of_place[-1]
            _store(results, shape, slice(place, place + 1), of_place)
    return results


def _store(results: list[tuple[np.ndarray, ...]], shape: tuple[int, ...], steps: slice, states: Sequence[Bounded]) -> None:
    if not results:
        results += [(np.empty(shape), np.empty(shape)) for _ in states]
    for (values, errors), state in zip(results, states):
        values[steps] = state.value.T.reshape(values[steps].shape)
        errors[steps] = state.error.T.reshape(errors[steps].shape)


def _columns(array: np.ndarray) -> np.ndarray:
    """Turn each row of each step into a column."""
    return array.reshape(-1, array.shape[-1]).T


def _of_bounded(entry: ParametrizedActivation) -> ParametrizedActivation:
    """Make an activation that takes Bounded numbers instead of arrays."""
    def function(x: Any, a: float, b: float) -> Any:
        return x.through(entry)

    return replace(entry, activation=replace(entry.activation, function=function))
