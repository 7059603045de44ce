"""Tests the fuzzer's bounds of errors, which are narrow unless a problem amplifies errors, and which must show mistakes."""

from dataclasses import replace

import numpy as np
import pytest

from lab.tests.test_mutations import mutated
from vkdml.operators import cells, element_types, reference
from vkdml.operators.activations import BY_DESC
from vkdml.operators.header import descs
from vkdml_lab.fuzz import bounds
from vkdml_lab.suite.support import CELLS, DTYPES, RTOL, SIGMOID, TANH, Case, make_desc, random_arrays, random_case

IDENTITY = descs.DML_ACTIVATION_IDENTITY_OPERATOR_DESC()


def rnn(activation, steps=12, hidden=8, growth=1.0, element=element_types.FLOAT32):
    desc = make_desc(cells.RNN, steps, 2, 4, hidden, data_type=element.data_type, ActivationDescs=[activation], SequenceLengthsTensor=None)
    arrays = random_arrays(desc, np.random.default_rng(0), element)
    arrays["RecurrenceTensor"] *= arrays["RecurrenceTensor"].dtype.type(growth)
    return Case(desc, None, arrays, element)


def in_float32(case):
    """Compute a tanh RNN with numpy in float32. Returns its outputs by DirectML's names."""
    x, w, r, b, h = (case.arrays[field][0] for field in ("InputTensor", "WeightTensor", "RecurrenceTensor", "BiasTensor", "HiddenInitTensor"))
    (wb, rb), h, states = b[0].reshape(2, -1), h[0], []
    for step in x:
        h = np.tanh(step @ w[0].T + h @ r[0].T + wb + rb)
        states.append(h)
    return {"OutputSequenceTensor": np.stack(states)[:, None], "OutputSingleTensor": states[-1][None, None]}


def relative(allowed, field="OutputSequenceTensor"):
    return (allowed.distance[field] / np.abs(allowed.expected[field]).max()).max()


@pytest.mark.parametrize("seed", range(24))
def test_the_first_copy_is_the_reference(seed):
    """The bounds come from copies of a problem with noise. The first copy has no noise, so it must equal the reference."""
    case = random_case(seed)
    copies, _ = bounds._copies(case.problem, case.arrays)
    for field, expected in reference.run(case.problem, case.arrays).items():
        np.testing.assert_allclose(copies[field][0], expected, rtol=1e-12, atol=1e-13)


def test_a_recurrence_that_grows_may_be_far_off():
    """A chaotic recurrence loses all accuracy in float32, so its bounds are wide. Those of the first step are narrow."""
    case = rnn(TANH, steps=60, hidden=24, growth=6.0)
    allowed, results = bounds.allowed(case.problem, case.arrays), in_float32(case)
    assert not np.allclose(results["OutputSingleTensor"], allowed.expected["OutputSingleTensor"], 0.01, 0.01)
    bounds.check(case.element, results, allowed)
    assert allowed.is_blind
    assert allowed.distance["OutputSequenceTensor"][0].max() < 2e-5


def test_a_recurrence_that_forgets_must_be_near():
    allowed = bounds.allowed((case := rnn(TANH, steps=60, growth=0.1)).problem, case.arrays)
    assert relative(allowed) < RTOL / 30


@pytest.mark.parametrize(("element", "most"), [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 1.2e-2), ("float64", 1e-12)])
def test_each_type_has_its_own(element, most):
    case = rnn(TANH, element=next(row for row in element_types.ALL if row.name == element))
    assert most / 50 < relative(bounds.allowed(case.problem, case.arrays)) < most


def test_one_number_that_is_off_is_seen():
    case = rnn(TANH)
    allowed = bounds.allowed(case.problem, case.arrays)
    right = {field: array.astype(np.float32) for field, array in allowed.expected.items()}
    bounds.check(case.element, right, allowed)
    right["OutputSequenceTensor"][3, 0, 1, 2] += 2e-5
    with pytest.raises(AssertionError, match=r"OutputSequenceTensor\[3, 0, 1, 2\]: .* so are 1 of 192 numbers wrong"):
        bounds.check(case.element, right, allowed)


