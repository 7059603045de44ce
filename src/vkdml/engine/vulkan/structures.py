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


def _chained(kind: int, fields: Any, since: tuple[int, int] | None = None, extension: bytes = b"") -> Any:
    """Return a subclass of Chained with this TYPE, SINCE and EXTENSION."""
    return type("Chained", (Chained,), {"TYPE": kind, "SINCE": since, "EXTENSION": extension, "_fields_": fields})


SubgroupProperties = _chained(1000094000, words(
    "subgroupSize", "supportedStages", "supportedOperations", "quadOperationsInAllStages"), (1, 1))
DriverProperties = _chained(1000196000, [
    ("driverID", c_uint32), ("driverName", c_char * 256), ("driverInfo", c_char * 256),
    ("conformanceVersion", c_uint8 * 4)], (1, 2), b"VK_KHR_driver_properties")
SubgroupSizeControlProperties = _chained(1000225000, words(
    "minSubgroupSize", "maxSubgroupSize", "maxComputeWorkgroupSubgroups", "requiredSubgroupSizeStages"),
    (1, 3), b"VK_EXT_subgroup_size_control")
ShaderCoreProperties = _chained(1000185000, words(
    "shaderEngineCount", "shaderArraysPerEngineCount", "computeUnitsPerShaderArray", "simdPerComputeUnit",
    "wavefrontsPerSimd", "wavefrontSize", "sgprsPerSimd", "minSgprAllocation", "maxSgprAllocation",
    "sgprAllocationGranularity", "vgprsPerSimd", "minVgprAllocation", "maxVgprAllocation", "vgprAllocationGranularity"),
    extension=b"VK_AMD_shader_core_properties")
ShaderCoreProperties2 = _chained(1000227000, words(
    "shaderCoreFeatures", "activeComputeUnitCount"), extension=b"VK_AMD_shader_core_properties2")
ShaderSMBuiltinsProperties = _chained(1000154001, words(
    "shaderSMCount", "shaderWarpsPerSM"), extension=b"VK_NV_shader_sm_builtins")
ShaderCoreBuiltinsProperties = _chained(1000497001, [
    ("shaderCoreMask", c_uint64), *words("shaderCoreCount", "shaderWarpsPerCore")], extension=b"VK_ARM_shader_core_builtins")
IDProperties = _chained(1000071004, [
    ("deviceUUID", c_uint8 * 16), ("driverUUID", c_uint8 * 16), ("deviceLUID", c_uint8 * 8),
    *words("deviceNodeMask", "deviceLUIDValid")], (1, 1))
PCIBusInfoProperties = _chained(1000212000, words(
    "pciDomain", "pciBus", "pciDevice", "pciFunction"), extension=b"VK_EXT_pci_bus_info")
Maintenance3Properties = _chained(1000168000, [
    ("maxPerSetDescriptors", c_uint32), ("maxMemoryAllocationSize", c_uint64)], (1, 1))
Storage16BitFeatures = _chained(1000083000, words(
    "storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess", "storagePushConstant16", "storageInputOutput16"), (1, 1))
# Enabled by the extension only, as kp's instance is of Vulkan 1.1
SubgroupSizeControlFeatures = _chained(1000225002, words(
    "subgroupSizeControl", "computeFullSubgroups"), extension=b"VK_EXT_subgroup_size_control")

ExternalBufferInfo = _chained(1000071002, words("flags", "usage", "handleType"))
ExternalBufferProperties = _chained(1000071003, words(
    "externalMemoryFeatures", "exportFromImportedHandleTypes", "compatibleHandleTypes"))

PROPERTIES: tuple[type[Chained], ...] = (
    SubgroupProperties, DriverProperties, SubgroupSizeControlProperties, ShaderCoreProperties, ShaderCoreProperties2,
    ShaderSMBuiltinsProperties, ShaderCoreBuiltinsProperties, IDProperties, PCIBusInfoProperties, Maintenance3Properties)
FEATURES: tuple[type[Chained], ...] = (Storage16BitFeatures, SubgroupSizeControlFeatures)
