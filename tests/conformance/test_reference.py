"""Every problem that a descriptor can state, in every schedule, against the float64 reference."""

import numpy as np
import pytest

import vkdml
from tests.support import SCHEDULES, Case, check, gru_desc, make_desc, options, random_arrays, random_case, run_on_device
from vkdml import cells
from vkdml.activations import BY_DESC


@pytest.mark.parametrize("seed", range(450))
def test_random_problem(device, seed):
    """Schedules take turns, so that each meets hundreds of shapes over all seeds."""
    case = random_case(seed)
    check(case, run_on_device(device, case, options(device, list(SCHEDULES)[seed % len(SCHEDULES)], case.element)))


# A cell and its flags, one way to go through a time step each
VARIANTS = {"GRU": (cells.GRU, {}), "GRU linear": (cells.GRU, {"LinearBeforeReset": True}), "LSTM": (cells.LSTM, {}),
            "LSTM coupled": (cells.LSTM, {"CoupleInputForget": True, "PeepholeTensor": None}), "RNN": (cells.RNN, {})}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule(device, schedule, variant):
    """Bidirectional with ragged lengths, a row without steps among them, in each schedule."""
    cell, flags = VARIANTS[variant]
    desc = make_desc(cell, 9, 7, 10, 21, 2, **flags)
    arrays = random_arrays(desc, np.random.default_rng(5))
    arrays["SequenceLengthsTensor"] = np.array([9, 0, 1, 5, 8, 2, 9], np.uint32).reshape(1, 1, 1, 7)
    case = Case(desc, None, arrays)
    check(case, run_on_device(device, case, options(device, schedule)))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 70, 3, 5), (300, 1, 2, 3), (3, 2, 129, 130), (2, 17, 64, 300),
                                   (1, 40, 257, 3)])
def test_shape(device, shape):
    desc = gru_desc(*shape)
    case = Case(desc, None, random_arrays(desc, np.random.default_rng(1)))
    check(case, run_on_device(device, case))


@pytest.mark.parametrize("schedule", ["default", "plain"])
def test_wide_input(device, schedule):
    """More inputs than some drivers give a shader's loops: computed right or refused, never cut short."""
    desc = gru_desc(2, 1, 300_000, 1, SequenceLengthsTensor=None)
    case = Case(desc, None, random_arrays(desc, np.random.default_rng(6)))
    try:
        results = run_on_device(device, case, options(device, schedule))
    except vkdml.InvalidArgumentError as error:
        assert "an input size that" in str(error)  # noqa: PT017  (either outcome is right)
    else:
        check(case, results)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("schedule", ["default", "plain"])
@pytest.mark.parametrize("shape", [(1000, 1, 128, 128), (40, 3, 8, 512), (20000, 1, 1, 4), (3, 1, 5, 1100)])
def test_long_and_wide(device, shape, schedule, variant):
    """More steps and units than some drivers give a shader's loops: they must be split, not cut short."""
    cell, flags = VARIANTS[variant]
    desc = make_desc(cell, *shape, SequenceLengthsTensor=None, **flags)
    case = Case(desc, None, random_arrays(desc, np.random.default_rng(4)))
    check(case, run_on_device(device, case, options(device, schedule)))


@pytest.mark.parametrize("activation", BY_DESC, ids=lambda desc: desc.__name__.split("_")[2])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_activation(device, activation, scale):
    """Each as f and as g, on usual and on huge inputs: nothing overflows on the way to a finite result."""
    desc = gru_desc(1, 4, 3, 40, ActivationDescs=[activation(), activation()], HiddenInitTensor=None,
                    SequenceLengthsTensor=None, BiasTensor=None)
    arrays = random_arrays(desc, np.random.default_rng(2))
    arrays["InputTensor"] = arrays["InputTensor"] * np.float32(scale)
    case = Case(desc, None, arrays)
    results = run_on_device(device, case)
    assert all(np.isfinite(result).all() for result in results.values())
    check(case, results)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("activation", BY_DESC, ids=lambda desc: desc.__name__.split("_")[2])
def test_special_values_propagate(device, activation, special):
    """NaN and infinity in one row: what IEEE arithmetic makes of them, and the other rows untouched."""
    desc = gru_desc(3, 2, 4, 9, ActivationDescs=[activation(), activation()], SequenceLengthsTensor=None)
    arrays = random_arrays(desc, np.random.default_rng(3))
    arrays["RecurrenceTensor"] *= np.float32(0.1)  # the finite row must not grow out of float32's reach
    arrays["InputTensor"][0, 1, 0, 2] = special
    case = Case(desc, None, arrays)
    check(case, run_on_device(device, case))
