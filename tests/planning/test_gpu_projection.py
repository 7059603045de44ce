"""The tiles of the GPUs' projection: which a device can run, and which is chosen."""

from dataclasses import replace

import pytest

from vkdml.operators import element_types
from vkdml.planning.families.gpu_projection import projections
from vkdml.planning.options import Options
from vkdml.planning.plan import best
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import DEVICES, GPU, make_problem
from vkdml_lab.suite.support import CELLS

PROJECTED = Options(schedule="sequence", lanes=False, fused=False)
INTEL, NVIDIA = 0x8086, 0x10DE
LARGE = replace(GPU, vendor=NVIDIA, compute_units=82, max_shared_memory=49152)


def chosen(problem, info):
    return best(Target(problem, info, PROJECTED)).projection


def all_tilings(problem, info):
    return projections(Target(problem, info))


@pytest.mark.parametrize("info", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("element", [element_types.FLOAT32, element_types.FLOAT16], ids=lambda element: element.name)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_every_device_has_a_tile_within_its_limits(info, element, cell):
    found = all_tilings(make_problem(10, 10, 33, 70, cell=cell, element=element), info)
    assert found
    assert all(tiling.workgroup <= info.max_workgroup_invocations for tiling in found)
    assert all(tiling.shared_bytes <= info.max_shared_memory for tiling in found)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_all_tiles_have_the_same_packed_weights(cell):
    layouts = {(tiling.input, tiling.units) for tiling in all_tilings(make_problem(10, 10, 33, 70, cell=cell), LARGE)}
    assert len(layouts) == 1


def test_many_samples_get_large_tiles_and_few_get_workgroups_for_all_cores():
    many, few = chosen(make_problem(64, 64, 1024, 1024), LARGE), chosen(make_problem(1, 1, 1024, 1024), LARGE)
    assert (many.rows, many.group_units) == (128, 32)
    assert few.groups_of_units >= LARGE.compute_units
    assert many.workgroup > few.workgroup


def test_iterations_are_those_of_blocks_and_of_the_search_for_samples():
    with_lengths = best(Target(make_problem(10, 100, 1024, 64), GPU, PROJECTED))
    unsearched = replace(with_lengths.projection, problem=make_problem(10, 100, 1024, 64, SequenceLengthsTensor=None))
    without = replace(with_lengths, projection=unsearched)
    assert without.loops_of_projection() >= unsearched.blocks > 16
    assert with_lengths.loops_of_projection() > without.loops_of_projection() + 100
