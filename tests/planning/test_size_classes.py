"""Lengths and batches share what is compiled."""

from collections import Counter
from itertools import product

import pytest

from vkdml.engine.vulkan.spirv import load
from vkdml.operators import cells
from vkdml.planning.plan import plan
from vkdml.planning.size_classes import representative
from vkdml_lab.suite.devices import DEVICES, make_problem

STEPS, BATCHES = range(1, 200), range(1, 40)
WIDTHS = {"I": (32, 128), "H": 64, "D": 2}  # of two layers, both bidirectional


def pipelines(problem, info):
    """What a plan needs compiled: kernels, with the constants that they declare."""
    planned = plan(problem, info)
    return {(dispatch.kernel, tuple(dispatch.constants[name] for name in load(dispatch.kernel).interface.constant_ids))
            for dispatch in planned.initialize + planned.execute + planned.fallback}


def two_layers(sizes, info, cell, changes):
    return set().union(*(pipelines(make_problem(*sizes, inputs, WIDTHS["H"], WIDTHS["D"], cell=cell, **changes), info)
                         for inputs in WIDTHS["I"]))


@pytest.mark.family("cells and drivers")
@pytest.mark.parametrize("name", ["llvmpipe", "Mesa 25", "SwiftShader", "GPU, 32 lanes"])
@pytest.mark.parametrize(("cell", "changes"), [
    (cells.LSTM, {"SequenceLengthsTensor": None}), (cells.LSTM, {}),
    (cells.GRU, {"LinearBeforeReset": True, "SequenceLengthsTensor": None}),
    (cells.GRU, {"LinearBeforeReset": False, "SequenceLengthsTensor": None}), (cells.GRU, {}), (cells.RNN, {}),
], ids=["LSTM", "LSTM, ragged", "GRU, reset after", "GRU", "GRU, ragged", "RNN, ragged"])
def test_all_lengths_and_batches_share_a_few(name, cell, changes):
    sizes = [*product((1, 2, 9, 23, 199), BATCHES), *product([*STEPS[:20], *STEPS[20::9]], (1, 16))]
    assert len(set().union(*(two_layers(each, DEVICES[name], cell, changes) for each in sizes))) <= 17


@pytest.mark.parametrize("name", ["llvmpipe", "SwiftShader", "GPU, 32 lanes"])
@pytest.mark.parametrize("reset_after", [False, True])
def test_lengths_side_by_side_share_all(name, reset_after):
    found = [pipelines(make_problem(steps, 1, 32, 64, LinearBeforeReset=reset_after), DEVICES[name]) for steps in (20, 21, 22, 23)]
    assert found[1:] == found[:-1]


@pytest.mark.parametrize("name", ["llvmpipe", "SwiftShader"])
def test_projected_layers_share_a_loop(name):
    """Whatever their inputs."""
    loops = [{(kernel, constants) for kernel, constants in pipelines(make_problem(100, 1, inputs, 128), DEVICES[name])
              if kernel.startswith("cpu/gru")} for inputs in (64, 100, 256)]
    assert len(loops[0]) == 1
    assert loops[1:] == loops[:-1]


def test_a_representative_is_of_its_own_class():
    for sizes in product((1, 2, 100), range(1, 300)):
        found = representative(*sizes)
        assert representative(*found) == found
        assert (found.batch == 1) == (sizes[1] == 1)


def test_a_program_that_runs_for_a_while_meets_no_new_class():
    """Of 300 random sizes all classes but that of a single step of one row are met, or one in many programs meets another."""
    sizes = [representative(*each) for each in product(STEPS, BATCHES)]
    often = [count for found, count in Counter(sizes).items() if found != (1, 1)]
    assert min(often) / len(sizes) * 300 > 5
