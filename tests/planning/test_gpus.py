"""The table of GPUs, and that others read their figures there; tests/house.py holds that no figure is written elsewhere."""

from dataclasses import replace

import pytest

from vkdml.planning import gpus
from vkdml.planning.gpus import named_units
from vkdml.planning.profiles import PROFILES, gpu_rates
from vkdml_lab.gpu.gpus import GPUS as CHECKED
from vkdml_lab.suite.devices import GPU

VENDORS = {"radeon": 0x1002, "nouveau": 0x10DE, "intel": 0x8086}


@pytest.mark.parametrize("rates", gpus.GPUS.values(), ids=list(gpus.GPUS))
def test_rates_are_possible(rates):
    """A workgroup of 128 with all that an invocation may hold fits a unit, as does the least shared memory of Vulkan."""
    assert rates.most_weights < rates.invocation_registers
    assert 128 * rates.invocation_registers <= rates.registers
    assert rates.most_invocations >= 256
    assert rates.unit_shared_bytes >= 32768
    assert rates.memory_rate < rates.cache_rate < rates.units * rates.clock * 512
    assert rates.latency < rates.seen < rates.meeting


def test_profiles_and_the_checker_read_the_table():
    rows = set(map(id, gpus.GPUS.values()))
    assert all(id(row.gpu) in rows for row in PROFILES.values() if row.gpu)
    assert all(id(gpu.rates) in rows for gpu in CHECKED.values())


@pytest.mark.parametrize("gpu", [gpu for gpu in CHECKED.values() if gpu.title], ids=lambda gpu: gpu.name)
def test_a_checked_gpu_is_planned_for_as_what_it_is(gpu):
    """The planner's row for its name has units alike; and as many of them, where the name has to say how many."""
    info = replace(GPU, name=gpu.title, vendor=VENDORS[gpu.driver], min_subgroup_size=gpu.rates.subgroup_width)
    planned = gpu_rates(info)
    for figure in ("lanes", "registers", "invocation_registers", "most_weights", "unit_shared_bytes", "shared_rate", "sinks_loads"):
        assert getattr(planned, figure) == getattr(gpu.rates, figure), figure
    assert named_units(gpu.title) in (0, gpu.rates.units)
