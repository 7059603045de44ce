"""Each device has the profile of its driver's family."""

from dataclasses import replace

import pytest

from vkdml.planning.options import Options
from vkdml.planning.plan import plan
from vkdml.planning.profiles import PROFILES, compute_units, gpu_rates, profile
from vkdml_lab.suite.devices import CPU, DEVICES, GPU, GPUS, make_problem


@pytest.mark.parametrize(("info", "name"), [
    (CPU, "llvmpipe"),
    (replace(CPU, driver_version="Mesa 22.3.6 (LLVM 15.0.6)"), "llvmpipe"),
    (replace(CPU, driver_version="Mesa 24.0.0"), "llvmpipe of Mesa 24 and 25"),
    (replace(CPU, driver_version="Mesa 25.3.0-devel (git-1)"), "llvmpipe of Mesa 24 and 25"),
    (replace(CPU, driver_version="Mesa 26.2.6-1 (LLVM 22.1.8)"), "llvmpipe of Mesa 26"),
    (replace(CPU, driver_version="Mesa 30.0.0"), "llvmpipe of Mesa 26"),
    (replace(CPU, driver="SwiftShader driver"), "SwiftShader"),
    (replace(CPU, driver="any"), "other CPU drivers"),
    (GPU, "other GPUs"),
    (replace(GPU, driver="radv", driver_version="Mesa 26.2.6"), "other GPUs"),
], ids=lambda value: value if isinstance(value, str) else value.driver_version or value.driver)
def test_profile(info, name):
    assert profile(info) is PROFILES[name]


@pytest.mark.parametrize(("gpu", "name", "units"), [
    ("RX 7900 XTX", "AMD RDNA 3 and 4, large", 96),  # compute units, as its driver counts them
    ("RX 6900 XT", "AMD RDNA", 80),
    ("780M", "AMD RDNA", 12),
    ("Vega 64", "AMD GCN and CDNA", 64),
    ("H200", "NVIDIA Hopper and Blackwell for data centers", 132),
    ("A100", "NVIDIA Ampere for data centers", 108),
    ("RTX 3090", "NVIDIA", 82),
    ("RTX 2070", "NVIDIA before Ampere", 40),
    ("A770", "Intel before Xe2, discrete", 32),
    ("B580", "Intel, discrete", 20),
    ("Iris Xe", "Intel, integrated", 6),
    ("UHD 630", "Intel before Xe", 3),
    ("Adreno 740", "Qualcomm Adreno", 6),
    ("Mali-G78", "ARM Mali", 20),
    ("M1", "Apple", 8),
])
def test_gpus(gpu, name, units):
    info = GPUS[gpu]
    assert profile(info) is PROFILES[name]
    assert compute_units(info) == gpu_rates(info).units == units


@pytest.mark.parametrize(("gpu", "name", "row"), [
    ("RX 7900 XTX", "Null hardware (RADV GFX1100)", "AMD RDNA 3 and 4, large"),
    ("RX 7900 XTX", "AMD Radeon RX 9070 XT", "AMD RDNA 3 and 4, large"),
    ("RX 7900 XTX", "AMD Radeon RX 7600 (RADV NAVI33)", "AMD RDNA"),
    ("Vega 64", "AMD Instinct MI210", "AMD GCN and CDNA"),
    ("H200", "NVIDIA GH200 480GB", "NVIDIA Hopper and Blackwell for data centers"),
    ("H200", "NVIDIA B200", "NVIDIA Hopper and Blackwell for data centers"),
    ("H200", "NVIDIA RTX A1000", "NVIDIA"),
    ("H200", "NVIDIA GeForce RTX 5090", "NVIDIA"),
    ("H200", "NVK ", "NVIDIA"),
    ("H200", "Tesla T4", "NVIDIA before Ampere"),
    ("H200", "Tesla V100-SXM2-16GB", "NVIDIA before Ampere"),
    ("H200", "NVIDIA GeForce GTX 1080", "NVIDIA before Ampere"),
    ("A770", "Intel(R) Arc(TM) Pro A40 Graphics", "Intel before Xe2, discrete"),
    ("A770", "Intel(R) Data Center GPU Flex 170 (ATS-M)", "Intel before Xe2, discrete"),
    ("A770", "Intel(R) Graphics (DG1)", "Intel before Xe2, discrete"),
    ("A770", "Intel(R) Graphics (BMG G21)", "Intel, discrete"),
    ("Iris Xe", "Intel(R) HD Graphics 530 (SKL GT2)", "Intel before Xe"),
    ("Iris Xe", "Intel(R) UHD Graphics 770 (ADL-S GT1)", "Intel, integrated"),
    ("Iris Xe", "Intel(R) Graphics (LNL)", "Intel, integrated"),
])
def test_names_tell_generations(gpu, name, row):
    assert profile(replace(GPUS[gpu], name=name)) is PROFILES[row]


