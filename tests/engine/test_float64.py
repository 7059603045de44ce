"""float64 as pairs of float32: their range, and devices that cannot compute with them."""

import numpy as np
import pytest

import vkdml
from tests.faces.support import arrays, check
from vkdml.engine.trust import self_test
from vkdml.operators import reference

pytestmark = pytest.mark.device


def rnn_arrays(size):
    return np.full((2, 1, 2), size), np.full((1, 1, 2), size), np.zeros((1, 1, 1))


@pytest.mark.parametrize("gap", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("place", [0, 1])
def test_the_range_is_that_of_elements_alone(gap, place):
    """Neither does a gap of a strided view switch the check of results off, nor is it refused itself."""
    for size, refused in ((0.5, False), (1e30, True)):
        given = list(rnn_arrays(size))
        spaced = np.full((*given[place].shape[:-1], 4), gap)
        spaced[..., ::2] = given[place]
        given[place] = spaced[..., ::2]
        if refused:
            with pytest.raises(vkdml.InvalidArgumentError, match="numbers out of range on the way"):
                vkdml.rnn(*given, activations=["Relu"])
        else:
            np.testing.assert_allclose(vkdml.rnn(*given)[0], reference.rnn(*given)[0], rtol=1e-12)
    wrong = list(rnn_arrays(0.5))
    wrong[place][0, 0, 1] = -1e39
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{'XW'[place]}: found 1e\\+39"):
        vkdml.rnn(*wrong)
    wrong[place][0, 0, 0] = np.inf
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{'XW'[place]}: found 1e\\+39"):
        vkdml.rnn(*wrong)


def test_an_initial_state_beyond_pairs_is_refused():
    given = arrays("float64")
    given["initial_h"][0, 0, 0] = 4e38
    with pytest.raises(vkdml.InvalidArgumentError, match="gru: initial_h: found .*; expected numbers up to 3.4e\\+38"):
        vkdml.gru(**given)


def test_float64_keeps_what_is_not_finite():
    given = arrays("float64")
    given["x"][1, 1, 0] = np.nan
    with np.errstate(invalid="ignore"):
        check(vkdml.gru(**given), reference.gru(**given), "float64")


def test_float64_small_numbers():
    """Down to 1e-24 all digits; below, errors up to 1e-34, because a product's rest is below what a float32 can hold."""
    given = {name: np.abs(array) for name, array in arrays("float64", 1).items()} | {"activations": ["Relu"]}
    for scale, atol in ((1e-24, 0), (1e-30, 1e-34), (1e-36, 1e-34), (1e-300, 1e-34)):
        scaled = given | {name: given[name] * scale for name in ("x", "b", "initial_h")}
        for result, expected in zip(vkdml.rnn(**scaled), reference.rnn(**scaled), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-10, atol=atol)


def test_a_device_that_cannot_do_float64_says_so(device, monkeypatch):
    monkeypatch.setattr(self_test, "is_float64_accurate", lambda gpu: False)
    self_test.check_float64.cache_clear()
    new = {"clip": 7.0}  # no other test's compiled operator
    with pytest.raises(vkdml.DriverError, match="float64: .* does not keep the rounding of float32"):
        vkdml.gru(**arrays("float64"), **new)
    vkdml.gru(**arrays("float32"), **new)


def test_the_trial_sees_float32_arithmetic(device, monkeypatch):
    """Of a kernel whose results have only a float32's digits."""
    assert self_test.is_float64_accurate(device.gpu)
    outputs = self_test.Trial.outputs
    monkeypatch.setattr(self_test.Trial, "outputs", lambda trial: {
        field: array.view(np.float64).astype(np.float32).astype(np.float64).view(np.uint8) for field, array in outputs(trial).items()})
    assert not self_test.is_float64_accurate(device.gpu)
