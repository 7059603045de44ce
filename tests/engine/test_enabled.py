"""What a device is opened with, and the error of a kernel that needs more."""

from dataclasses import replace

import numpy as np
import pytest

import vkdml
from tools.compile_shaders import compile_source
from vkdml.engine.commands import Commands
from vkdml.engine.vulkan import structures
from vkdml.engine.vulkan.buffers import Buffer
from vkdml.engine.vulkan.gpu import Gpu
from vkdml.engine.vulkan.queries import Enabled
from vkdml.engine.vulkan.spirv import of_spirv
from vkdml.planning.dispatches import Dispatch
from vkdml_lab.suite.devices import GPU
from vkdml_lab.suite.support import drawn_case, gru_desc, run_on_device

HALVES = """
#version 450
#extension GL_EXT_shader_16bit_storage : require
layout(local_size_x = 8) in;
layout(binding = 0) buffer Output { uint16_t halves[]; };
void main() { halves[gl_GlobalInvocationID.x] = uint16_t(gl_GlobalInvocationID.x); }
"""
FLOAT16 = """
#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(local_size_x = 8) in;
layout(binding = 0) buffer Output { uint words[]; };
void main() { words[gl_GlobalInvocationID.x] = uint(float16_t(words[0]) * float16_t(2)); }
"""
SUBGROUPS = """
#version 450
#extension GL_KHR_shader_subgroup_basic : require
layout(local_size_x = 8) in;
layout(binding = 0) buffer Output { uint words[]; };
void main() { words[gl_GlobalInvocationID.x] = gl_SubgroupSize; }
"""


def kernel(folder, text):
    (folder / "kernel.comp").write_text(text)
    compile_source(folder / "kernel.comp", folder / "kernel.spv")
    return of_spirv("kernel", (folder / "kernel.spv").read_bytes())


def words_of(gpu, compiled, subgroup_size=0):
    """The first 8 words that a kernel writes to its buffer."""
    output = Buffer(gpu, 32)
    dispatch = Dispatch("kernel", {"WORKGROUP": 8}, {"Output": "Output"}, ("Output",), (1, 1, 1), subgroup_size=subgroup_size)
    commands = Commands(gpu)
    commands.dispatch(gpu.create_kernel(dispatch, {"Output": output}, compiled), {})
    commands.readback(output)
    commands.execute()
    return output.read((8,), np.uint32)


def without_features(info):
    return replace(info, storage_16bit=False, subgroup_size_control=False)


@pytest.mark.parametrize(("has", "names", "extensions"), [
    ({}, [], []),
    ({"storage_16bit": True}, ["storageBuffer16BitAccess"], []),
    ({"subgroup_size_control": True}, ["subgroupSizeControl"], ["VK_EXT_subgroup_size_control"]),
    ({"storage_16bit": True, "subgroup_size_control": True}, ["subgroupSizeControl", "storageBuffer16BitAccess"],
     ["VK_EXT_subgroup_size_control"])])
def test_what_a_device_has_is_enabled_and_nothing_else(has, names, extensions):
    """As the driver reads it: a chain of structures, in which only these are 1."""
    enabled, found = Enabled(replace(GPU, **has)), []
    address = enabled.address
    while address:
        kind = next(kind for kind in structures.FEATURES if structures.Features2.from_address(address).sType == kind.TYPE)
        one = kind.from_address(address)
        found += [name for name, *_ in kind._fields_ if getattr(one, name)]
        address = one.pNext
    assert (found, enabled.extensions) == (names, extensions)


def test_a_kernel_that_stores_16_bits(device, tmp_path):
    halves = kernel(tmp_path, HALVES)
    if device.info.storage_16bit:
        assert words_of(device.gpu, halves)[:4].view(np.uint16).tolist() == [*range(8)]
    with pytest.raises(vkdml.DriverError, match=r"kernel needs SPIR-V's capability StorageBuffer16BitAccess \(feature "
                                                r"storageBuffer16BitAccess\), which is not enabled on "):
        words_of(Gpu(without_features(device.info)), halves)


def test_a_capability_that_vkdml_does_not_use_is_refused(device, tmp_path):
    with pytest.raises(vkdml.DriverError, match="needs SPIR-V's capability Float16, which is not enabled"):
        words_of(device.gpu, kernel(tmp_path, FLOAT16))


def test_a_kernel_that_relies_on_a_size_of_subgroups(device, tmp_path):
    sizes, size = kernel(tmp_path, SUBGROUPS), device.info.max_subgroup_size
    if device.info.subgroup_size_control:
        assert set(words_of(device.gpu, sizes, size)) == {size}
        made = device.gpu.pipelines_made
        words_of(device.gpu, sizes)  # is another pipeline
        assert device.gpu.pipelines_made == made + 1
        with pytest.raises(vkdml.DriverError, match=f"workgroups of 8 with subgroups of 512, and .* has .* to {size}, at most"):
            words_of(device.gpu, sizes, 512)
    with pytest.raises(vkdml.DriverError, match="subgroups of 8, and .* has no feature subgroupSizeControl"):
        words_of(Gpu(without_features(device.info)), sizes, 8)


@pytest.mark.parametrize(("size", "workgroup", "has"), [
    (32, 1024, True), (64, 1024, True), (16, 64, False), (128, 64, False), (48, 64, False), (32, 2048, False), (64, 2048, True)])
def test_sizes_of_subgroups_that_a_dispatch_may_need(size, workgroup, has):
    info = replace(GPU, subgroup_size_control=True, min_subgroup_size=32, max_subgroup_size=64, max_workgroup_subgroups=32)
    assert info.has_subgroups_of(size, workgroup) == has
    assert not without_features(info).has_subgroups_of(size, workgroup)


def test_without_features_all_works(device, monkeypatch):
    case = drawn_case(gru_desc(3, 2, 5, 7))
    expected = run_on_device(device, case)
    monkeypatch.setattr(device, "gpu", Gpu(without_features(device.info)))
    for name, found in run_on_device(device, case).items():
        np.testing.assert_array_equal(found, expected[name])
