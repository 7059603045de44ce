"""What `vkdml run --compare` calls equal, and the errors that it tells."""

import ml_dtypes
import numpy as np
import pytest

from vkdml.cli.run import compared

NOTHING = (None, None, None)


def arrays(values, dtype):
    return np.array(values, dtype)


@pytest.mark.parametrize(("dtype", "ours", "theirs", "errors", "agrees"), [
    ("f4", [1, np.nan, np.inf], [1, np.nan, np.inf], (0, 0, 0), True),
    ("f4", [1, 2], [1, 2.5], (0.5, 0.2, 2.0**21), False),
    ("f4", [0, 8], [2.0**-30, 8], (2.0**-30, 1, 2.0**-30 * 2**24), True),  # in the ULP of 1/16 of 8
    ("f4", [1 + 2.0**-23], [1], (2.0**-23, 2.0**-23, 1), True),
    ("f2", [1 + 2.0**-10], [1], (2.0**-10, 2.0**-10, 1), True),
    (ml_dtypes.bfloat16, [1 + 2.0**-7], [1], (2.0**-7, 2.0**-7, 1), True),
    ("f8", [1 + 1e-6], [1], (1e-6, 1e-6, 1e-6 * 2**52), False),
    ("f4", [1, 0], [1, 0], (0, 0, 0), True),
    ("i8", [1, 2], [1, 2], NOTHING, True),
    ("i8", [1, 2], [1, 3], NOTHING, False),
    ("U1", ["a"], ["a"], NOTHING, True),
    ("f4", [1, 2], [1, 2, 3], NOTHING, False),
])
def test_arrays(dtype, ours, theirs, errors, agrees):
    comparison = compared(arrays(ours, dtype), arrays(theirs, dtype))
    assert (comparison["agrees"], comparison["absolute"] is None) == (agrees, errors == NOTHING)
    if errors != NOTHING:
        np.testing.assert_allclose([comparison["absolute"], comparison["relative"], comparison["ulp"]], errors, rtol=1e-6)


def test_a_number_instead_of_a_nan_does_not_agree():
    comparison = compared(arrays([1, np.nan], "f4"), arrays([1, 2], "f4"))
    assert (np.isnan(comparison["absolute"]), comparison["agrees"]) == (True, False)


@pytest.mark.parametrize(("types", "agrees"), [([], False), (["float32"], False), (["float16"], True), (["float32", "float16"], True)])
def test_what_was_computed_in_half_precision_is_judged_by_its_tolerance(types, agrees):
    assert compared(arrays([1.001], "f4"), arrays([1], "f4"), types)["agrees"] is agrees


@pytest.mark.parametrize(("ours", "theirs", "wide", "agrees"), [
    ([1.02, 1], [0.98, 1], [1, 1], True),  # as far from float32 as theirs
    ([1, 1.02], [0.98, 1], [1, 1], True),
    ([1.03, 1], [0.98, 1], [1, 1], False),
    ([1.02, 1], [1, 1], [1, 1], False),
    ([1.02, 1], [0.98, 1], [1, 1, 1], False),
    ([1.02, np.inf], [0.98, np.inf], [1, 70000], True),
    ([1.02, np.inf], [0.98, 65504], [1, 70000], False),
    ([1.02, 1], [0.98, np.inf], [1, 70000], False),
    ([1.02, np.nan], [0.98, 1], [1, 1], False),
    ([1.02, np.nan], [0.98, np.nan], [1, 1], True),
])
def test_onnxruntimes_own_error_counts_in_half_precision(ours, theirs, wide, agrees):
    assert compared(arrays(ours, "f2"), arrays(theirs, "f2"), (), arrays(wide, "f4"))["agrees"] is agrees


@pytest.mark.parametrize(("ours", "theirs", "absolute", "agrees"), [
    ([arrays([1], "f4"), arrays([2], "f4")], [arrays([1], "f4"), arrays([2.5], "f4")], 0.5, False),
    ([arrays([1], "f4")], [arrays([1], "f4")] * 2, None, False),
    ([{1: 0.25, 2: 0.5}], [{1: 0.25, 2: 0.5}], 0, True),
    ([{1: 0.25, 2: 0.5}], [{1: 0.25, 2: 0.75}], 0.25, False),
    ([{1: 0.25, 2: 0.5}], [{1: 0.25, 3: 0.5}], None, False),
    ({"a": "x"}, {"a": "x"}, None, True),
    ([], [], None, True),
])
def test_sequences_and_maps(ours, theirs, absolute, agrees):
    comparison = compared(ours, theirs)
    assert (comparison["absolute"], comparison["agrees"]) == (absolute, agrees)
