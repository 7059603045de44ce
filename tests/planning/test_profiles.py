"""Each device has the profile of its driver's family."""

from dataclasses import replace

import pytest

from tests.planning.devices import CPU, DEVICES, GPU
from vkdml.planning import profiles
from vkdml.planning.profiles import PROFILES, RESIDENT, ROWS, profile


@pytest.mark.parametrize(("info", "name"), [
    (CPU, "llvmpipe"),
    (replace(CPU, driver_version="Mesa 22.3.6 (LLVM 15.0.6)"), "llvmpipe"),
    (replace(CPU, driver_version="Mesa 24.0.0"), "llvmpipe of Mesa 24 and 25"),
    (replace(CPU, driver_version="Mesa 25.3.0-devel (git-1)"), "llvmpipe of Mesa 24 and 25"),
    (replace(CPU, driver_version="Mesa 26.2.6-1 (LLVM 22.1.8)"), "llvmpipe of Mesa 26"),
    (replace(CPU, driver_version="Mesa 30.0.0"), "llvmpipe of Mesa 26"),
    (replace(CPU, driver="SwiftShader driver"), "SwiftShader"),
    (replace(CPU, driver="any"), "other CPU drivers"),
    (GPU, "GPUs"),
    (replace(GPU, driver="radv", driver_version="Mesa 26.2.6"), "GPUs"),
], ids=lambda value: value if isinstance(value, str) else value.driver_version or value.driver)
def test_profile(info, name):
    assert profile(info) is PROFILES[name]


def test_every_row_is_some_device():
    assert {id(profile(info)) for info in DEVICES.values()} == set(map(id, PROFILES.values()))


@pytest.mark.parametrize("name", PROFILES)
def test_kernels_have_rates(name):
    row = PROFILES[name]
    assert (ROWS in row.kernels) == (row.rates.rows is not None)
    assert (RESIDENT in row.kernels) == (row.rates.resident is not None)


def test_only_llvmpipe_ends_loops():
    limits = {name: row.most_iterations for name, row in PROFILES.items() if row.most_iterations < 2**31}
    assert set(limits) == {name for name, row in PROFILES.items() if row.driver == "llvmpipe"}
    assert max(limits.values()) < 65_535


def test_memory_is_the_hosts_on_cpu_drivers():
    assert all(row.host_memory == row.is_cpu for row in PROFILES.values())
    assert profiles.PRIVATE_ARRAYS == 16
