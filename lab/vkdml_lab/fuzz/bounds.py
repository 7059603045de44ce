"""Computes how far results may be from the float64 reference: as far as the problem itself amplifies rounding errors.

No fixed tolerance fits, as a recurrence that grows multiplies errors, and one that forgets loses them. So the problem is
computed in float64 several times. In each copy, everything that a kernel rounds is off by a random amount of the size of that
rounding: inputs, weights, states, and activations' arguments and results. The allowed distance is MARGIN times the largest
distance of a copy from the reference.

A kernel may sum the n terms of a product in any order, and rounds each partial sum. This error is taken to be as large as one
rounding of the sum of the terms' sizes. Random changes of the weights by up to sqrt(n) roundings have the same effect.

Anything is allowed where no bound can be given: beyond float32's range, and where a value is so close to a step of an
activation (such as ThresholdedRelu's) that rounding decides the side. `Allowed.is_blind` detects such problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from vkdml.operators import reference
from vkdml.operators.activations import ParametrizedActivation
from vkdml.operators.element_types import ElementType
from vkdml.operators.header.descs import DML_OPERATOR_TYPE
from vkdml_lab.internals import Problem

COPIES = 8
MARGIN = 4.0
BLIND = 0.1  # share of the largest number: a looser bound could not detect a wrong result

# Half a unit in the last place of computed numbers: of a float32, and of the pair of float32 that stands for a float64
_ROUNDING = {False: 2.0**-24, True: 2.0**-48}
_SMALLEST = {False: 1e-36, True: 1e-33}  # drivers may replace smaller numbers by 0
_LARGEST = 1e37

# What Vulkan allows exp, log and division, in roundings
_FUNCTION = 8.0

_T = DML_OPERATOR_TYPE
# Activations that add a constant or take a logarithm have an error that does not shrink with their result: a rounding of this
_SUMMANDS = {_T.ACTIVATION_SOFTPLUS: lambda a, b: 1 / a, _T.ACTIVATION_PARAMETRIC_SOFTPLUS: lambda a, b: a,
             _T.ACTIVATION_LINEAR: lambda a, b: b, _T.ACTIVATION_HARD_SIGMOID: lambda a, b: b,
             _T.ACTIVATION_HARD_SWISH: lambda a, b: b * b / a, _T.ACTIVATION_SHRINK: lambda a, b: a}
_STEPS = {_T.ACTIVATION_THRESHOLDED_RELU: lambda a, b: (a,), _T.ACTIVATION_SHRINK: lambda a, b: (b, -b)}


@dataclass(frozen=True)
class Allowed:
    """Expected outputs and the allowed distance from them, by DirectML's field. is_certain: False if no bound can be given."""

    expected: Mapping[str, np.ndarray]
    distance: Mapping[str, np.ndarray]
    is_certain: bool

    @property
    def is_blind(self) -> bool:
        """Whether a wrong result could pass, because some bound is at least a tenth of its output's largest expected number."""
        return any(bool((distance > BLIND * max(np.abs(expected[np.isfinite(expected)]).max(initial=0), 1e-30)).any())
                   for expected, distance in zip(self.expected.values(), self.distance.values()))


def allowed(problem: Problem, arrays: Mapping[str, np.ndarray]) -> Allowed:
    """Compute the expected outputs and how far results may be from them. arrays: inputs by field, as for reference.run."""
    expected = reference.run(problem, arrays)
    with np.errstate(all="ignore"):
        found, is_certain = _copies(problem, arrays)
        distance = {field: _distance(problem, expected[field], found[field], is_certain) for field in expected}
    wanted = [field for field in expected if problem.has(field)]
    return Allowed({field: expected[field] for field in wanted}, {field: distance[field] for field in wanted}, is_certain)


def _distance(problem: Problem, expected: np.ndarray, copies: np.ndarray, is_certain: bool) -> np.ndarray:
    if not is_certain:
        return np.full(expected.shape, np.inf)
    change = np.where(np.isfinite(copies[0]), np.abs(copies[1:] - copies[0]), 0)  # NaN and infinities are certain
    spread = np.where(np.isnan(change), np.inf, change).max(axis=(0, -1))[..., None]  # one for a row's units, as they mix
    return np.where(np.isfinite(expected), MARGIN * spread + rounded(problem.element, expected), 0)


def rounded(element: ElementType, values: np.ndarray) -> np.ndarray:
    """Return by how much each value may be off after it was computed and rounded in this type."""
    info = ml_dtypes.finfo(element.name)
    unit = max(2 * _ROUNDING[element.pairs], float(info.eps) / 2 * 1.01)
    return np.abs(values) * unit + max(_SMALLEST[element.pairs], float(info.smallest_subnormal))


