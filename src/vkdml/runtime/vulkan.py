"""The devices and their limits, asked of the Vulkan loader through ctypes, as kp does not pass all of them on.

No device is opened here: runtime/device.py does that.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_uint8, c_uint32, c_uint64, c_void_p

from ..errors import DriverError
from ..planning.device_info import DeviceInfo

_INSTALL = "on Debian: apt-get install libvulkan1 mesa-vulkan-drivers"
NO_LOADER = f"no Vulkan loader (libvulkan.so.1); install one and a driver, {_INSTALL}"


# VkPhysicalDeviceType, and which of them the default prefers
_TYPES = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_PREFERENCE = ["discrete", "integrated", "virtual", "other", "cpu"]


def default_device(infos: list[DeviceInfo]) -> DeviceInfo:
    """A real GPU before a CPU driver; among equals the loader's first."""
    return min(infos, key=lambda info: _PREFERENCE.index(info.type))


class _ApplicationInfo(Structure):
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("pApplicationName", c_char_p), ("applicationVersion", c_uint32),
                ("pEngineName", c_char_p), ("engineVersion", c_uint32), ("apiVersion", c_uint32)]


class _InstanceCreateInfo(Structure):
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("flags", c_uint32), ("pApplicationInfo", POINTER(_ApplicationInfo)),
                ("enabledLayerCount", c_uint32), ("ppEnabledLayerNames", c_void_p),
                ("enabledExtensionCount", c_uint32), ("ppEnabledExtensionNames", c_void_p)]


class _Limits(Structure):
    """VkPhysicalDeviceLimits up to what is used here; `rest` is more than the remainder."""

    _fields_ = [
        *[(name, c_uint32) for name in (
            "maxImageDimension1D", "maxImageDimension2D", "maxImageDimension3D", "maxImageDimensionCube",
            "maxImageArrayLayers", "maxTexelBufferElements", "maxUniformBufferRange", "maxStorageBufferRange",
            "maxPushConstantsSize", "maxMemoryAllocationCount", "maxSamplerAllocationCount")],
        ("bufferImageGranularity", c_uint64), ("sparseAddressSpaceSize", c_uint64),
        *[(name, c_uint32) for name in (
            "maxBoundDescriptorSets", "maxPerStageDescriptorSamplers", "maxPerStageDescriptorUniformBuffers",
            "maxPerStageDescriptorStorageBuffers", "maxPerStageDescriptorSampledImages",
            "maxPerStageDescriptorStorageImages", "maxPerStageDescriptorInputAttachments", "maxPerStageResources",
            "maxDescriptorSetSamplers", "maxDescriptorSetUniformBuffers", "maxDescriptorSetUniformBuffersDynamic",
            "maxDescriptorSetStorageBuffers", "maxDescriptorSetStorageBuffersDynamic", "maxDescriptorSetSampledImages",
            "maxDescriptorSetStorageImages", "maxDescriptorSetInputAttachments", "maxVertexInputAttributes",
            "maxVertexInputBindings", "maxVertexInputAttributeOffset", "maxVertexInputBindingStride",
            "maxVertexOutputComponents", "maxTessellationGenerationLevel", "maxTessellationPatchSize",
            "maxTessellationControlPerVertexInputComponents", "maxTessellationControlPerVertexOutputComponents",
            "maxTessellationControlPerPatchOutputComponents", "maxTessellationControlTotalOutputComponents",
            "maxTessellationEvaluationInputComponents", "maxTessellationEvaluationOutputComponents",
            "maxGeometryShaderInvocations", "maxGeometryInputComponents", "maxGeometryOutputComponents",
            "maxGeometryOutputVertices", "maxGeometryTotalOutputComponents", "maxFragmentInputComponents",
            "maxFragmentOutputAttachments", "maxFragmentDualSrcAttachments", "maxFragmentCombinedOutputResources",
            "maxComputeSharedMemorySize")],
        ("maxComputeWorkGroupCount", c_uint32 * 3), ("maxComputeWorkGroupInvocations", c_uint32),
        ("maxComputeWorkGroupSize", c_uint32 * 3), ("rest", c_uint64 * 64),
    ]


