"""Compares kernels that store single 16-bit elements with those that store words: tensors and gaps must have the same bits."""

from dataclasses import replace

import numpy as np
import pytest

import vkdml as v
from vkdml.operators import table
from vkdml.operators.element_types import BFLOAT16, FLOAT16
from vkdml.operators.plain_problem import elementwise
from vkdml.operators.problem import from_desc
from vkdml.planning import plain
from vkdml.planning.options import SCHEDULES, Options
from vkdml.planning.plan import plan
from vkdml_lab.suite.support import CELLS, make_desc, random_arrays, random_strides, run_over_pattern, tensor

SIZES = 3, 5, 7
TANH = v.DML_ACTIVATION_TANH_OPERATOR_DESC()
WAYS = [Options(lanes=False, schedule=schedule) for schedule in SCHEDULES]


@pytest.fixture
def both(device):
    """Return the device's DeviceInfo with 16-bit storage, and a copy without. Skips the test if the device lacks it."""
    if not device.info.storage_16bit:
        pytest.skip(f"{device.info.name} cannot store 16 bits of a buffer")
    return device.info, replace(device.info, storage_16bit=False)


def halves(*sizes, element=FLOAT16, **described):
    return tensor(*sizes, data_type=element.data_type, **described)


def random_halves(problem):
    """Draw a problem's inputs, by field: float16 numbers of about unit size, and integers below 9 for IndicesTensor."""
    rng = np.random.default_rng(0)
    return {field: (rng.integers(0, 9, problem.tensor(field).sizes).astype(np.int32) if field == "IndicesTensor"
                    else rng.standard_normal(problem.tensor(field).size_of_elements).astype(np.float16)) for field in problem.inputs
            if problem.has(field)}


def expect_same(device, problem, plans, arrays):
    kernels = [[dispatch.kernel for dispatch in planned.execute] for planned in plans]
    assert any(kernel.startswith("halves/") for kernel in kernels[0])
    assert kernels[1] == [kernel.removeprefix("halves/") for kernel in kernels[0]]
    found = [run_over_pattern(device, problem, planned, arrays) for planned in plans]
    for field in found[0]:
        np.testing.assert_array_equal(found[0][field], found[1][field])


@pytest.mark.parametrize("element", [FLOAT16, BFLOAT16], ids=lambda element: element.name)
def test_every_number_is_rounded_alike(device, both, element):
    """Each number, divided by 3, has the same bits with and without 16-bit storage. Distant workgroups store neighbours."""
    of_rows, of_columns = halves(2, 2**15, element=element), halves(2, 2**15, element=element, Strides=(1, 2))
    problem = elementwise(v.DML_ACTIVATION_LINEAR_OPERATOR_DESC(of_rows, of_columns, Alpha=1 / 3, Beta=1e-8), element)
    expect_same(device, problem, [plain.plan(problem, info) for info in both], {"InputTensor": np.arange(2**16, dtype=np.uint16)})


APART = halves(*SIZES, Strides=(1, 21, 3))  # neighbours in memory are rows apart
SPACED = halves(*SIZES, Strides=(71, 14, 2))  # a gap behind each element
PLAIN = {
    "arithmetic": v.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC(ATensor=SPACED, BTensor=halves(*SIZES), OutputTensor=APART, FusedActivation=TANH),
    "arithmetic, spaced": v.DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC(ATensor=APART, BTensor=APART, OutputTensor=SPACED),
    "GEMM": v.DML_GEMM_OPERATOR_DESC(
        ATensor=halves(5, 19), BTensor=halves(19, 35), OutputTensor=halves(5, 35, Strides=(37, 1)), Alpha=0.5, FusedActivation=TANH),
    "copy": v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC(InputTensor=SPACED, OutputTensor=APART),
    "join": v.DML_JOIN_OPERATOR_DESC(InputTensors=[halves(3, 2), halves(3, 1)], OutputTensor=halves(3, 3), Axis=1),
    "gather": v.DML_GATHER_OPERATOR_DESC(
        InputTensor=halves(1, 9, 7), IndicesTensor=tensor(1, 3, 5, data_type=v.DML_TENSOR_DATA_TYPE.INT32), OutputTensor=APART,
        Axis=1, IndexDimensions=2),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_operators(device, both, with_profile, name):
    with_profile(prefers_shuffles=False)  # kernels for CPU drivers store whole words
    problem = table.from_desc(PLAIN[name])
    expect_same(device, problem, [plain.plan(problem, info) for info in both], random_halves(problem))


@pytest.mark.family("each cell in each schedule")
@pytest.mark.parametrize("options", WAYS, ids=lambda options: options.schedule)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_recurrent_operators(device, both, cell, options):
    """Recurrent operators with an odd H, lengths and gaps in outputs have the same bits with and without 16-bit storage."""
    rng, element = np.random.default_rng(1), (FLOAT16, BFLOAT16)[WAYS.index(options) % 2]
    desc = make_desc(cell, 5, 3, 4, 21, data_type=element.data_type)
    desc = replace(desc, **{field: replace(getattr(desc, field), Strides=random_strides(rng, getattr(desc, field).Sizes, False))
                            for field in cell.outputs})
    problem = from_desc(desc, element=element)
    arrays = random_arrays(desc, rng, element)
    expect_same(device, problem, [plan(problem, info, options) for info in both], arrays)
