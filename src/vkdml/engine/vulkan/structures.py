"""Vulkan's structures for queries, in ctypes, and the devices that know each."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char, c_char_p, c_float, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar


class ApplicationInfo(Structure):
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("pApplicationName", c_char_p), ("applicationVersion", c_uint32),
                ("pEngineName", c_char_p), ("engineVersion", c_uint32), ("apiVersion", c_uint32)]


class InstanceCreateInfo(Structure):
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("flags", c_uint32), ("pApplicationInfo", POINTER(ApplicationInfo)),
                ("enabledLayerCount", c_uint32), ("ppEnabledLayerNames", c_void_p),
                ("enabledExtensionCount", c_uint32), ("ppEnabledExtensionNames", POINTER(c_char_p))]


class ExtensionProperties(Structure):
    _fields_ = [("extensionName", c_char * 256), ("specVersion", c_uint32)]


class _Limits(Structure):
    """VkPhysicalDeviceLimits: the members that vkdml reads, and gaps as large as the members between them."""

    _fields_ = [
        ("gap1", c_uint32 * 7), ("maxStorageBufferRange", c_uint32), ("gap2", c_uint32 * 3), ("gap3", c_uint64 * 2),
        ("gap4", c_uint32 * 3), ("maxPerStageDescriptorStorageBuffers", c_uint32), ("gap5", c_uint32 * 34),
        ("maxComputeSharedMemorySize", c_uint32), ("maxComputeWorkGroupCount", c_uint32 * 3),
        ("maxComputeWorkGroupInvocations", c_uint32), ("maxComputeWorkGroupSize", c_uint32 * 3), ("gap6", c_uint32 * 5),
        ("gap7", c_float * 2), ("gap8", c_uint32 * 3), ("gap9", c_float * 2), ("gap10", c_uint32), ("gap11", c_size_t),
        ("gap12", c_uint64 * 2), ("minStorageBufferOffsetAlignment", c_uint64), ("rest", c_uint64 * 64),
    ]


class Properties(Structure):
    """VkPhysicalDeviceProperties, with more room at its end than the real structure."""

    _fields_ = [("apiVersion", c_uint32), ("driverVersion", c_uint32), ("vendorID", c_uint32), ("deviceID", c_uint32),
                ("deviceType", c_uint32), ("deviceName", c_char * 256), ("pipelineCacheUUID", c_uint8 * 16),
                ("limits", _Limits), ("slack", c_uint64 * 16)]


class Properties2(Structure):
    TYPE, FUNCTION = 1000059001, "vkGetPhysicalDeviceProperties2"
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("properties", Properties)]


class Features2(Structure):
    """VkPhysicalDeviceFeatures2, with more room at its end. Only the structures chained to it are read."""

    TYPE, FUNCTION = 1000059000, "vkGetPhysicalDeviceFeatures2"
    _fields_ = [("sType", c_uint32), ("pNext", c_void_p), ("features", c_uint32 * 64)]


class QueueFamily(Structure):
    _fields_ = [("queueFlags", c_uint32), ("queueCount", c_uint32), ("timestampValidBits", c_uint32),
                ("minImageTransferGranularity", c_uint32 * 3)]


class MemoryType(Structure):
    _fields_ = [("propertyFlags", c_uint32), ("heapIndex", c_uint32)]


class MemoryHeap(Structure):
    _fields_ = [("size", c_uint64), ("flags", c_uint32)]


class MemoryProperties(Structure):
    _fields_ = [("memoryTypeCount", c_uint32), ("memoryTypes", MemoryType * 32),
                ("memoryHeapCount", c_uint32), ("memoryHeaps", MemoryHeap * 16)]


def words(*names: str) -> list[tuple[str, type[c_uint32]]]:
    """Return fields of a structure with 32 bits each."""
    return [(name, c_uint32) for name in names]


class Chained(Structure):
    """A structure that may follow Properties2 or Features2 if the device knows it. TYPE: its sType. SINCE: the version of
    Vulkan with it, if any. EXTENSION: the extension with it.
    """

    TYPE: int
    SINCE: tuple[int, int] | None = None
    EXTENSION = b""
    _fields_: ClassVar[Any] = [("sType", c_uint32), ("pNext", c_void_p)]


class SubgroupProperties(Chained):
    TYPE, SINCE = 1000094000, (1, 1)
    _fields_ = words("subgroupSize", "supportedStages", "supportedOperations", "quadOperationsInAllStages")


class DriverProperties(Chained):
    TYPE, SINCE, EXTENSION = 1000196000, (1, 2), b"VK_KHR_driver_properties"
    _fields_ = [("driverID", c_uint32), ("driverName", c_char * 256), ("driverInfo", c_char * 256),
                ("conformanceVersion", c_uint8 * 4)]


class SubgroupSizeControlProperties(Chained):
    TYPE, SINCE, EXTENSION = 1000225000, (1, 3), b"VK_EXT_subgroup_size_control"
    _fields_ = words("minSubgroupSize", "maxSubgroupSize", "maxComputeWorkgroupSubgroups", "requiredSubgroupSizeStages")


class ShaderCoreProperties(Chained):
    TYPE, EXTENSION = 1000185000, b"VK_AMD_shader_core_properties"
    _fields_ = words(
        "shaderEngineCount", "shaderArraysPerEngineCount", "computeUnitsPerShaderArray", "simdPerComputeUnit",
        "wavefrontsPerSimd", "wavefrontSize", "sgprsPerSimd", "minSgprAllocation", "maxSgprAllocation",
        "sgprAllocationGranularity", "vgprsPerSimd", "minVgprAllocation", "maxVgprAllocation", "vgprAllocationGranularity")


class ShaderCoreProperties2(Chained):
    TYPE, EXTENSION = 1000227000, b"VK_AMD_shader_core_properties2"
    _fields_ = words("shaderCoreFeatures", "activeComputeUnitCount")


class ShaderSMBuiltinsProperties(Chained):
    TYPE, EXTENSION = 1000154001, b"VK_NV_shader_sm_builtins"
    _fields_ = words("shaderSMCount", "shaderWarpsPerSM")


class ShaderCoreBuiltinsProperties(Chained):
    TYPE, EXTENSION = 1000497001, b"VK_ARM_shader_core_builtins"
    _fields_ = [("shaderCoreMask", c_uint64), *words("shaderCoreCount", "shaderWarpsPerCore")]


class IDProperties(Chained):
    TYPE, SINCE = 1000071004, (1, 1)
    _fields_ = [("deviceUUID", c_uint8 * 16), ("driverUUID", c_uint8 * 16), ("deviceLUID", c_uint8 * 8),
                *words("deviceNodeMask", "deviceLUIDValid")]


class PCIBusInfoProperties(Chained):
    TYPE, EXTENSION = 1000212000, b"VK_EXT_pci_bus_info"
    _fields_ = words("pciDomain", "pciBus", "pciDevice", "pciFunction")


class Maintenance3Properties(Chained):
    TYPE, SINCE = 1000168000, (1, 1)
    _fields_ = [("maxPerSetDescriptors", c_uint32), ("maxMemoryAllocationSize", c_uint64)]


class Storage16BitFeatures(Chained):
    TYPE, SINCE = 1000083000, (1, 1)
    _fields_ = words(
        "storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess", "storagePushConstant16", "storageInputOutput16")


class SubgroupSizeControlFeatures(Chained):
    """Enabled by the extension only, as kp's instance is of Vulkan 1.1."""

    TYPE, EXTENSION = 1000225002, b"VK_EXT_subgroup_size_control"
    _fields_ = words("subgroupSizeControl", "computeFullSubgroups")


PROPERTIES: tuple[type[Chained], ...] = (
    SubgroupProperties, DriverProperties, SubgroupSizeControlProperties, ShaderCoreProperties, ShaderCoreProperties2,
    ShaderSMBuiltinsProperties, ShaderCoreBuiltinsProperties, IDProperties, PCIBusInfoProperties, Maintenance3Properties)
FEATURES: tuple[type[Chained], ...] = (Storage16BitFeatures, SubgroupSizeControlFeatures)