@pytest.mark.parametrize(("special", "wrong"), [(np.nan, 0), (np.inf, -np.inf), (np.inf, 1)])
def test_special_numbers_are_certain(special, wrong):
    case = rnn(IDENTITY)
    case.arrays["InputTensor"][0, 0, 0, 0] = special
    allowed = bounds.allowed(case.problem, case.arrays)
    right = {field: array.astype(np.float32) for field, array in allowed.expected.items()}
    bounds.check(case.element, right, allowed)
    place = np.argwhere(~np.isfinite(right["OutputSingleTensor"]))[0]
    right["OutputSingleTensor"][tuple(place)] = wrong
    with pytest.raises(AssertionError, match="numbers wrong"):
        bounds.check(case.element, right, allowed)


def test_results_that_rounding_decides_are_not_judged():
    """A ThresholdedRelu's result cannot be judged if its input equals the threshold. It can be if they differ a little."""
    for alpha, is_certain in ((0.75, False), (0.7501, True)):
        desc = make_desc(cells.RNN, 1, 1, 1, 1, BiasTensor=None, HiddenInitTensor=None, SequenceLengthsTensor=None,
                         ActivationDescs=[descs.DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC(Alpha=alpha)])
        arrays = {field: np.full((1, 1, 1, 1), value, np.float32)
                  for field, value in (("InputTensor", 0.75), ("WeightTensor", 1), ("RecurrenceTensor", 1))}
        allowed = bounds.allowed(Case(desc, None, arrays).problem, arrays)
        assert allowed.is_certain == is_certain
        assert allowed.is_blind == (not is_certain)


MISTAKES = [("R in float16", "direction_weights", {"[w, r,": "[w, r.astype(np.float16).astype(np.float64),"}),
            ("x in float16", "run", {"[0]\n    lengths": "[0].astype(np.float16).astype(np.float64)\n    lengths"})]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
@pytest.mark.parametrize(("function", "changes"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_mistakes_that_fixed_tolerances_hardly_see(cell, function, changes):
    """The bounds show that a float32 problem was computed with weights or inputs in float16, in at least 9 of 10 problems."""
    wrong, caught = mutated(reference, function, changes), 0
    for seed in range(10):
        desc = make_desc(cell, 4, 3, 8, 9, ActivationDescs=[SIGMOID, TANH, TANH][-cell.activations:])
        arrays = random_arrays(desc, np.random.default_rng(seed))
        case = Case(desc, None, arrays)
        results = {field: array.astype(np.float32) for field, array in wrong.run(case.problem, arrays).items()}
        try:
            bounds.check(case.element, results, bounds.allowed(case.problem, arrays))
        except AssertionError:
            caught += 1
    assert caught >= 9


def test_every_jump_of_an_activation_is_known():
    """bounds._STEPS has all activations whose value jumps somewhere, and no others."""
    x = np.linspace(-3, 3, 600_001)
    for row in BY_DESC.values():
        values = row.function(x, 0.7, 1.1)
        jumps = np.abs(np.diff(values)).max() > 1e-3
        assert jumps == (row.operator_type in bounds._STEPS), row.operator_type


def test_half_numbers_out_of_range_are_infinities():
    case = rnn(IDENTITY, steps=30, growth=3.0, element=element_types.FLOAT16)
    allowed = bounds.allowed(case.problem, case.arrays)
    with np.errstate(over="ignore"):
        results = {field: array.astype(np.float16) for field, array in allowed.expected.items()}
    assert np.isinf(results["OutputSingleTensor"]).any()
    bounds.check(case.element, results, allowed)
    wrong = {field: -array for field, array in results.items()}
    with pytest.raises(AssertionError):
        bounds.check(case.element, wrong, allowed)
    assert DTYPES["float16"] == results["OutputSingleTensor"].dtype
    assert replace(allowed, is_certain=True).is_certain
