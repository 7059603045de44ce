"""Tests every kernel near the limit of iterations: some drivers silently end an invocation's loops after a total number of
them. Dispatches as near to this limit as planning/tiling.py allows must be right.
"""

from dataclasses import replace

import numpy as np
import pytest

import vkdml
from vkdml.operators import cells, element_types
from vkdml.planning import profiles
from vkdml.planning.options import Options
from vkdml.planning.plan import best
from vkdml.planning.tiling import Target
from vkdml_lab.suite import test_plain
from vkdml_lab.suite.support import CELLS, check, drawn_case, make_desc, run_on_device, tensor

LIMIT = 65_535
LANES = Options(schedule="sequence", lanes=True, resident=False)
PLAIN = Options(schedule="sequence", lanes=False)
PERSISTENT = Options(schedule="persistent", lanes=False, parts=2)
# T, B, I and H that bring each kernel near the limit, and the options that choose the kernel; first those that drivers with the
# limit choose
LOOPS = {
    "lanes": ((400, 1, 16, 100), replace(LANES, fused=True)),
    "lanes, rows": ((120, 16, 8, 100), replace(LANES, rows=16, units_at_once=2, fused=False)),
    "resident": ((8000, 1, 3, 20), Options(schedule="sequence", resident=True, units_at_once=1)),
    "resident, rows": ((1500, 9, 3, 40), Options(schedule="sequence", resident=True, rows=9, units_at_once=2)),
    "lanes, unrolled": ((3, 1, 5, 2000), replace(LANES, units_at_once=1, fused=True)),
    "float64, fused": ((200, 2, 16, 90), Options(schedule="sequence", fused=True)),
    "plain, turns": ((600, 2, 8, 100), replace(PLAIN, rows=2, workgroup=32)),
    "float64": ((300, 1, 16, 90), Options(schedule="sequence", fused=False)),
    "plain": ((7500, 1, 8, 20), PLAIN),
    "plain, streamed": ((5000, 2, 8, 40), replace(PLAIN, rows=2, register_loads=0)),
    "plain, stepped": ((2, 7000, 3, 16), replace(PLAIN, schedule="stepped", rows=1, parts=2, register_loads=0)),
    "plain, persistent": ((6500, 1, 3, 16), PERSISTENT),
    "plain, persistent, tiles": ((450, 20, 3, 40), replace(PERSISTENT, rows=1, register_loads=0, shared_loads=0)),
}
# The plain kernel is missing: its blocks have so many columns that no buffer could hold the weights
PROJECTIONS = {
    "lanes": ((2, 16, 220_000, 8), replace(LANES, fused=False)),
    "float64": ((2, 3, 12_000, 8), Options(schedule="sequence", fused=False)),
}


@pytest.fixture
def without_margin(device, with_profile):
    """Return the device, whose plans may now reach the driver's exact limit of iterations. Skips drivers without a limit."""
    if profiles.profile(device.info).most_iterations == 2**31:
        pytest.skip("the driver ends no loops")
    with_profile(most_iterations=LIMIT)
    return device


def run(device, name, cell, shape, options, lengths):
    """Run and check a case. Returns its tiling. shape: T, B, I and H. lengths: whether one of the rows is shorter than T."""
    element = element_types.FLOAT64 if "float64" in name else element_types.FLOAT32
    # Peepholes may keep a forget gate at 1, so that roundings would add up over thousands of steps
    left_out = {"PeepholeTensor"} & set(cell.tensors) | (set() if lengths else {"SequenceLengthsTensor"})
    desc = make_desc(cell, *shape, data_type=element.data_type, **dict.fromkeys(left_out))
    case = drawn_case(desc, element=element, seed=7)
    if lengths:
        case.arrays["SequenceLengthsTensor"][...] = shape[0]
        case.arrays["SequenceLengthsTensor"][..., shape[1] // 2] -= 1
    check(case, run_on_device(device, case, options))
    return best(Target(case.problem, device.info, options))


@pytest.mark.family("each kernel's time loop with each cell", diagonal=7)
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "ragged"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", LOOPS)
def test_time_loop(without_margin, name, cell, lengths):
    tiling = run(without_margin, name, cell, *LOOPS[name], lengths)
    assert 0.5 * LIMIT < tiling.iterations(tiling.loop.chunk_steps) <= LIMIT


@pytest.mark.family("each kernel's projection")
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "ragged"])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_projection(without_margin, name, lengths):
    tiling = run(without_margin, name, cells.GRU, *PROJECTIONS[name], lengths)
    assert 0.9 * LIMIT < tiling.loops_of_projection() <= LIMIT


@pytest.mark.parametrize(("rows", "kernel"), [(1, "gemm"), (9, "cpu/gemm_lanes")])
def test_gemm_near_the_limit(without_margin, rows, kernel):
    """A GEMM is right for the largest K that the limit allows: all blocks of K are in the sum."""
    k = (LIMIT - 100) * 16 if kernel == "gemm" else (LIMIT - 162) // 3 * 8
    desc = vkdml.DML_GEMM_OPERATOR_DESC(ATensor=tensor(k, rows), BTensor=tensor(k, 1), OutputTensor=tensor(rows, 1), TransA=vkdml.DML_MATRIX_TRANSFORM.TRANSPOSE)
    assert without_margin.compile_operator(without_margin.create_operator(desc)).plan.execute[0].kernel == kernel
    a = np.random.default_rng(0).integers(0, 2, (k, rows)).astype(np.float32)
    result = test_plain.run(without_margin, desc, {"ATensor": a.ravel(), "BTensor": np.ones(k, np.float32)})
    assert (result[:, 0] == a.sum(0, dtype=np.float64)).all()