@pytest.mark.parametrize("gpu", GPUS)
def test_polls_are_coherent_loads_where_volatile_ones_pass_a_cache(gpu):
    planned = plan(make_problem(50, 1, 64, 256), GPUS[gpu], Options(schedule="persistent")).execute
    name = "gpu/gru_persistent_coherent" if gpu in ("A770", "Iris Xe", "UHD 630") else "gpu/gru_persistent"
    assert [dispatch.kernel for dispatch in planned if "persistent" in dispatch.kernel] == [name]


@pytest.mark.parametrize(("gpu", "name", "units"), [
    ("A770", "Intel(R) Arc(TM) A380 Graphics", 8),
    ("A770", "Intel(R) Arc(tm) A730M Graphics (DG2)", 24),
    ("A770", "Intel(R) Arc(tm) B570 Graphics (BMG G21)", 18),
    ("A770", "Intel(R) Arc(tm) Pro B50 Graphics (BMG G21)", 16),
    ("A770", "Intel(R) Graphics (BMG G21)", 20),  # which does not say: the row's
    ("Iris Xe", "Intel(R) Graphics (LNL)", 8),
    ("Iris Xe", "Intel(R) UHD Graphics 770 (ADL-S GT1)", 2),
    ("Iris Xe", "Intel(R) Iris(R) Plus Graphics (ICL GT2)", 8),
    ("Iris Xe", "Intel(R) HD Graphics 530 (SKL GT2)", 3),
    ("Adreno 740", "Adreno (TM) 618", 1),
    ("Adreno 740", "Adreno (TM) 650", 3),
    ("Adreno 740", "Adreno (TM) 999", 4),
    ("M1", "Apple M3 Max", 32),
])
def test_names_tell_compute_units(gpu, name, units):
    assert compute_units(replace(GPUS[gpu], name=name)) == units


def test_compute_units_that_nobody_tells():
    row = PROFILES["other GPUs"]
    assert [compute_units(replace(GPU, type=kind)) for kind in ("discrete", "integrated", "virtual", "other")] == [
        row.gpu.units, *3 * [row.integrated_units]]
    assert compute_units(replace(GPU, compute_units=7)) == 7


def test_shared_rates_grow_with_the_units():
    small, large = (gpu_rates(replace(GPUS["RTX 3090"], compute_units=units)) for units in (41, 82))
    for figure in ("cache_rate", "cache_bytes", "memory_rate"):
        assert getattr(large, figure) == 2 * getattr(small, figure), figure
    assert large == PROFILES["NVIDIA"].gpu


def test_a_cpu_driver_runs_a_gpus_kernels_as_one_that_nobody_knows():
    """But for the caches of processors, which are large."""
    assert gpu_rates(CPU) == replace(gpu_rates(replace(GPU, type="integrated")), cache_bytes=2.0**40)


def test_every_row_is_some_device():
    assert {id(profile(info)) for info in (*DEVICES.values(), *GPUS.values())} == set(map(id, PROFILES.values()))


def test_only_llvmpipe_ends_loops():
    limits = {name: row.most_iterations for name, row in PROFILES.items() if row.most_iterations < 2**31}
    assert set(limits) == {name for name, row in PROFILES.items() if row.driver == "llvmpipe"}
    assert max(limits.values()) < 65_535
