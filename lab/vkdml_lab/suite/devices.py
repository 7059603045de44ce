"""DeviceInfos of real and imagined devices, and problems, for tests of the planner, which need none of the devices."""

from dataclasses import replace

from vkdml.operators import cells, element_types
from vkdml.operators.problem import from_desc
from vkdml.planning import gpus
from vkdml.planning.device_info import DeviceInfo
from vkdml_lab.suite.support import CELLS, make_desc

# Vulkan's guaranteed limits, except for the storage buffers of a stage (see docs/architecture.md)
SMALLEST = DeviceInfo(index=0, name="smallest", type="integrated", driver="any", driver_version="", api_version="1.1.0",
                      subgroup_size=1, subgroup_shuffle=False, max_workgroup_invocations=128, max_workgroup_count=65535,
                      max_shared_memory=16384, max_storage_buffer_range=2**27, max_storage_buffers=10)
CPU = replace(SMALLEST, name="cpu", type="cpu", driver="llvmpipe", subgroup_size=8, subgroup_shuffle=True,
              max_workgroup_invocations=1024, max_shared_memory=32768)
GPU = replace(SMALLEST, name="gpu", type="discrete", subgroup_size=32, subgroup_shuffle=True, max_workgroup_invocations=1024)
DEVICES = {
    "smallest": SMALLEST,
    **{f"GPU, {size} lanes": replace(GPU, subgroup_size=size, max_workgroup_invocations=128) for size in (16, 32, 64)},
    "llvmpipe": CPU,
    "Mesa 25": replace(CPU, driver_version="Mesa 25.0.7", cores=2),
    "Mesa 26": replace(CPU, driver_version="Mesa 26.2.6-1 (LLVM 22.1.8)", cores=4),
    "SwiftShader": replace(CPU, driver="SwiftShader driver", subgroup_size=4, cores=2),
    "other": replace(CPU, driver="other", subgroup_size=4),
}


def _gpu(name, vendor, sizes=(32, 32), type="discrete", driver="any", row=None):
    return replace(GPU, name=name, type=type, driver=driver, vendor=vendor,
                   compute_units=gpus.GPUS[row].units if row else 0, subgroup_size=sizes[1],
                   min_subgroup_size=sizes[0], max_subgroup_size=sizes[1], max_shared_memory=49152,
                   max_storage_buffer_range=2**32 - 4, max_storage_buffers=2**20, unified_memory=type == "integrated")


# GPUs as their drivers describe them; some drivers do not tell the number of compute units
GPUS = {
    "RX 7900 XTX": _gpu("AMD Radeon RX 7900 XTX (RADV NAVI31)", 0x1002, (32, 64), driver="radv", row="RX 7900 XTX"),
    "RX 6900 XT": _gpu("AMD Radeon RX 6900 XT (RADV NAVI21)", 0x1002, (32, 64), driver="radv", row="RX 6900 XT"),
    "780M": _gpu("AMD Radeon 780M Graphics (RADV PHOENIX)", 0x1002, (32, 64), "integrated", "radv"),
    "Vega 64": _gpu("AMD Radeon RX Vega (RADV VEGA10)", 0x1002, (64, 64), driver="radv", row="RX Vega 64"),
    "H200": _gpu("NVIDIA H200", 0x10DE, driver="NVIDIA", row="H200"),
    "A100": _gpu("NVIDIA A100-SXM4-40GB", 0x10DE, driver="NVIDIA", row="A100"),
    "RTX 3090": _gpu("NVIDIA GeForce RTX 3090 (NVK GA102)", 0x10DE, driver="NVK", row="RTX 3090"),
    "RTX 2070": _gpu("NVIDIA GeForce RTX 2070 SUPER", 0x10DE, driver="NVIDIA", row="RTX 2070 Super"),
    "A770": _gpu("Intel(R) Arc(tm) A770 Graphics (DG2)", 0x8086, (8, 32)),
    "B580": _gpu("Intel(R) Arc(tm) B580 Graphics (BMG G21)", 0x8086, (16, 32)),
    "Iris Xe": _gpu("Intel(R) Iris(R) Xe Graphics (TGL GT2)", 0x8086, (8, 32), "integrated"),
    "UHD 630": _gpu("Intel(R) UHD Graphics 630 (CFL GT2)", 0x8086, (8, 32), "integrated"),
    "Adreno 740": _gpu("Turnip Adreno (TM) 740", 0x5143, (64, 128), "integrated", "turnip Mesa driver"),
    "Mali-G78": _gpu("Mali-G78", 0x13B5, (16, 16), "integrated", row="Mali-G78"),
    "M1": _gpu("Apple M1", 0x106B, (32, 32), "integrated", "MoltenVK"),
}


def make_problem(*sizes, cell=cells.GRU, element=element_types.FLOAT32, **changes):
    """Make a problem with every optional tensor. sizes: T, B, I, H and D. changes: fields of the descriptor to replace."""
    return from_desc(make_desc(cell, *sizes, data_type=element.data_type, **changes), element=element)


def random_problem(rng, info):
    """Draw a problem of any cell and type whose tensors fit in a device's buffers. T, B, I and H are log-uniform from 1 on."""
    while True:
        cell, sizes = rng.choice(CELLS), [round(most**rng.random()) for most in (2000, 200, 300, 600)]
        changes = dict.fromkeys(cell.flags, rng.random() < 0.5) | rng.choice([{}, {"SequenceLengthsTensor": None}])
        problem = make_problem(*sizes, rng.randint(1, 2), cell=cell, element=rng.choice(element_types.ALL), **changes)
        if all(tensor.size_in_bytes <= info.max_storage_buffer_range for tensor in problem.tensors.values() if tensor):
            return problem
