"""The table of GPUs, and that others read their figures there; tests/house.py holds that no figure is written elsewhere."""

from dataclasses import replace

import pytest

from vkdml.planning import gpus
from vkdml.planning.gpus import named_units
from vkdml.planning.plan import ranked
from vkdml.planning.profiles import PROFILES, gpu_rates
from vkdml.planning.tiling import Target
from vkdml_lab.gpu.gpus import GPUS as CHECKED
from vkdml_lab.suite.devices import GPU, GPUS, make_problem
from vkdml_lab.suite.support import CELLS

VENDORS = {"radeon": 0x1002, "nouveau": 0x10DE, "intel": 0x8086}


@pytest.mark.parametrize("rates", gpus.GPUS.values(), ids=list(gpus.GPUS))
def test_rates_are_possible(rates):
    """A workgroup of 128 with all that an invocation may hold fits a unit, as does the least shared memory of Vulkan."""
    assert rates.most_weights < rates.invocation_registers
    assert 128 * rates.invocation_registers <= rates.registers
    assert rates.most_invocations >= 256
    assert rates.unit_shared_bytes >= 32768
    assert rates.memory_rate < rates.cache_rate < rates.units * rates.clock * 512
    assert 2**17 <= rates.cache_bytes <= 2**27
    if rates.memory_cache_bytes:
        assert rates.memory_rate < rates.memory_cache_rate < rates.cache_rate
        assert rates.cache_bytes < rates.memory_cache_bytes
    assert rates.latency < rates.seen


def test_profiles_and_the_checker_read_the_table():
    rows = set(map(id, gpus.GPUS.values()))
    assert all(id(row.gpu) in rows for row in PROFILES.values())
    assert all(id(gpu.rates) in rows for gpu in CHECKED.values())


@pytest.mark.parametrize("gpu", [gpu for gpu in CHECKED.values() if gpu.title], ids=lambda gpu: gpu.name)
def test_a_checked_gpu_is_planned_for_as_what_it_is(gpu):
    """The planner's row for its name has units alike; and as many of them, where the name has to say how many."""
    info = replace(GPU, name=gpu.title, vendor=VENDORS[gpu.driver], min_subgroup_size=gpu.rates.subgroup_width)
    planned = gpu_rates(info)
    for figure in ("lanes", "registers", "invocation_registers", "most_weights", "unit_shared_bytes", "shared_rate", "sinks_loads"):
        assert getattr(planned, figure) == getattr(gpu.rates, figure), figure
    assert named_units(gpu.title) in (0, gpu.rates.units)


def test_data_comes_from_the_nearest_cache_that_holds_it():
    rates = gpus.GPUS["RX 6900 XT"]
    assert [rates.rate_of(size * 2**20) for size in (4, 4.1, 128, 129)] == [
        rates.cache_rate, rates.memory_cache_rate, rates.memory_cache_rate, rates.memory_rate]
    assert gpu_rates(GPUS["RX 6900 XT"]).memory_cache_bytes > 2**26
    assert gpu_rates(GPUS["780M"]).memory_cache_bytes == 0, "integrated GPUs of its kind have no such cache"


SIZES = [(1, 1, 1024), (250, 1, 64), (100, 1, 256), (100, 1, 1024), (100, 1, 2048), (50, 4, 512), (50, 16, 1024), (50, 64, 512),
         (50, 64, 1024), (25, 256, 1024), (50, 300, 48)]


@pytest.mark.family("each device with each cell")
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_no_estimate_is_below_what_bytes_and_products_take(name, cell):
    """Of any tiling: the weights that a step loads and the input's part come from a cache that holds them, or from memory."""
    info = GPUS[name]
    rates, checked = gpu_rates(info), 0
    peak, gates = rates.units * rates.lanes * rates.clock, len(cell.gates)
    for steps, batch, hidden in SIZES:
        problem = make_problem(steps, batch, hidden, hidden, 1, cell=cell, SequenceLengthsTensor=None)
        target, weights = Target(problem, info), 4 * gates * hidden**2
        for tiling in ranked(target):
            loop, steps, vectors = tiling.loop, tiling.problem.steps, tiling.problem.batch * hidden  # of the size class
            streamed = weights * loop.streamed_loads / loop.group_loads
            once = weights - streamed if loop.schedule == "stepped" else 0
            x = 16 * vectors
            loaded = (once + streamed * loop.tiles_of_group) / rates.rate_of(once + streamed) + x / rates.rate_of(steps * x)
            assert tiling.step_estimate(target) >= max(loaded, gates * hidden * vectors / peak) * (1 - 1e-9), tiling
            samples = 4 * steps * vectors
            moved = weights / rates.rate_of(weights) + samples / rates.rate_of(samples) + steps * x / rates.memory_rate
            estimate = tiling.projection_estimate(target, steps)
            assert estimate >= max(moved, gates * hidden * steps * vectors / peak) * (1 - 1e-9), tiling.projection
            checked += 1
    assert checked > 5 * len(SIZES)