def check(element: ElementType, results: Mapping[str, np.ndarray], judged: Allowed) -> None:
    """Check results by field. Raises AssertionError for a wrong type or shape, or if a number is off by more than its bound."""
    assert set(results) == set(judged.expected)
    largest = float(ml_dtypes.finfo(element.name).max)
    for field, result in results.items():
        expected, distance = judged.expected[field], judged.distance[field]
        assert result.dtype.name == element.name, f"{field}: {result.dtype}, not {element.name}"
        assert result.shape == expected.shape, f"{field}: {result.shape}, not {expected.shape}"
        found = result.astype(np.float64)
        with np.errstate(all="ignore"):
            is_right = (np.abs(found - expected) <= distance) | (found == expected) | (np.isnan(found) & np.isnan(expected))
            is_right |= (distance == np.inf) | np.isinf(found) & (np.sign(found) * expected + distance > largest)
        if not is_right.all():
            place = tuple(int(index) for index in np.argwhere(~is_right)[0])
            raise AssertionError(f"{field}{list(place)}: {found[place]!r}, but {expected[place]!r} to {distance[place]:.2g} is "
                                 f"right; so are {int((~is_right).sum())} of {found.size} numbers wrong")


class _NoisyActivation:
    """An activation for all copies at once. Except in the first copy, its argument and result get random rounding errors."""

    def __init__(self, fused: ParametrizedActivation, noise: _Noise, smallest: float) -> None:
        self._fused, self._noise, self._smallest = fused, noise, smallest
        kind = fused.activation.operator_type
        self._summand = abs(_SUMMANDS[kind](fused.a, fused.b)) if kind in _SUMMANDS else 0.0
        self._steps = _STEPS[kind](fused.a, fused.b) if kind in _STEPS else ()
        self.is_certain = True
        self.has_underflow = False

    def __call__(self, x: np.ndarray) -> np.ndarray:
        spread = np.abs(x[1:] - x[0]).max(axis=0)
        for step in self._steps:
            if (np.abs(x[0] - step) <= MARGIN * spread + _FUNCTION * self._noise.rounding * abs(step)).any():
                self.is_certain = False
        if (np.abs(x[np.isfinite(x)]) > _LARGEST).any():
            self.is_certain = False
        result = self._fused(x * self._noise.factor(x.shape))
        self.has_underflow |= bool(((result != 0) & (np.abs(result) < self._smallest)).any())
        return result * self._noise.factor(x.shape, _FUNCTION) + self._summand * (self._noise.factor(x.shape, _FUNCTION) - 1)


class _Noise:
    def __init__(self, rounding: float) -> None:
        self.rounding = rounding
        self._rng = np.random.default_rng(0)

    def factor(self, shape: tuple[int, ...], roundings: float = 1.0) -> np.ndarray:
        """Return random factors for copies (first dimension): off from 1 by up to `roundings` roundings, but 1 in the first."""
        made = 1 + self._rng.uniform(-roundings * self.rounding, roundings * self.rounding, shape)
        made[0] = 1
        return made

    def copies(self, array: np.ndarray, roundings: float = 1.0) -> np.ndarray:
        return array * self.factor((COPIES + 1, *array.shape), roundings)


def _copies(problem: Problem, arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bool]:
    """Compute all outputs several times: exactly, then with noise. Returns them by field, and whether a bound can be given.

    The copies are an output's first dimension. The equations are the reference's, for all copies and rows at once. They have
    the dimensions gates, copies, units, rows.
    """
    t, b, h, d = problem.steps, problem.batch, problem.hidden, problem.directions
    noise = _Noise(_ROUNDING[problem.element.pairs])
    activations: Any = tuple(_NoisyActivation(fused, noise, _SMALLEST[problem.element.pairs]) for fused in problem.activations)
    noisy = replace(problem, activations=activations)
    x = noise.copies(reference.view(problem, arrays, "InputTensor", np.empty(0))[0].swapaxes(1, 2))
    lengths = reference.view(problem, arrays, "SequenceLengthsTensor", np.full(b, t)).reshape(b)
    sequence = np.zeros((COPIES + 1, t, d, b, h))
    last = np.zeros((COPIES + 1, len(problem.cell.outputs) - 1, 1, d, b, h))
    for direction, reverse in enumerate(problem.reverse):
        w, r, *vectors = reference.direction_weights(problem, arrays, direction)
        roundings = (problem.input_size + h) ** 0.5
        weights = [noise.copies(array, roundings).swapaxes(0, 1) for array in (w, r)]
        columns = [noise.copies(array)[..., None].swapaxes(0, 1) for array in vectors]
        step = reference.STEPS[problem.cell.name](noisy, direction, *weights, *columns)
        states = [noise.copies(initial[direction].T) for initial in reference.initial_states(problem, arrays)]
        for position in reversed(range(t)) if reverse else range(t):
            is_valid = position < lengths
            states = [np.where(is_valid, after * noise.factor(after.shape), before)
                      for after, before in zip(step(x[:, position], *states), states)]
            sequence[:, position, direction] = np.where(is_valid, states[0], 0).swapaxes(1, 2)
            if any((np.abs(state[np.isfinite(state)]) > _LARGEST).any() for state in states):
                return _outputs(problem, sequence, last), False
            if np.isinf(states).any() and any(activation.has_underflow for activation in activations):
                return _outputs(problem, sequence, last), False  # infinity times a number that is 0 in float32 is NaN
        for index, state in enumerate(states):
            last[:, index, 0, direction] = np.where(lengths > 0, state, 0).swapaxes(1, 2)
    return _outputs(problem, sequence, last), all(activation.is_certain for activation in activations)


def _outputs(problem: Problem, sequence: np.ndarray, last: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(problem.cell.outputs, [sequence, *last.swapaxes(0, 1)]))
