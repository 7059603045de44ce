"""What float32 computes is within the bound, and the bound is not much larger than it has to be."""

from dataclasses import replace

import numpy as np
import pytest

from vkdml.operators import activations, element_types
from vkdml.operators.bounded import Arithmetic, Bounded
from vkdml.operators.header import descs

TERMS = 64
FLOAT32 = Arithmetic(2.0**-23, 2.0**-120, 1e30, TERMS)
ROWS = [pytest.param(row, id=row.operator_type.name) for row in activations.BY_DESC.values()]


def fused(row, **parameters):
    return activations.fuse("GRU", "f", row.desc(**parameters), element_types.FLOAT32)


def exact(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(np.float32)


def assert_within(found, bounded):
    assert (np.abs(found.astype(np.float64) - bounded.value) <= bounded.error).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_sums_in_any_order(scale):
    matrix, x, bias = exact(50, TERMS - 2), exact(TERMS - 2, 20, scale=scale), exact(50, 1, seed=1)
    bounded = matrix.astype(np.float64) @ Bounded(x.astype(np.float64), 0.0, FLOAT32) + bias.astype(np.float64)
    for order in (np.arange(TERMS - 2), np.argsort(-np.abs(x[:, 0]))):
        total = np.repeat(bias, 20, 1)
        for term in order:
            total = total + matrix[:, term:term + 1] * x[term]
        assert_within(total, bounded)
    assert bounded.error.max() < 1e-3 * max(scale, 1)


def test_gate_math():
    z, h, n = (exact(1000, seed=seed) for seed in range(3))
    bounded = [Bounded(array.astype(np.float64), 0.0, FLOAT32) for array in (z, h, n)]
    assert_within((1 - z) * n + z * h, (1 - bounded[0]) * bounded[2] + bounded[0] * bounded[1])


@pytest.mark.parametrize("row", ROWS)
def test_activations_of_what_may_be_off(row):
    """Every value within the bound of x gives one within the bound of f(x), at jumps too."""
    x, error = np.linspace(-3, 3, 601), 0.01
    function = fused(row)
    bounded = Bounded(x, np.full(x.shape, error), FLOAT32).through(function)
    for part in np.linspace(-1, 1, 9):
        assert_within(function(x + part * error), bounded)
    assert np.median(bounded.error) < 0.03


@pytest.mark.parametrize(("row", "parameters"), [
    (descs.DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC, {"Alpha": -1.5}),
    (descs.DML_ACTIVATION_SHRINK_OPERATOR_DESC, {"Bias": 2.0, "Threshold": 0.5})], ids=["ThresholdedRelu", "Shrink"])
def test_a_jump_away_from_where_the_error_ends(row, parameters):
    """Both fall at the jump and rise behind it."""
    function = fused(activations.BY_DESC[row], **parameters)
    jump, error = parameters.get("Threshold", parameters.get("Alpha")), 0.25
    bounded = Bounded(np.array([jump - 0.125]), np.array([error]), FLOAT32).through(function)
    assert_within(function(np.array([jump + 1e-6])), bounded)


def test_denormal_numbers_may_be_read_as_0():
    """Of a matrix, of columns and of a bias; nothing is added where there are none."""
    half = replace(FLOAT32, least=2.0**-14)
    w, x, bias = np.array([[2.0**-15, 0.5], [0.5, 0.25]]), np.array([[3.0], [2.0**-16]]), np.array([[0.0], [2.0**-17]])
    exactly_read, bounded = (w @ arithmetic.read(x) + bias for arithmetic in (FLOAT32, half))
    np.testing.assert_allclose(bounded.error - exactly_read.error, [[3 * 2.0**-15 + 2.0**-17], [2.0**-18 + 2.0**-17]], rtol=1e-3)
    assert_within(w * (w > half.least) @ (x * (x > half.least)) + bias * (bias > half.least), bounded)
    normal = np.full((2, 2), 0.5)
    np.testing.assert_array_equal((normal @ half.read(normal)).error, (normal @ FLOAT32.read(normal)).error)


def test_a_clip_narrows_it():
    bounded = np.clip(Bounded(np.array([0.0, 2.0]), np.array([0.1, 0.1]), FLOAT32), -1, 1)
    np.testing.assert_allclose(bounded.value, [0, 1])
    np.testing.assert_allclose(bounded.error, [0.1, 0], atol=1e-6)


@pytest.mark.parametrize("value", [1e31, np.inf, np.nan])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_nothing_is_known_of_what_float32_may_not_hold(value):
    """Nor of a bounded function of it, as it may be NaN."""
    unknown = np.ones((1, 1)) @ Bounded(np.full((1, 1), value), 0.0, FLOAT32)
    for bounded in (unknown, unknown + 1.0, unknown * unknown, np.clip(unknown, -1, 1),
                    unknown.through(fused(activations.BY_DESC[descs.DML_ACTIVATION_SIGMOID_OPERATOR_DESC]))):
        assert not np.isfinite(bounded.error).any()


def test_parts_of_a_sum_that_are_too_large():
    """1e30 * 1e5 - 1e30 * 1e5 is no 0 where the first is infinite."""
    x = Bounded(np.array([[1e29], [-1e29]]), 0.0, FLOAT32)
    assert np.isinf((np.full((1, 2), 1e5) @ x).error).all()
