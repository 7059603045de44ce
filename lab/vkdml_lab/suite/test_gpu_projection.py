"""Tests GPUs' kernel of the projection (X times W) on any driver. Each tile size must be right, and all give the same bits."""

from dataclasses import replace

import numpy as np
import pytest

from vkdml.operators import cells, element_types
from vkdml.operators.header import descs
from vkdml.planning import plan
from vkdml.planning.families import gpu_projection
from vkdml.planning.options import Options
from vkdml_lab.suite.support import assert_same, check, drawn_case, make_desc, random_strides, run_on_device

PROJECTED = Options(schedule="sequence", lanes=False, fused=False)
TILES = {f"{tile.samples}x{tile.units}": tile for tile in gpu_projection._TILES}
LENGTHS = dict.fromkeys(["SequenceLengthsTensor"])
REVERSE, BOTH = (descs.DML_RECURRENT_NETWORK_DIRECTION(direction) for direction in (1, 2))


@pytest.fixture
def only(device, monkeypatch):
    """Yield a function: only(tile) makes the planner use this tile size, even if the device has too few registers for it."""
    def leave(tile):
        if tile.workgroup > device.info.max_workgroup_invocations:
            pytest.skip(f"the device has no workgroups of {tile.workgroup} invocations")
        monkeypatch.setattr(gpu_projection, "_TILES", (replace(tile, registers=0),))
        plan.ranked.cache_clear()
    yield leave
    plan.ranked.cache_clear()


def make_case(cell, sizes, element=element_types.FLOAT32, seed=8, **changes):
    return drawn_case(make_desc(cell, *sizes, data_type=element.data_type, **changes), element=element, seed=seed)


def strided(case):
    """Return a case like this one, but with new inputs, and with strides and gaps in X."""
    x = case.desc.InputTensor
    desc = replace(case.desc, InputTensor=replace(x, Strides=random_strides(np.random.default_rng(9), x.Sizes, False)))
    return drawn_case(desc, element=case.element)


def with_infinity(case):
    """Put infinity into X's last column. A kernel must not multiply it by the zeros that pad the last block of columns."""
    case.arrays["InputTensor"][0, :, 1, -1] = np.inf
    return case


# Columns that are no whole vec4, load or block, and several blocks; units that are no whole tile; samples that end within a
# tile, and several tiles
CASES = {
    "odd": make_case(cells.RNN, (3, 11, 13, 7), **LENGTHS),
    "many": make_case(cells.LSTM, (7, 20, 77, 100), PeepholeTensor=None, **LENGTHS),
    "lengths of many rows": make_case(cells.RNN, (2, 150, 5, 9)),
    "both directions": make_case(cells.GRU, (4, 5, 30, 40, 2)),
    "float16, odd": make_case(cells.LSTM, (4, 5, 21, 24, 2), element_types.FLOAT16),
    "strided": strided(make_case(cells.GRU, (4, 5, 12, 10))),
    "infinity in vec4s": with_infinity(make_case(cells.RNN, (3, 4, 20, 7), element_types.FLOAT16, **LENGTHS)),
    "bfloat16": make_case(cells.RNN, (4, 5, 80, 9), element_types.BFLOAT16),
    "one of all": make_case(cells.GRU, (1, 1, 1, 1), **LENGTHS),
    "few columns": make_case(cells.RNN, (1, 1, 5, 40), **LENGTHS),
    "aligned": make_case(cells.GRU, (5, 3, 72, 70), **LENGTHS),
    "lengths": make_case(cells.GRU, (6, 9, 20, 10)),
    "reverse": make_case(cells.LSTM, (5, 4, 9, 17), Direction=REVERSE),
    "float16": make_case(cells.GRU, (4, 5, 36, 24), element_types.FLOAT16, **LENGTHS),
    "float16, strided": strided(make_case(cells.RNN, (4, 5, 16, 24), element_types.FLOAT16)),
    "infinity": with_infinity(make_case(cells.RNN, (3, 4, 13, 7), **LENGTHS)),
}


@pytest.mark.family("each tile with each case", diagonal=8)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tile", TILES)
def test_each_tile_is_right_and_gives_the_same_bits(device, only, tile, name):
    check_tile(device, only, tile, CASES[name])


def check_tile(device, only, tile, case):
    """Compare the results of a tile size with the reference, and their bits with those of the last size in TILES."""
    found = []
    for one in (tile, list(TILES)[-1]):
        only(TILES[one])
        found.append(run_on_device(device, case, PROJECTED))
    check(case, found[0])
    assert_same(*found)


@pytest.mark.parametrize("tile", TILES)
def test_a_sums_sign_of_zero_is_the_same_from_all_tiles(device, only, tile):
    """Sums that are -0 stay -0: the zeros that pad a tile's last block must not turn them into +0."""
    identity = descs.DML_ACTIVATION_IDENTITY_OPERATOR_DESC()
    case = make_case(cells.GRU, (2, 3, 24, 64), LinearBeforeReset=True, ActivationDescs=[identity, identity], **LENGTHS)
    for field in ("InputTensor", "BiasTensor", "HiddenInitTensor"):
        case.arrays[field][...] = -0.0
    for field in ("WeightTensor", "RecurrenceTensor"):
        case.arrays[field] = np.abs(case.arrays[field])
    check_tile(device, only, tile, case)
