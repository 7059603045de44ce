"""Sizes that follow from a tiling: whatever a kernel reads or writes has its place."""

import pytest
from hypothesis import given, settings

from vkdml.operators import element_types
from vkdml.planning import tiling as sizes
from vkdml.planning.options import Options
from vkdml.planning.plan import best, tilings
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import CPU, GPUS, devices, make_problem, problems


@settings(max_examples=30, deadline=None, derandomize=True)
@given(problems, devices)
def test_every_row_unit_and_column_has_its_place(problem, info):
    for tiling in tilings(Target(problem, info)):
        loop, projection = tiling.loop, tiling.projection
        tiles_of_group = loop.tiles_of_group if loop.kernel.startswith("gpu/") else 1
        assert loop.tiles * tiles_of_group * loop.rows >= problem.batch
        assert loop.parts * loop.part_units >= problem.hidden
        assert loop.units >= problem.hidden
        if not loop.kernel.startswith("gpu/"):  # whose units past H have the weights of the last
            assert loop.parts * loop.part_units >= loop.units
        assert loop.hidden.columns >= problem.hidden
        assert tiling.input.columns >= problem.input_size
        for packing in (loop.hidden, tiling.input):
            assert loop.units % packing.together == 0
        if projection:
            assert projection.group_units * projection.groups_of_units >= loop.units
            assert projection.tiles(7) * projection.rows >= 7 * problem.batch
            assert projection.input is tiling.input


@pytest.mark.parametrize(("element", "of_a_number"), [("FLOAT32", 4), ("FLOAT16", 4), ("BFLOAT16", 4), ("FLOAT64", 8)])
def test_bytes(element, of_a_number):
    """Of 9 rows and 32 units of 40 columns: h before and after a step, and its update gate; three gates and a place for a fourth."""
    element = getattr(element_types, element)
    problem = make_problem(2, 9, 40, 32, element=element)
    forced = {"workgroup": 32, "fused": False} if element.pairs else {"rows": 9}
    tiling = best(Target(problem, CPU, Options(lanes=False, schedule="sequence", **forced)))
    weight, units = 2 if element.itemsize == 2 else of_a_number, 32 if element.pairs else 64  # with padding
    assert tiling.internal == {
        sizes.PACKED_INPUT: units * (40 * 3 * weight + 4 * of_a_number),
        sizes.PACKED_HIDDEN: units * (32 * 3 * weight + 4 * of_a_number),
        sizes.STATE: 3 * 9 * 32 * of_a_number,
        sizes.GATES: 2 * 9 * units * 4 * of_a_number,
    }


def test_parts_meet_in_a_buffer_of_their_own():
    """A word that says whether they gave up, and a counter for each direction and group of rows, in lines of the cache."""
    loop = (tiling := best(Target(make_problem(5, 9, 8, 64, 2), GPUS["RTX 3090"], Options(meeting="barrier", rows=4)))).loop
    assert loop.tiles == 3
    assert tiling.internal[sizes.MEETING] == (1 + 2 * 3) * 64
    assert tiling.internal[sizes.STATE] == loop.states_bytes


@pytest.mark.parametrize(("batch", "lengths", "skips"), [(128, {}, True), (129, {}, False), (8, {"SequenceLengthsTensor": None}, False)])
def test_the_projection_skips_padding(batch, lengths, skips):
    """Where there is some, and few rows to look through."""
    projection = best(Target(make_problem(5, batch, 8, 64, **lengths), CPU, Options(fused=False))).projection
    assert projection.skips_padding == skips
