"""Some drivers end all loops of an invocation, silently, after so many iterations together. Dispatches that come as near to that
as planning/tiling.py lets them are computed right: its bound is not too small, for any kernel.
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
# T, B, I and H with which a kernel comes near it, and the options that choose the kernel
LOOPS = {
    "lanes": ((400, 1, 16, 100), replace(LANES, fused=True)),
    "lanes, rows": ((120, 16, 8, 100), replace(LANES, rows=16, units_at_once=2, fused=False)),
    "lanes, unrolled": ((3, 1, 5, 2000), replace(LANES, units_at_once=1, fused=True)),
    "resident": ((8000, 1, 3, 20), Options(schedule="sequence", resident=True, units_at_once=1)),
    "resident, rows": ((1500, 9, 3, 40), Options(schedule="sequence", resident=True, rows=9, units_at_once=2)),
    "plain": ((7500, 1, 8, 20), PLAIN),
    "plain, streamed": ((5000, 2, 8, 40), replace(PLAIN, rows=2, register_loads=0)),
    "plain, turns": ((600, 2, 8, 100), replace(PLAIN, rows=2, workgroup=32)),
    "plain, stepped": ((2, 7000, 3, 16), replace(PLAIN, schedule="stepped", rows=1, parts=2, register_loads=0)),
    "plain, persistent": ((6500, 1, 3, 16), PERSISTENT),
    "plain, persistent, tiles": ((450, 20, 3, 40), replace(PERSISTENT, rows=1, register_loads=0, shared_loads=0)),
}
FLOAT64_LOOPS = {
    "float64": ((300, 1, 16, 90), Options(schedule="sequence", fused=False)),
    "float64, fused": ((200, 2, 16, 90), Options(schedule="sequence", fused=True)),
}
# Not the plain one, which has so many columns in a block that no device's buffer holds weights enough
PROJECTIONS = {
    "lanes": ((2, 16, 220_000, 8), replace(LANES, fused=False)),
    "float64": ((2, 3, 12_000, 8), Options(schedule="sequence", fused=False)),
}


@pytest.fixture
def without_margin(device, with_profile):
    """The device, with dispatches up to the driver's very limit."""
    if profiles.profile(device.info).most_iterations == 2**31:
        pytest.skip("the driver ends no loops")
    with_profile(most_iterations=LIMIT)
    return device


def run(device, name, cell, shape, options, lengths):
    """The tiling that ran, its results checked. lengths: of all steps, but for one row's; or none."""
    element = element_types.FLOAT64 if "float64" in name else element_types.FLOAT32
    # Without peepholes, with which a forget gate may stay at 1, and roundings grow over thousands of steps
    left_out = {"PeepholeTensor"} & set(cell.tensors) | (set() if lengths else {"SequenceLengthsTensor"})
    desc = make_desc(cell, *shape, data_type=element.data_type, **dict.fromkeys(left_out))
    case = drawn_case(desc, element=element, seed=7)
    if lengths:
        case.arrays["SequenceLengthsTensor"][...] = shape[0]
        case.arrays["SequenceLengthsTensor"][..., shape[1] // 2] -= 1
    check(case, run_on_device(device, case, options))
    return best(Target(case.problem, device.info, options))


@pytest.mark.family("each kernel's time loop with each cell")
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "ragged"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", LOOPS | FLOAT64_LOOPS)
def test_time_loop(without_margin, name, cell, lengths):
    tiling = run(without_margin, name, cell, *(LOOPS | FLOAT64_LOOPS)[name], lengths)
    assert 0.5 * LIMIT < tiling.iterations(tiling.loop.chunk_steps) <= LIMIT


@pytest.mark.family("each kernel's projection")
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "ragged"])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_projection(without_margin, name, lengths):
    tiling = run(without_margin, name, cells.GRU, *PROJECTIONS[name], lengths)
    assert 0.9 * LIMIT < tiling.loops_of_projection() <= LIMIT


def test_gemm_near_the_limit(without_margin):
    """A K of as many blocks as there may be: each of them is in the sum."""
    k = (LIMIT - 100) * 16
    desc = vkdml.DML_GEMM_OPERATOR_DESC(ATensor=tensor(1, k), BTensor=tensor(k, 1), OutputTensor=tensor(1, 1))
    a = np.random.default_rng(0).integers(0, 2, k).astype(np.float32)
    result = test_plain.run(without_margin, desc, {"ATensor": a, "BTensor": np.ones(k, np.float32)})
    assert result[0, 0] == a.sum(dtype=np.float64)
