"""Devices to plan for, none of which need be here, and problems for them."""

from dataclasses import replace

from hypothesis import strategies as st

from tests.support import CELLS, make_desc
from vkdml.planning.device_info import DeviceInfo
from vkdml.spec import cells, element_types
from vkdml.spec.problem import from_desc

# What Vulkan guarantees everywhere, but for the storage buffers of a stage (see docs/architecture.md)
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




def make_problem(*sizes, cell=cells.GRU, element=element_types.FLOAT32, **changes):
    """Of T, B, I, H and D, with every optional tensor but for the changes."""
    return from_desc(make_desc(cell, *sizes, data_type=element.data_type, **changes), element=element)


def _make_problem(cell, sizes, element, flag, has_lengths):
    changes = dict.fromkeys(cell.flags, flag) | ({} if has_lengths else {"SequenceLengthsTensor": None})
    return make_problem(*sizes, cell=cell, element=element, **changes)


problems = st.builds(
    _make_problem, st.sampled_from(CELLS),
    st.tuples(st.one_of(st.just(1), st.integers(1, 2000)), st.integers(1, 200), st.integers(1, 300), st.integers(1, 600), st.integers(1, 2)),
    st.sampled_from(element_types.ALL), st.booleans(), st.booleans())
devices = st.sampled_from(list(DEVICES.values()))
