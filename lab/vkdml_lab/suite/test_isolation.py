"""Tests that no kernel writes outside of its tensors, uses values from there, or lets one row of a batch affect another.

`run_on_device` finds the first two in all tests, by guards (words behind the ends of buffers). This module adds sizes at which
such accesses are likely, and planted mistakes that must be seen. It also checks that repeated runs give the same bits.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import vkdml
from vkdml.engine.trust.trial import Run, Trial
from vkdml.operators import cells, element_types
from vkdml.planning.plan import plan
from vkdml_lab.suite import recording, test_casts, test_plain
from vkdml_lab.suite.support import (
    CELLS,
    DTYPES,
    SCHEDULES,
    Case,
    assert_same,
    check,
    drawn_case,
    make_desc,
    options,
    random_arrays,
    random_strides,
    run_on_device,
    tensor,
)
from vkdml_lab.suite.test_reference import VARIANTS

# B, I and H: one less than a tile or load of weights, as many, one more, and primes
SIZES = [(1, 1, 1), (7, 7, 7), (8, 8, 8), (9, 9, 9), (3, 13, 31), (4, 16, 32), (5, 17, 33), (16, 3, 15), (17, 5, 17)]


@pytest.mark.family("each schedule with each cell", first=2)
@pytest.mark.parametrize(("place", "schedule", "cell"), [
    pytest.param(place, schedule, CELLS[place % len(CELLS)], id=f"{schedule}-{CELLS[place % len(CELLS)].name}-{place}")
    for place, schedule in enumerate([*SCHEDULES] * len(CELLS))])
def test_sizes_beside_a_tile(device, place, schedule, cell):
    """Results are right for the sizes of kernels' tiles, one more and one less, with and without gaps in tensors."""
    b, i, h = SIZES[place % len(SIZES)]
    element = element_types.ALL[place // 2 % len(element_types.ALL)]
    rng = np.random.default_rng(place)
    desc = make_desc(cell, 3, b, i, h, 1 + place % 2, data_type=element.data_type)
    strided = [field for field in cell.tensors if rng.random() < 0.5]
    desc = replace(desc, **{field: replace(getattr(desc, field), Strides=random_strides(
        rng, getattr(desc, field).Sizes, False)) for field in strided})
    case = Case(desc, None, random_arrays(desc, rng, element), element)
    check(case, run_on_device(device, case, options(device, schedule, element)))


# Planted mistakes

def test_one_element_too_many_is_seen(device, mistaken):
    mistaken("elementwise", "common/elementwise.glsl", "element < tensors.elements", "element <= tensors.elements")
    desc = vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC(tensor(3, 5), tensor(3, 5))
    with pytest.raises(AssertionError, match="something was written behind a buffer of 60 bytes: 1 words, the first 0 bytes behind"):
        test_plain.run(device, desc, {"InputTensor": np.ones(15, np.float32)})


PLAIN_MISTAKES = {
    "copied one too far": ("copy", "common/copy_words.glsl", "target[2 * (to) + 1]", "target[2 * (to) + 2]", "written behind a buffer"),
    "the neighbour's bytes": ("copy", "common/copy_words.glsl", "~(ITEM_MASK << shift)", "0u", "between the output's elements"),
    "an index not bounded": ("gather", "gather.comp", "min(low, last)", "low", r"wrong \(all of them 0\), the first at"),
    "a wrong dimension": ("gather", "gather.comp", "tensors.of_indices >> n", "tensors.of_indices >> (n + 1)", "the check of calls"),
    "a stride ignored": ("arithmetic", "arithmetic.comp", "b_place += index * tensors.b_stride_##n", "b_place += index", "the check of calls"),
    "half of a word": ("cast", "cast.comp", "word)[source & 1]", "word)[0]", "Difference"),
    "a type for another": ("cast", "cast.comp", "TWO_FLOATS(SOURCE,", "TWO_FLOATS(ELEMENT,", "Difference"),
    "a column of K too many": ("gemm", "gemm.comp", "rows && first_k + k < matrices.inner", "rows && first_k + k <= matrices.inner", "the check of calls"),
    "beta left out": ("gemm", "common/matrices.glsl", "uintBitsToFloat(matrices.beta) * c", "c", "the check of calls"),
    "a row for another": ("cpu/gemm_lanes", "cpu/gemm_lanes.comp", "own[row / 4][row % 4]", "own[row / 4][0]", "the check of calls"),
    "an edge of a tile": ("gemm", "common/matrices.glsl", "column < matrices.columns", "column <= matrices.columns", "written behind a buffer"),
    "a column for another": ("cpu/gemm_lanes", "cpu/gemm_lanes.comp", "? own[row][i]", "? own[row][0]", "the check of calls"),
    "a column of K too many by lanes": ("cpu/gemm_lanes", "cpu/gemm_lanes.comp", "? inside(k, matrices.inner)", "? inside(k, matrices.inner + 1)", "the check of calls"),
    "a vector for single elements": ("cpu/gemm_lanes", "cpu/gemm_lanes.comp", "place + i * stride", "place + i", "the check of calls"),
}


@pytest.mark.family("mistakes, the first in every kernel", first=10)
@pytest.mark.parametrize("mistake", PLAIN_MISTAKES)
def test_mistakes_of_plain_operators_are_seen(device, mistaken, with_profile, mistake):
    """One of a kernel's tests must fail if the kernel has a planted mistake."""
    kernel, file, old, new, said = PLAIN_MISTAKES[mistake]
    mistaken(kernel, file, old, new)
    products = partial(test_plain.test_gemm, with_profile=with_profile)
    tests = {"cast": lambda device, seed: test_casts.test_every_number(device, *test_casts.PAIRS[seed % 6], False), "cpu/gemm_lanes": products,
             "copy": test_plain.test_slices, "arithmetic": test_plain.test_arithmetic, "gemm": products}
    calls = [partial(tests.get(kernel, test_plain.test_gather), device, seed=seed) for seed in range(16)]
    if mistake == "an index not bounded":
        calls = [partial(test_plain.test_indices_that_do_not_exist, device, vkdml.DML_TENSOR_DATA_TYPE.UINT32)]
    with pytest.raises(AssertionError, match=said):
        [call() for call in calls]


MISTAKES = {
    "a row too many": ("cpu/rnn_lanes", "common/time_loop.glsl", "row < dispatch.batch) {\n                if (!last", "row <= dispatch.batch) {\n                if (!last", "something was written behind a buffer"),
    "packed one place too far": ("pack", "pack.comp", "packed[i] = floatBitsToUint", "packed[i + 1] = floatBitsToUint", "something was written behind a buffer"),
    "a column too many read": ("pack", "common/pack.glsl", "column < tensor.columns", "column <= tensor.columns", "wrong.*found nan"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(device, mistaken, mistake):
    """A check must fail if a kernel uses words outside of a tensor, which drivers' bounds checks would hide."""
    kernel, file, old, new, said = MISTAKES[mistake]
    mistaken(kernel, file, old, new)
    case = drawn_case(make_desc(cells.RNN, 3, 3, 5, 9))
    with pytest.raises(AssertionError, match=said):
        check(case, run_on_device(device, case, RNN_OF_LANES))


# Rows and bits

RNN_OF_LANES = vkdml.Options(rows=4, lanes=True, resident=False, fused=True, schedule="sequence")
RUNS = 200
SHAPE, LENGTHS = (9, 7, 10, 21, 2), [9, 0, 1, 5, 8, 2, 9]  # the suite's schedules use this shape, so nothing more is compiled
ROW, VALUES = 3, (np.nan, np.inf)

EACH = [(schedule, variant, element) for place, schedule in enumerate(SCHEDULES) for which, variant in enumerate(VARIANTS)
        for number, element in enumerate(element_types.ALL) if number == 0 or (place + number) % len(VARIANTS) == which]


def make_trial(device, variant, element, rows):
    """Make the problem and buffers of a variant. rows: by input, a value for all elements of the batch row ROW."""
    cell, flags = VARIANTS[variant]
    case = drawn_case(make_desc(cell, *SHAPE, data_type=element.data_type, **flags), 0.2, element, seed=5)
    case.arrays["SequenceLengthsTensor"] = np.array(LENGTHS, np.uint32).reshape(1, 1, 1, -1)
    for field, value in rows.items():
        case.arrays[field][:, :, ROW] = value
    return Trial(device.gpu, case.problem, case.arrays)


@pytest.mark.family("each schedule with each cell, and each with each type", diagonal=9)
@pytest.mark.parametrize(("schedule", "variant", "element"), [
    pytest.param(*row, id="-".join([row[0], row[1], row[2].name])) for row in EACH])
def test_the_same_bits_each_time_and_rows_apart(device, schedule, variant, element):
    """Two hundred runs give the same bits, and NaN or infinity in one row does not change the others."""
    trial = make_trial(device, variant, element, {})
    forced = options(device, schedule, element)
    planned = plan(trial.problem, device.info, forced)
    recording.RUNNING.note(trial.problem, planned, forced)
    run = Run(trial, planned)
    run.execute()
    first = found = outputs(trial)
    for _ in range(RUNS - 1):
        if all(np.array_equal(found[field].view(np.uint8), first[field].view(np.uint8)) for field in first):
            run.execute()
            found = outputs(trial)
    assert_same(found, first)
    expected = other_rows(first)
    for value in VALUES:
        special = make_trial(device, variant, element, {"InputTensor": value, "HiddenInitTensor": -value})
        again = Run(special, plan(special.problem, device.info, forced))
        again.execute()
        assert_same(other_rows(outputs(special)), expected)


def outputs(trial):
    found = {}
    for field, output in trial.outputs().items():
        described = trial.problem.tensor(field)
        found[field] = described.view(output.view(DTYPES[trial.problem.element.name])[:described.size_of_elements])
    return found


def other_rows(found):
    """Return outputs by field, without the batch row ROW, the only one whose inputs may be NaN or infinity."""
    return {field: np.delete(array, ROW, 2) for field, array in found.items()}
