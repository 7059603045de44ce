"""Sizes that follow from a tiling: whatever a kernel reads or writes has its place."""

from hypothesis import given, settings

from vkdml.planning.plan import tilings
from vkdml.planning.tiling import Target
from vkdml_lab.suite.devices import devices, problems


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