class _Properties(Structure):
    """VkPhysicalDeviceProperties2; larger than the real structure at its end, where nothing is read."""

    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("apiVersion", c_uint32), ("driverVersion", c_uint32),
                ("vendorID", c_uint32), ("deviceID", c_uint32), ("deviceType", c_uint32), ("deviceName", c_char * 256),
                ("pipelineCacheUUID", c_uint8 * 16), ("limits", _Limits), ("slack", c_uint64 * 16)]


class _SubgroupProperties(Structure):
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("subgroupSize", c_uint32), ("supportedStages", c_uint32),
                ("supportedOperations", c_uint32), ("quadOperationsInAllStages", c_uint32)]


class _DriverProperties(Structure):
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("driverID", c_uint32), ("driverName", c_char * 256),
                ("driverInfo", c_char * 256), ("conformanceVersion", c_uint8 * 4)]


_VERSION_1_1 = (1 << 22) | (1 << 12)
_MOST_BUFFER_BYTES = 2**32 - 4  # kp holds a buffer's size in a uint32, in which larger ones would wrap without an error
_STAGE_COMPUTE = 0x20
_OPERATIONS_OF_LANES = 0x10 | 0x80  # shuffle and quad


def enumerate_devices() -> list[DeviceInfo]:
    """All devices with Vulkan 1.1 or newer, in the loader's order. Raises DriverError where there is no loader or driver."""
    try:
        vk = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        raise DriverError(NO_LOADER) from None
    vk.vkGetPhysicalDeviceProperties2.restype = None
    app = _ApplicationInfo(sType=0, apiVersion=_VERSION_1_1)
    create = _InstanceCreateInfo(sType=1, pApplicationInfo=ctypes.pointer(app))
    instance = c_void_p()
    if vk.vkCreateInstance(byref(create), None, byref(instance)) != 0:
        raise DriverError(f"the Vulkan loader found no driver; install one, {_INSTALL}")
    try:
        count = c_uint32()
        vk.vkEnumeratePhysicalDevices(instance, byref(count), None)
        handles = (c_void_p * count.value)()
        vk.vkEnumeratePhysicalDevices(instance, byref(count), handles)
        infos = [_query(vk, index, handle) for index, handle in enumerate(handles)]
    finally:
        vk.vkDestroyInstance(instance, None)
    usable = [info for info in infos if info is not None]
    if not usable:
        raise DriverError(f"no Vulkan device with Vulkan 1.1 or newer; install a driver, {_INSTALL}")
    return usable


def _query(vk: ctypes.CDLL, index: int, handle: int | None) -> DeviceInfo | None:
    subgroup = _SubgroupProperties(sType=1000094000)
    driver = _DriverProperties(sType=1000196000, pNext=ctypes.addressof(subgroup))
    properties = _Properties(sType=1000059001, pNext=ctypes.addressof(driver))
    vk.vkGetPhysicalDeviceProperties2(c_void_p(handle), byref(properties))
    version = properties.apiVersion
    if version < _VERSION_1_1:
        return None
    limits = properties.limits
    return DeviceInfo(
        index=index,
        name=properties.deviceName.decode(),
        type=_TYPES.get(properties.deviceType, "other"),
        driver=driver.driverName.decode(),
        driver_version=driver.driverInfo.decode() or hex(properties.driverVersion),
        api_version=f"{version >> 22 & 0x7f}.{version >> 12 & 0x3ff}.{version & 0xfff}",
        subgroup_size=subgroup.subgroupSize,
        subgroup_shuffle=bool(subgroup.supportedStages & _STAGE_COMPUTE
                              and subgroup.supportedOperations & _OPERATIONS_OF_LANES == _OPERATIONS_OF_LANES),
        max_workgroup_invocations=min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]),
        max_workgroup_count=min(limits.maxComputeWorkGroupCount),
        max_shared_memory=limits.maxComputeSharedMemorySize,
        max_storage_buffer_range=min(limits.maxStorageBufferRange, _MOST_BUFFER_BYTES),
        max_storage_buffers=limits.maxPerStageDescriptorStorageBuffers,
        cores=len(os.sched_getaffinity(0)),
    )
